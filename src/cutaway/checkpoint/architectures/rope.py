"""Rotary positions as config.json tells them: `rope_parameters`, and the older `rope_theta` with `rope_scaling`."""

from collections.abc import Mapping

from cutaway.checkpoint.table import Key, Value
from cutaway.config import ModelConfig, RopeScaling, to_dict

# ours: theirs, for the kinds of scaling that have them
_NAMES = {
    "kind": "rope_type",
    "factor": "factor",
    "original_max_len": "original_max_position_embeddings",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
}
_READ = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "original_max_len", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "original_max_len", "beta_fast", "beta_slow", "attention_factor"),
}
_UNUSED = ("rope_theta", "type", "original_max_position_embeddings", "partial_rotary_factor")


def rope_keys(base: float = 10_000.0) -> tuple[Key, ...]:
    """The keys of an architecture whose layers all rotate alike; `base` is its own default."""
    return (
        Key("rope_parameters", "rope_base", None, read=lambda value, theirs: _base(_of(value, theirs), theirs, base)),
        Key("rope_parameters", "rope_scaling", None, read=lambda value, theirs: _scaling(_of(value, theirs), theirs),
            write=lambda _, config: _written(config.rope_base, config.rope_scaling)),
        *_OLDER_KEYS,
    )  # fmt: skip


def local_rope_keys(base: float, local_base: float) -> tuple[Key, ...]:
    """The keys of an architecture whose layers with a window have a base of their own (Gemma 3)."""

    def part(value: Value, theirs: Mapping[str, Value], layers: str) -> Mapping[str, Value]:
        rope = _of(value, theirs)
        inner = rope.get(layers, {} if layers == "sliding_attention" else rope)
        if not isinstance(inner, Mapping):
            raise TypeError(inner)
        return inner

    def local(value: Value, theirs: Mapping[str, Value]) -> Value:
        given = part(value, theirs, "sliding_attention")
        if given.get("rope_type", "default") != "default":
            raise ValueError(f"rope_type {given['rope_type']!r} of layers with a window is not supported")
        return given.get("rope_theta", theirs.get("rope_local_base_freq", local_base))

    def written(_: Value, config: ModelConfig) -> Value:
        return {
            "full_attention": _written(config.rope_base, config.rope_scaling),
            "sliding_attention": _written(config.rope_local_base, None),
        }

    return (
        Key("rope_parameters", "rope_base", None,
            read=lambda value, theirs: _base(part(value, theirs, "full_attention"), theirs, base)),
        Key("rope_parameters", "rope_scaling", None,
            read=lambda value, theirs: _scaling(part(value, theirs, "full_attention"), theirs)),
        Key("rope_parameters", "rope_local_base", None, read=local, write=written),
        Key("rope_local_base_freq", "rope_local_base", write_only=True),
        *_OLDER_KEYS,
    )  # fmt: skip


def _of(value: Value, theirs: Mapping[str, Value]) -> Mapping[str, Value]:
    rope = value or theirs.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise TypeError(rope)
    return rope


def _base(rope: Mapping[str, Value], theirs: Mapping[str, Value], default: float) -> Value:
    return rope.get("rope_theta", theirs.get("rope_theta", default))


def _scaling(rope: Mapping[str, Value], theirs: Mapping[str, Value]) -> Value:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", theirs.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ValueError("partial_rotary_factor other than 1 is not supported")
    if kind == "default":
        return None
    if not isinstance(kind, str) or kind not in _READ:
        raise ValueError(f"rope_type {kind!r} is not supported, only default, {', '.join(_READ)}")
    known = {_NAMES[name] for name in _READ[kind]}
    if further := sorted(set(rope) - known - {"rope_type", *_UNUSED}):
        raise ValueError(f"{further[0]} is not supported for rope_type {kind!r}")
    found = {name: rope[_NAMES[name]] for name in _READ[kind] if rope.get(_NAMES[name]) is not None}
    if "original_max_len" in _READ[kind]:
        found.setdefault("original_max_len", theirs.get("max_position_embeddings"))
    return {"kind": kind, **found}


def _written(base: float | None, scaling: RopeScaling | None) -> dict[str, Value]:
    if scaling is None:
        return {"rope_type": "default", "rope_theta": base}
    values = to_dict(scaling)
    found = {_NAMES[name]: values[name] for name in _READ[scaling.kind] if values[name] is not None}
    return {"rope_type": scaling.kind, "rope_theta": base, **found}


_OLDER_KEYS = (  # what older readers look for
    Key("rope_theta", "rope_base", write_only=True),
    Key("rope_scaling", "rope_scaling", write_only=True,
        write=lambda _, config: config.rope_scaling and _written(config.rope_base, config.rope_scaling)),
)  # fmt: skip
