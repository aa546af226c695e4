"""Values declared once and checked when they are made, and what a model is built from.

A `checked` class is a frozen dataclass whose fields are `key`s: type, default, bounds, and what it is for in words.
`parse` turns a mapping (TOML, JSON) into such a class, strictly. Both refuse unknown keys with the nearest known one,
wrong types, numbers out of bounds or not finite, and texts that hold a NUL.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Literal, TypeVar

from cutaway.errors import CutawayError, about, brief, nearest
from cutaway.words import Phrase, Text, listed, names_of, phrase, say

T = TypeVar("T")
# A number above it, where no other bound is given, is a mistake.
LARGEST = 10**15


@dataclass(frozen=True, kw_only=True)
class Key:
    """What is known of a field beside its type and default: what it is for, and bounds (>, >=, <, <=) that hold for
    each number in it, also in a list or a table."""

    about: Phrase
    ge: float | None = None
    gt: float | None = None
    le: float = LARGEST
    lt: float | None = None

    def allows(self, number: float) -> bool:
        """Whether a number is finite and within the bounds."""
        return (
            (isinstance(number, int) or math.isfinite(number))
            and (self.ge is None or number >= self.ge)
            and (self.gt is None or number > self.gt)
            and number <= self.le
            and (self.lt is None or number < self.lt)
        )

    def expected(self, number: float) -> Phrase:
        """The bounds in words, for whoever gave `number`."""
        if self.ge is not None and self.le < LARGEST:
            return say("{least:,} to {most:,}", least=self.ge, most=self.le)
        bounds = (
            (self.ge is not None, say("at least {bound:,}", bound=self.ge)),
            (self.gt is not None, say("a number above {bound:,}", bound=self.gt)),
            (self.le < LARGEST or number > LARGEST, say("at most {bound:,}", bound=self.le)),
            (self.lt is not None, say("below {bound:,}", bound=self.lt)),
        )
        return listed([words for told, words in bounds if told] or [say("a finite number")])

    def check(self, name: str, value: object) -> None:
        """Raises CutawayError naming the value that is not allowed."""
        if isinstance(value, tuple):
            for place, item in enumerate(value):
                self.check(f"{name}[{place}]", item)
        elif isinstance(value, Mapping):
            for inner, item in value.items():
                self.check(f"{name}.{inner}", item)
        elif isinstance(value, str) and "\0" in value:
            raise CutawayError(
                "{name} is {value}, expected a text without NUL", name=name, value=brief(value)
            )
        elif isinstance(value, int | float) and not isinstance(value, bool) and not self.allows(value):
            raise CutawayError(
                "{name} is {value}, expected {expected}",
                name=name,
                value=brief(value),
                expected=self.expected(value),
            )


def key(
    about: Phrase | str,
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    ge: float | None = None,
    gt: float | None = None,
    le: float = LARGEST,
    lt: float | None = None,
) -> Any:
    """A field of a `checked` class; without a default it must be given."""
    known = Key(about=phrase(about), ge=ge, gt=gt, le=le, lt=lt)
    return dataclasses.field(default=default, default_factory=default_factory, metadata={"key": known})


@typing.dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(key,))
def checked(cls: type[T]) -> type[T]:
    """A frozen, keyword-only dataclass that checks its values against their keys, before its own `__post_init__`."""
    relations = getattr(cls, "__post_init__", None)

    def check(self: Any) -> None:
        for field in dataclasses.fields(self):
            if known := field.metadata.get("key"):
                known.check(field.name, getattr(self, field.name))
        if relations is not None:
            relations(self)

    setattr(cls, "__post_init__", check)
    return dataclass(frozen=True, kw_only=True)(cls)


def parse(
    cls: type[T], values: Mapping[str, object], where: object, spelled: Mapping[str, str] | None = None
) -> T:
    """Build dataclass `cls` from `values`, strictly.

    Nested dataclasses, `Literal`, `tuple[X, ...]`, `dict[str, X]` and `X | None` are understood; an int is
    accepted for a float. `spelled` has the reader's own name of a key where it is another. Raises CutawayError that
    names `where`, the key, and what was expected.
    """
    return _parse(cls, values, where, "", spelled or {})


def _parse(
    cls: type[T], values: Mapping[str, object], where: object, inside: str, spelled: Mapping[str, str]
) -> T:
    """`inside` is the table that `values` are: "" or, for example, "data.sources[0]"."""
    assert dataclasses.is_dataclass(cls)
    if not isinstance(values, Mapping):
        if not inside:
            raise CutawayError(
                "{where}: expected a table of keys, got {value}", where=where, value=brief(values)
            )
        raise _wrong(where, inside, values, say("a table of keys"))
    prefix = f"{inside}." if inside else ""
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls)}
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise CutawayError(
                "{where}: unknown key {key!r}{hint}; known keys: {known}",
                where=where,
                key=f"{prefix}{name}",
                hint=nearest(str(name), known),
                known=names_of(known),
            )
        shown = prefix + spelled.get(name, name)
        arguments[name] = _convert(hints[name], value, where, shown)
        if limits := known[name].metadata.get("key"):
            with about(where):
                limits.check(shown, arguments[name])
    for name, field in known.items():
        if field.default is MISSING and field.default_factory is MISSING and name not in arguments:
            known_as = field.metadata.get("key")
            meaning = say(": {about}", about=known_as.about) if known_as else ""
            raise CutawayError(
                "{where}: key {key!r} is missing{about}", where=where, key=f"{prefix}{name}", about=meaning
            )
    with about(say("{where}: {inside}", where=where, inside=inside) if inside else where):
        return cls(**arguments)


def _wrong(where: object, name: str, value: object, expected: Text) -> CutawayError:
    return CutawayError(
        "{where}: {name} is {value}, expected {expected}",
        where=where,
        name=name,
        value=brief(value),
        expected=expected,
    )


def _convert(hint: object, value: object, where: object, name: str) -> object:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        *choices, last = [choice for choice in arguments if choice is not type(None)]
        for choice in choices:
            try:
                return _convert(choice, value, where, name)
            except CutawayError:
                continue
        return _convert(last, value, where, name)
    if origin is Literal:
        if value in arguments and type(value) in {type(choice) for choice in arguments}:
            return value
        choices = [str(choice) for choice in arguments]
        close = nearest(value, choices) if isinstance(value, str) else ""
        raise _wrong(where, name, value, say("one of {choices}{hint}", choices=names_of(choices), hint=close))
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(where, name, value, say("a list"))
        return tuple(_convert(arguments[0], item, where, f"{name}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _wrong(where, name, value, say("a table of keys"))
        return {
            str(inner): _convert(arguments[1], item, where, f"{name}.{inner}")
            for inner, item in value.items()
        }
    assert isinstance(hint, type), f"{name}: {hint} is not a kind of field this reads"
    if dataclasses.is_dataclass(hint):
        return _parse(hint, typing.cast(Mapping[str, object], value), where, name, {})
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1023:
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise _wrong(where, name, value, _KINDS.get(hint, hint.__name__))
    return value


_KINDS: dict[type, Text] = {
    int: say("a whole number"),
    float: say("a number"),
    str: say("a text"),
    bool: say("true or false"),
}


def to_dict(instance: object) -> dict[str, object]:
    """A dataclass as plain values that JSON and TOML can hold (tuples become lists)."""
    assert dataclasses.is_dataclass(instance) and not isinstance(instance, type)
    return json.loads(json.dumps(dataclasses.asdict(instance)))


# The greatest sizes that are believed: more is a mistake, and would only end in a full memory.
LAYERS, WIDTH, POSITIONS, PIECES = 1_000, 65_536, 10_000_000, 10_000_000


@checked
class RopeScaling:
    """How rotary frequencies are stretched so that a model reads further than it was trained at first.

    `linear` divides every frequency by `factor` (Chen et al. 2023). `llama3` divides the slow ones only, with a
    smooth step between `low_freq_factor` and `high_freq_factor` turns within `original_max_len` (Llama 3.1).
    `yarn` does so by dimension, between `beta_fast` and `beta_slow` turns, and multiplies cos and sin by
    `attention_factor` (Peng et al. 2023). `dynamic` changes nothing within `max_len`, which is enforced here.
    """

    kind: Literal["linear", "llama3", "yarn", "dynamic"] = key("how frequencies are stretched")
    factor: float = key("how many times further the model is to read", gt=0)
    original_max_len: int | None = key(
        "llama3, yarn: length first trained at", default=None, ge=1, le=POSITIONS
    )
    low_freq_factor: float = key("llama3: turns up to which all is stretched", default=1.0, gt=0)
    high_freq_factor: float = key("llama3: turns from which nothing is stretched", default=4.0, gt=0)
    beta_fast: float = key("yarn: turns from which nothing is stretched", default=32.0, gt=0)
    beta_slow: float = key("yarn: turns up to which all is stretched", default=1.0, gt=0)
    attention_factor: float | None = key(
        "yarn: factor of cos and sin; not given: the paper's, 0.1·ln(factor) + 1", default=None, gt=0
    )

    def __post_init__(self) -> None:
        if self.kind not in ("llama3", "yarn"):
            return
        if self.original_max_len is None:
            raise CutawayError(
                "original_max_len is missing, expected the length first trained at for {kind}", kind=self.kind
            )
        if self.low_freq_factor >= self.high_freq_factor or self.beta_slow >= self.beta_fast:
            raise CutawayError(
                "low_freq_factor ({low}) must be below high_freq_factor ({high}), and beta_slow "
                "({slow}) below beta_fast ({fast})",
                low=self.low_freq_factor,
                high=self.high_freq_factor,
                slow=self.beta_slow,
                fast=self.beta_fast,
            )


# What an encoder may have of its own, and the decoder's name for it.
_OF_ENCODER = {
    "n_encoder_layers": "n_layers", "n_encoder_heads": "n_heads", "d_encoder_ff": "d_ff",
    "source_vocab_size": "vocab_size",
}  # fmt: skip


@checked
class ModelConfig:
    """The numbers and choices one Transformer is built from; nothing else is read when it runs.

    The three families share every field. Quirks of published architectures are numbers here, not flags:
    T5's unscaled scores are `attn_scale=1.0`, Marian's scaled embeddings `embed_scale=√d_model`.
    """

    family: Literal["encoder-decoder", "decoder-only", "encoder-only"] = key("which stacks there are")
    vocab_size: int = key("number of token ids", ge=1, le=PIECES)
    d_model: int = key("width of the residual stream", ge=1, le=WIDTH)
    n_layers: int = key("blocks of the decoder, or of the only stack", ge=1, le=LAYERS)
    n_heads: int = key("attention heads of a block", ge=1, le=1_024)
    d_ff: int = key("inner width of the feed-forward network", ge=1, le=1_000_000)
    n_encoder_layers: int | None = key(
        "encoder-decoder: blocks of the encoder; not given: n_layers", default=None, ge=1, le=LAYERS
    )
    n_encoder_heads: int | None = key(
        "encoder-decoder: attention heads of the encoder; not given: n_heads", default=None, ge=1, le=1_024
    )
    d_encoder_ff: int | None = key(
        "encoder-decoder: feed-forward width of the encoder; not given: d_ff",
        default=None,
        ge=1,
        le=1_000_000,
    )
    source_vocab_size: int | None = key(
        "encoder-decoder: token ids of the source where they are others; not given: vocab_size",
        default=None,
        ge=1,
        le=PIECES,
    )
    shared_tables: bool = key("encoder-decoder: source and target have one embedding matrix", default=True)
    n_kv_heads: int | None = key("heads of keys and values; not given: n_heads", default=None, ge=1, le=1_024)
    d_head: int | None = key("width of a head; not given: d_model/n_heads", default=None, ge=1, le=8_192)
    max_len: int = key("the context limit in tokens", default=512, ge=1, le=POSITIONS)
    norm: Literal["layernorm", "rmsnorm", "rmsnorm1p"] = key(
        "kind of norm; rmsnorm1p scales by 1 + weight (Gemma)", default="layernorm"
    )
    norm_eps: float = key("what a norm adds to the variance", default=1e-5, gt=0)
    norm_order: Literal["pre", "post", "sandwich"] = key(
        "norms before each sublayer, after it, or both (sandwich: Gemma 2)", default="pre"
    )
    final_norm: bool | None = key(
        "a norm after the last block; not given: all but post-norm models have one", default=None
    )
    position: Literal["learned", "sinusoidal", "rotary", "relative", "learned_relative", "alibi", "none"] = (
        key(
            "how positions are told; learned_relative: by a table and by a bias of the distance (MPNet)",
            default="rotary",
        )
    )
    position_offset: int = key("the first token's row of the position table", default=0, ge=0, le=1_000_000)
    # see nn.position.sinusoids
    sinusoid: Literal["halves", "halves_m2m"] = key("layout of sines and cosines", default="halves")
    rope_base: float = key("base of the rotary frequencies", default=10_000.0, gt=0)
    rope_local_base: float | None = key(
        "base of the layers with a window, unscaled (Gemma 3); not given: rope_base", default=None, gt=0
    )
    rope_scaling: RopeScaling | None = key("how rotary frequencies are stretched", default=None)
    window: int | None = key(
        "sliding window: a token sees itself and the window - 1 before it", default=None, ge=1, le=POSITIONS
    )
    window_layers: tuple[int, ...] = key(
        "layers that have the window; the others see everything", default=(), ge=0
    )
    relative_buckets: int = key("relative: number of distances told apart", default=32, ge=4, le=WIDTH)
    relative_max_distance: int = key(
        "relative: distance from which one bucket holds all", default=128, ge=1, le=POSITIONS
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = key(
        "activation of the feed-forward network", default="gelu"
    )
    gated: bool = key("gated feed-forward network (GLU): activation(gate(x)) · up(x)", default=False)
    attn_bias: bool = key("biases of the q, k, v and o projections", default=True)
    attn_out_bias: bool | None = key("bias of the o projection where it differs (Qwen2)", default=None)
    mlp_bias: bool = key("biases of the feed-forward network", default=True)
    n_experts: int = key("experts in place of the feed-forward network; 0: none", default=0, ge=0, le=WIDTH)
    n_experts_per_token: int = key("experts that work on a token", default=2, ge=1, le=WIDTH)
    d_expert: int | None = key("width of one expert; not given: d_ff", default=None, ge=1, le=1_000_000)
    experts_renormalised: bool = key("weights of the chosen experts are scaled to sum to 1", default=True)
    router_aux_coef: float = key(
        "training: factor of the loss that keeps experts equally busy (Fedus et al. 2022, §2.2)",
        default=0.001,
        ge=0,
        le=1_000,
    )
    dense_layers: tuple[int, ...] = key("layers that keep the plain network", default=(), ge=0)
    qk_norm: bool = key("a norm over each head's query and key (Qwen3)", default=False)
    attn_scale: float | None = key("factor of the scores; not given: 1/√d_head", default=None, gt=0)
    attn_softcap: float | None = key("cap c of c·tanh(score/c) before the mask", default=None, gt=0)
    embed_scale: float = key("factor of the embeddings", default=1.0, gt=0)
    embed_norm: bool = key("a norm after the embeddings", default=False)
    n_segments: int = key("embeddings of sentence A, B (BERT)", default=0, ge=0, le=1_000_000)
    tied: bool = key("the output matrix is the (target's) embedding matrix", default=True)
    head: Literal["linear", "masked", "none"] = key(
        "output head; masked: BERT's, with dense layer and norm; none: vectors, not words", default="linear"
    )
    head_activation: Literal["relu", "gelu", "gelu_tanh", "silu"] | None = key(
        "masked head: its activation; not given: activation", default=None
    )
    head_bias: bool = key("a bias of the output head", default=False)
    logit_scale: float = key("factor of the logits", default=1.0, gt=0)
    logit_softcap: float | None = key("cap c of c·tanh(logit/c)", default=None, gt=0)
    dropout: float = key("part of the activations dropped while training", default=0.0, ge=0, lt=1)
    pad_id: int | None = key("id of padding", default=None, ge=0)
    bos_id: int | None = key("id of the beginning of a text", default=None, ge=0)
    eos_id: int | None = key("id of the end of a text", default=None, ge=0)
    mask_id: int | None = key("id of the mask", default=None, ge=0)
    decoder_start_id: int | None = key("id that the decoder is given first", default=None, ge=0)

    def __post_init__(self) -> None:
        # buckets of one direction's exact half, as T5 counts where both directions are seen
        exact = self.relative_buckets // 4
        if self.relative_max_distance <= 2 * exact:
            raise CutawayError(
                "relative_max_distance is {distance}, expected more than half of relative_buckets ({buckets})",
                distance=self.relative_max_distance,
                buckets=self.relative_buckets,
            )
        for whole, part in (("d_model", "n_heads"), ("n_heads", "n_kv_heads")):
            size, divisor = getattr(self, whole), getattr(self, part)
            if divisor is not None and size % divisor and (part == "n_kv_heads" or self.d_head is None):
                raise CutawayError(
                    "{whole} ({size}) must be a multiple of {part} ({divisor})",
                    whole=whole,
                    size=size,
                    part=part,
                    divisor=divisor,
                )
        if self.position == "rotary" and self.head_width % 2:
            raise CutawayError("rotary positions need an even d_head, not {width}", width=self.head_width)
        # its dimensions are told apart by the logarithm of the base
        if self.rope_scaling is not None and self.rope_scaling.kind == "yarn" and self.rope_base == 1:
            raise CutawayError(
                "rope_base is 1, expected another number: yarn cannot stretch equal frequencies"
            )
        if self.position == "sinusoidal" and self.d_model % 2:
            raise CutawayError("sinusoidal positions need an even d_model, not {width}", width=self.d_model)
        for name in ("window_layers", "dense_layers"):
            layers = getattr(self, name)
            if len(set(layers)) != len(layers) or any(layer >= self.n_layers for layer in layers):
                raise CutawayError(
                    "{name} is {layers}, expected layer numbers 0 to {last}, each once",
                    name=name,
                    layers=brief(list(layers)),
                    last=self.n_layers - 1,
                )
        if (self.window is None) != (not self.window_layers):
            raise CutawayError(
                "window is {window} and window_layers is {layers}: give both or neither",
                window=self.window,
                layers=brief(list(self.window_layers)),
            )
        if self.window is not None and self.family != "decoder-only":
            raise CutawayError(
                "window belongs to the decoder-only family, not to {family}", family=self.family
            )
        if self.n_experts and self.n_experts_per_token > self.n_experts:
            raise CutawayError(
                "n_experts_per_token is {chosen}, more than there are experts (n_experts is {experts}); "
                "choose at most as many",
                chosen=self.n_experts_per_token,
                experts=self.n_experts,
            )
        of_encoder = [name for name in _OF_ENCODER if getattr(self, name) is not None]
        if of_encoder and self.family != "encoder-decoder":
            raise CutawayError(
                "{name} belongs to the encoder-decoder family; {family} has {own}",
                name=of_encoder[0],
                family=self.family,
                own=_OF_ENCODER[of_encoder[0]],
            )
        if self.source_vocab_size not in (None, self.vocab_size) and self.shared_tables:
            raise CutawayError(
                "source_vocab_size is {source} and vocab_size {target}, but one matrix for both (shared_tables) has "
                "one size",
                source=self.source_vocab_size,
                target=self.vocab_size,
            )
        for name in ("pad_id", "bos_id", "eos_id", "mask_id", "decoder_start_id"):
            value = getattr(self, name)
            if value is not None and value >= self.vocab_size:
                raise CutawayError(
                    "{name} is {value}, expected an id below vocab_size ({size})",
                    name=name,
                    value=value,
                    size=self.vocab_size,
                )
        if of_encoder:
            with about(say("the encoder")):
                _ = self.encoder_side

    @property
    def encoder_side(self) -> "ModelConfig":
        """The config with the encoder's own numbers in the place of the decoder's."""
        return dataclasses.replace(
            self,
            n_heads=self.n_heads if self.n_encoder_heads is None else self.n_encoder_heads,
            d_ff=self.d_ff if self.d_encoder_ff is None else self.d_encoder_ff,
            vocab_size=self.vocab_size if self.source_vocab_size is None else self.source_vocab_size,
            decoder_start_id=None,
            **dict.fromkeys(_OF_ENCODER),
        )

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
