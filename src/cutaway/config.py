"""Configuration as frozen, validated values.

`parse` turns a mapping into a dataclass: unknown keys are errors that list the known ones, and a value of the
wrong type is named with its place. `ModelConfig` is everything a model is built from.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from cutaway.errors import CutawayError, brief, nearest

T = TypeVar("T")


# The greatest sizes that are believed: a config that asks for more is a mistake, and would only end in a full memory.
MOST = {
    "vocab_size": 10_000_000, "d_model": 65_536, "n_layers": 1_000, "n_encoder_layers": 1_000, "n_heads": 1_024,
    "n_kv_heads": 1_024, "d_head": 8_192, "d_ff": 1_000_000, "max_len": 10_000_000, "position_offset": 1_000_000,
    "n_segments": 1_000_000, "relative_buckets": 65_536, "relative_max_distance": 10_000_000,
    "window": 10_000_000, "n_experts": 65_536, "n_experts_per_token": 65_536, "d_expert": 1_000_000,
}  # fmt: skip
MAY_BE_ZERO = ("position_offset", "n_segments", "n_experts")


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched so that a model reads further than it was trained at first.

    `linear` divides every frequency by `factor` (Chen et al. 2023). `llama3` divides the slow ones only, with a
    smooth step between `low_freq_factor` and `high_freq_factor` turns within `original_max_len` (Llama 3.1).
    `yarn` does so by dimension, between `beta_fast` and `beta_slow` turns, and multiplies cos and sin by
    `attention_factor` (Peng et al. 2023). `dynamic` changes nothing within `max_len`, which is enforced here.
    """

    kind: Literal["linear", "llama3", "yarn", "dynamic"]
    factor: float
    original_max_len: int | None = None  # llama3 and yarn need it
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None  # None: what the paper recommends, 0.1·ln(factor) + 1

    def __post_init__(self) -> None:
        for name in (
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "beta_fast",
            "beta_slow",
            "attention_factor",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"rope_scaling.{name} is {value}, expected a number above 0")
        if self.kind in ("llama3", "yarn"):
            if self.original_max_len is None or not 1 <= self.original_max_len <= MOST["max_len"]:
                raise ValueError(
                    f"rope_scaling.original_max_len is {self.original_max_len}, expected the length first trained at"
                )
            if self.low_freq_factor >= self.high_freq_factor or self.beta_slow >= self.beta_fast:
                raise ValueError(
                    f"rope_scaling: low_freq_factor ({self.low_freq_factor}) must be below high_freq_factor "
                    f"({self.high_freq_factor}), and beta_slow ({self.beta_slow}) below beta_fast ({self.beta_fast})"
                )


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The numbers and choices one Transformer is built from; nothing else is read when it runs.

    The three families share every field. Quirks of published architectures are numbers here, not flags:
    T5's unscaled scores are `attn_scale=1.0`, Marian's scaled embeddings `embed_scale=√d_model`.
    """

    family: Literal["encoder-decoder", "decoder-only", "encoder-only"]
    vocab_size: int
    d_model: int  # width D of the residual stream
    n_layers: int  # blocks of the decoder, or of the encoder where it is the only stack
    n_heads: int
    d_ff: int
    n_encoder_layers: int | None = None  # encoder-decoder: None means n_layers
    n_kv_heads: int | None = None  # grouped-query attention: None means n_heads
    d_head: int | None = None  # None means d_model / n_heads
    max_len: int = 512  # positions a learned or sinusoidal table has; the context limit of the others
    norm: Literal["layernorm", "rmsnorm", "rmsnorm1p"] = "layernorm"  # 1p: scaled by 1 + weight (Gemma)
    norm_eps: float = 1e-5
    norm_order: Literal["pre", "post", "sandwich"] = (
        "pre"  # sandwich: before and after each sublayer (Gemma 2)
    )
    final_norm: bool | None = None  # a norm after the last block: None means all but post-norm have it
    position: Literal["learned", "sinusoidal", "rotary", "relative", "alibi", "none"] = "rotary"
    position_offset: int = 0  # row of the position table that the first token takes
    sinusoid: Literal["halves", "halves_m2m"] = "halves"  # see nn.position.sinusoids
    rope_base: float = 10_000.0
    rope_local_base: float | None = None  # layers with a window: their own base, unscaled (Gemma 3)
    rope_scaling: RopeScaling | None = None
    window: int | None = None  # sliding-window attention: a token sees itself and the window - 1 before it
    window_layers: tuple[int, ...] = ()  # the layers that have it; the others see everything
    relative_buckets: int = 32
    relative_max_distance: int = 128
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "gelu"
    gated: bool = False  # GLU: activation(gate(x)) · up(x)
    attn_bias: bool = True  # biases of the q, k, v and o projections
    attn_out_bias: bool | None = None  # of the o projection alone, where it differs (Qwen2)
    mlp_bias: bool = True
    n_experts: int = 0  # mixture of experts in place of the feed-forward network; 0: none
    n_experts_per_token: int = 2  # the k best ones work on a token
    d_expert: int | None = None  # feed-forward width of one expert: None means d_ff
    experts_renormalised: bool = True  # the weights of the chosen ones are scaled to sum to 1
    dense_layers: tuple[int, ...] = ()  # layers that keep the plain network
    qk_norm: bool = False  # a norm over each head's query and key (Qwen3)
    attn_scale: float | None = None  # None means 1/√d_head
    attn_softcap: float | None = None  # c·tanh(score/c) before the mask (Gemma 2)
    embed_scale: float = 1.0
    embed_norm: bool = False
    n_segments: int = 0  # sentence A/B embeddings (BERT)
    tied: bool = True  # the output matrix is the embedding matrix
    head: Literal["linear", "masked", "none"] = "linear"
    # masked: BERT's dense, activation, norm before the output; none: the model gives vectors, not words
    head_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float | None = None  # c·tanh(logit/c)
    dropout: float = 0.0
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    mask_id: int | None = None
    decoder_start_id: int | None = None

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            value, least = getattr(self, name), 0 if name in MAY_BE_ZERO else 1
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} is {value}, expected {least} to {most:,}")
        for name in (
            "norm_eps", "rope_base", "rope_local_base", "embed_scale", "logit_scale", "attn_scale", "attn_softcap",
            "logit_softcap",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}, expected a number above 0")
        exact = (
            self.relative_buckets // 4
        )  # of one direction's half, as T5 counts where both directions are seen
        if exact < 1 or self.relative_max_distance <= 2 * exact:
            raise ValueError(
                f"relative_buckets is {self.relative_buckets} and relative_max_distance {self.relative_max_distance}, "
                "expected at least 4 buckets, and a distance of more than half their number"
            )
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(f"d_model ({self.d_model}) must be a multiple of n_heads ({self.n_heads})")
        if self.n_heads % self.kv_heads:
            raise ValueError(f"n_heads ({self.n_heads}) must be a multiple of n_kv_heads ({self.kv_heads})")
        if self.position == "rotary" and self.head_width % 2:
            raise ValueError(f"rotary positions need an even d_head, not {self.head_width}")
        if self.position == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {self.d_model}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}, expected 0 <= dropout < 1")
        for name in ("window_layers", "dense_layers"):
            layers = getattr(self, name)
            if len(set(layers)) != len(layers) or any(not 0 <= layer < self.n_layers for layer in layers):
                raise ValueError(
                    f"{name} is {list(layers)}, expected layer numbers 0 to {self.n_layers - 1}, each once"
                )
        if (self.window is None) != (not self.window_layers):
            raise ValueError(
                f"window is {self.window} and window_layers {list(self.window_layers)}: give both or neither"
            )
        if self.window is not None and self.family != "decoder-only":
            raise ValueError("window belongs to the decoder-only family")
        if self.n_experts and self.n_experts_per_token > self.n_experts:
            raise ValueError(
                f"n_experts_per_token ({self.n_experts_per_token}) is more than there are n_experts ({self.n_experts})"
            )
        if self.n_encoder_layers is not None and self.family != "encoder-decoder":
            raise ValueError("n_encoder_layers belongs to the encoder-decoder family; others have n_layers")
        for name in ("pad_id", "bos_id", "eos_id", "mask_id", "decoder_start_id"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < self.vocab_size:
                raise ValueError(f"{name} is {value}, expected an id below vocab_size ({self.vocab_size})")

    @property
    def kv_heads(self) -> int:
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def head_width(self) -> int:
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def has_out_bias(self) -> bool:
        return self.attn_bias if self.attn_out_bias is None else self.attn_out_bias

    @property
    def expert_width(self) -> int:
        return self.d_ff if self.d_expert is None else self.d_expert

    @property
    def encoder_layers(self) -> int:
        return self.n_layers if self.n_encoder_layers is None else self.n_encoder_layers

    @property
    def has_final_norm(self) -> bool:
        return self.norm_order != "post" if self.final_norm is None else self.final_norm


def parse(cls: type[T], values: Mapping[str, object], where: str) -> T:
    """Build dataclass `cls` from `values`, strictly.

    Nested dataclasses, `Literal`, `tuple[X, ...]`, `dict[str, X]` and `X | None` are understood; an int is
    accepted for a float. Raises CutawayError that names `where`, the key, and what was expected.
    """
    assert dataclasses.is_dataclass(cls)
    if not isinstance(values, Mapping):
        raise CutawayError(
            "{where}: expected a table of keys, got {values}", where=where, values=brief(values)
        )
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls)}
    for key in values:
        if key not in known:
            hint = nearest(str(key), known)
            raise CutawayError(
                "{where}: unknown key {key!r}{hint}; known keys: {known}",
                where=where,
                key=key,
                hint=hint,
                known=", ".join(known),
            )
    arguments = {key: _convert(hints[key], value, f"{where}.{key}") for key, value in values.items()}
    for name, field in known.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in arguments:
            raise CutawayError("{where}: key {name!r} is missing", where=where, name=name)
    try:
        return cls(**arguments)
    except CutawayError:
        raise
    except ValueError as error:
        raise CutawayError("{where}: {error}", where=where, error=error) from error


def _convert(hint: object, value: object, where: str) -> object:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        choices = [choice for choice in arguments if choice is not type(None)]
        for choice in choices[:-1]:
            try:
                return _convert(choice, value, where)
            except CutawayError:
                continue
        return _convert(choices[-1], value, where)
    if origin is Literal:
        if value in arguments and type(value) in {type(choice) for choice in arguments}:
            return value
        hint_text = nearest(value, [str(a) for a in arguments]) if isinstance(value, str) else ""
        raise CutawayError(
            "{where} is {value}, expected one of {arguments}{hint_text}",
            where=where,
            value=brief(value),
            arguments=", ".join(map(str, arguments)),
            hint_text=hint_text,
        )
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise CutawayError("{where} is {value}, expected a list", where=where, value=brief(value))
        return tuple(_convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise CutawayError(
                "{where} is {value}, expected a table of keys", where=where, value=brief(value)
            )
        return {str(key): _convert(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    assert isinstance(hint, type), f"{where}: {hint} is not a kind of field this reads"
    if dataclasses.is_dataclass(hint):
        return parse(hint, typing.cast(Mapping[str, object], value), where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise CutawayError(
            "{where} is {value}, expected {get}",
            where=where,
            value=brief(value),
            get=names.get(hint, hint.__name__),
        )
    return value


def to_dict(instance: object) -> dict[str, object]:
    """A dataclass as plain values that JSON and TOML can hold (tuples become lists)."""
    assert dataclasses.is_dataclass(instance) and not isinstance(instance, type)
    return json.loads(json.dumps(dataclasses.asdict(instance)))
