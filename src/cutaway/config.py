"""Configuration as frozen, validated values, read strictly from TOML and JSON.

`parse` turns a mapping into a dataclass: unknown keys are errors that list the known ones, and a value of the
wrong type is named with its place. `ModelConfig` is everything a model is built from.
"""

import dataclasses
import json
import math
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from cutaway.errors import CutawayError, nearest

T = TypeVar("T")


# The greatest sizes that are believed: a config that asks for more is a mistake, and would only end in a full memory.
MOST = {
    "vocab_size": 10_000_000, "d_model": 65_536, "n_layers": 1_000, "n_encoder_layers": 1_000, "n_heads": 1_024,
    "n_kv_heads": 1_024, "d_head": 8_192, "d_ff": 1_000_000, "max_len": 10_000_000, "position_offset": 1_000_000,
    "n_segments": 1_000_000, "relative_buckets": 65_536, "relative_max_distance": 10_000_000,
}  # fmt: skip


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
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_eps: float = 1e-5
    norm_order: Literal["pre", "post"] = "pre"
    final_norm: bool | None = None  # a norm after the last block: None means pre-norm has it, post-norm not
    position: Literal["learned", "sinusoidal", "rotary", "relative", "alibi", "none"] = "rotary"
    position_offset: int = 0  # row of the position table that the first token takes
    sinusoid: Literal["halves", "halves_m2m"] = "halves"  # see nn.position.sinusoids
    rope_base: float = 10_000.0
    relative_buckets: int = 32
    relative_max_distance: int = 128
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "gelu"
    gated: bool = False  # GLU: activation(gate(x)) · up(x)
    attn_bias: bool = True  # biases of the q, k, v and o projections
    mlp_bias: bool = True
    qk_norm: bool = False  # an RMSNorm over each head's query and key (Qwen3)
    attn_scale: float | None = None  # None means 1/√d_head
    embed_scale: float = 1.0
    embed_norm: bool = False
    n_segments: int = 0  # sentence A/B embeddings (BERT)
    tied: bool = True  # the output matrix is the embedding matrix
    head: Literal["linear", "masked"] = "linear"  # masked: BERT's dense, activation, norm before the output
    head_bias: bool = False
    logit_scale: float = 1.0
    dropout: float = 0.0
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    mask_id: int | None = None
    decoder_start_id: int | None = None

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            value, least = getattr(self, name), 0 if name in ("position_offset", "n_segments") else 1
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} is {value}, expected {least} to {most:,}")
        for name in ("norm_eps", "rope_base", "embed_scale", "logit_scale", "attn_scale"):
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
    def encoder_layers(self) -> int:
        return self.n_layers if self.n_encoder_layers is None else self.n_encoder_layers

    @property
    def has_final_norm(self) -> bool:
        return self.norm_order == "pre" if self.final_norm is None else self.final_norm


def parse(cls: type[T], values: Mapping[str, object], where: str) -> T:
    """Build dataclass `cls` from `values`, strictly.

    Nested dataclasses, `Literal`, `tuple[X, ...]`, `dict[str, X]` and `X | None` are understood; an int is
    accepted for a float. Raises CutawayError that names `where`, the key, and what was expected.
    """
    assert dataclasses.is_dataclass(cls)
    if not isinstance(values, Mapping):
        raise CutawayError(f"{where}: expected a table of keys, got {_show(values)}")
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls)}
    for key in values:
        if key not in known:
            hint = nearest(str(key), known)
            raise CutawayError(f"{where}: unknown key {key!r}{hint}; known keys: {', '.join(known)}")
    arguments = {key: _convert(hints[key], value, f"{where}.{key}") for key, value in values.items()}
    for name, field in known.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in arguments:
            raise CutawayError(f"{where}: key {name!r} is missing")
    try:
        return cls(**arguments)
    except CutawayError:
        raise
    except ValueError as error:
        raise CutawayError(f"{where}: {error}") from error


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
            f"{where} is {_show(value)}, expected one of {', '.join(map(str, arguments))}{hint_text}"
        )
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise CutawayError(f"{where} is {_show(value)}, expected a list")
        return tuple(_convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise CutawayError(f"{where} is {_show(value)}, expected a table of keys")
        return {str(key): _convert(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    assert isinstance(hint, type), f"{where}: {hint} is not a kind of field this reads"
    if dataclasses.is_dataclass(hint):
        return parse(hint, typing.cast(Mapping[str, object], value), where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise CutawayError(f"{where} is {_show(value)}, expected {names.get(hint, hint.__name__)}")
    return value


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def to_dict(instance: object) -> dict[str, object]:
    """A dataclass as plain values that JSON and TOML can hold (tuples become lists)."""
    assert dataclasses.is_dataclass(instance) and not isinstance(instance, type)
    return json.loads(json.dumps(dataclasses.asdict(instance)))


def read_text(path: Path) -> str:
    """A UTF-8 file's text, without a byte order mark. Raises CutawayError naming file and line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CutawayError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CutawayError(
            f"{path}:{line}: not valid UTF-8 (byte {error.start}); save it as UTF-8"
        ) from error


def read_toml(path: Path) -> dict[str, object]:
    """A TOML file as nested dicts. Raises CutawayError naming file and line."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise CutawayError(f"{path}: not valid TOML: {error}") from error


def read_json(path: Path) -> dict[str, object]:
    """A JSON file that holds one object. Duplicate keys and NaN are refused: two readers could disagree."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise CutawayError(f"{path}: key {key!r} stands there twice")
            found[key] = value
        return found

    def constant(name: str) -> object:
        raise CutawayError(f"{path}: {name} is not JSON")

    try:
        value = json.loads(read_text(path), object_pairs_hook=unique, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise CutawayError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise CutawayError(f"{path}: nested too deeply") from error
    if not isinstance(value, dict):
        raise CutawayError(f"{path}: expected a JSON object, got {_show(value)}")
    return value


def override(values: Mapping[str, object], assignments: Sequence[str], where: str) -> dict[str, object]:
    """`values` with `table.key=value` assignments applied; values are TOML (bare words are taken as text)."""
    result: dict[str, object] = json.loads(json.dumps(values, default=str))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise CutawayError(f"{where}: {assignment!r} is not of the form key=value or table.key=value")
        *tables, key = path.strip().split(".")
        place = result
        for table in tables:
            inner = place.setdefault(table, {})
            if not isinstance(inner, dict):
                raise CutawayError(f"{where}: {path!r} goes through {table!r}, which is not a table")
            place = inner
        try:
            place[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            place[key] = text.strip()
    return result
