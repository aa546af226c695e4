"""Config keys that many architectures share: control tokens, activations, rotary positions, sliding windows."""

from collections.abc import Callable, Iterable, Mapping

from cutaway.checkpoint.table import Config, Key, Value
from cutaway.config import ModelConfig, RopeScaling, to_dict
from cutaway.errors import CutawayError
from cutaway.words import names_of


def unsupported(value: Value, known: Iterable[str]) -> CutawayError:
    return CutawayError("{value!r} is not supported, only {known}", value=value, known=names_of(known))


# Control tokens.


def control_ids(pad: Value = None, bos: Value = None, eos: Value = None, **more: Value) -> tuple[Key, ...]:
    """The keys of control tokens, with the defaults that an architecture's own configuration has; `more` are other
    roles."""
    roles = {"pad": pad, "bos": bos, "eos": eos, **more}
    return tuple(control_id(role, id) for role, id in roles.items())


def control_id(role: str, default: Value) -> Key:
    """The key of one control token: one id, the first where a file lists several ends (all of them stand in
    generation_config.json), None for a negative one, by which old files say that there is none, and for a default
    that lies outside the vocabulary: it is another's."""

    def read(value: Value, theirs: Config) -> Value:
        first = value[0] if isinstance(value, list) and value else value
        size = theirs.get("vocab_size")
        if not isinstance(first, int) or not isinstance(size, int):
            return first
        return None if first < 0 or (first == default and first >= size) else first

    return Key(f"{role}_token_id", f"{role}_id", default, read=read)


# Activations: theirs, ours.

ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "silu",
    "swish": "silu", "gelu_python": "gelu", "gelu_python_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
}  # fmt: skip


def activation_key(theirs: str, default: str) -> Key:
    def read(value: Value, _: Config) -> str:
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise unsupported(value, ACTIVATIONS)
        return ACTIVATIONS[value]

    # Of two names for one function, a file is written with the first, or with the architecture's own.
    written = {ours: name for name, ours in reversed(ACTIVATIONS.items())} | {ACTIVATIONS[default]: default}
    return Key(theirs, "activation", default, read=read, write=lambda value, _: written[str(value)])


# Rotary positions: `rope_parameters`, and the older `rope_theta` with `rope_scaling`.

_LENGTH = "original_max_position_embeddings"  # their name of original_max_len; the other names are the same
# What each kind of scaling has.
_READ = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "beta_fast", "beta_slow", "attention_factor"),
}
_UNUSED = ("rope_type", "type", "rope_theta", _LENGTH, "partial_rotary_factor")


def rope_keys(base: float = 10_000.0, scaled: bool = True) -> tuple[Key, ...]:
    """The keys of an architecture whose layers all rotate alike; `base` is its own default. Not `scaled`: it reads
    names of scalings in another sense, and none of them is read here."""

    def scaling(value: Value, theirs: Config) -> Value:
        found = _scaling(_of(value, theirs), theirs)
        if found is not None and not scaled:
            raise unsupported(
                _of(value, theirs).get("rope_type", _of(value, theirs).get("type")), ("default",)
            )
        return found

    return (
        Key("rope_parameters", "rope_base", None, read=lambda value, theirs: _base(_of(value, theirs), theirs, base)),
        Key("rope_parameters", "rope_scaling", None, read=scaling,
            write=lambda _, config: _written(config.rope_base, config.rope_scaling)),
        *_OLDER_KEYS,
    )  # fmt: skip


def local_rope_keys(base: float, local_base: float) -> tuple[Key, ...]:
    """The keys of an architecture whose layers with a window have a base of their own (Gemma 3)."""

    def part(value: Value, theirs: Config, layers: str) -> Mapping[str, Value]:
        rope = _of(value, theirs)
        inner = rope.get(layers, {} if layers == "sliding_attention" else rope)
        if not isinstance(inner, Mapping):
            raise TypeError(inner)
        return inner

    def local(value: Value, theirs: Config) -> Value:
        given = part(value, theirs, "sliding_attention")
        if given.get("rope_type", "default") != "default":
            raise unsupported(given["rope_type"], ["default"])
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


def _of(value: Value, theirs: Config) -> Config:
    rope = theirs.get("rope_scaling") or value or {}
    if not isinstance(rope, Mapping):
        raise TypeError(rope)
    return rope


def _base(rope: Config, theirs: Config, default: float) -> Value:
    return rope.get("rope_theta", theirs.get("rope_theta", default))


def _scaling(rope: Config, theirs: Config) -> Value:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", theirs.get("partial_rotary_factor", 1.0)) != 1.0:
        raise CutawayError("partial_rotary_factor other than 1 is not supported")
    if kind == "default":
        return None
    if not isinstance(kind, str) or kind not in _READ:
        raise unsupported(kind, ("default", *_READ))
    if further := sorted(set(rope) - {*_READ[kind], *_UNUSED}):
        raise CutawayError("{key} is not supported for rope_type {kind!r}", key=further[0], kind=kind)
    found = {name: rope[name] for name in _READ[kind] if rope.get(name) is not None}
    if kind in ("llama3", "yarn"):
        length = rope.get(_LENGTH)
        found["original_max_len"] = theirs.get("max_position_embeddings") if length is None else length
    return {"kind": kind, **found}


def _written(base: float | None, scaling: RopeScaling | None) -> dict[str, Value]:
    if scaling is None:
        return {"rope_type": "default", "rope_theta": base}
    values = {**to_dict(scaling), _LENGTH: scaling.original_max_len}
    found = {name: values[name] for name in (*_READ[scaling.kind], _LENGTH) if values[name] is not None}
    return {"rope_type": scaling.kind, "rope_theta": base, **found}


# What older readers look for.
_OLDER_KEYS = (
    Key("rope_theta", "rope_base", write_only=True),
    Key("rope_scaling", "rope_scaling", write_only=True,
        write=lambda _, config: config.rope_scaling and _written(config.rope_base, config.rope_scaling)),
)  # fmt: skip


# Sliding windows: one number, and which layers it is for.

SLIDING, FULL = "sliding_attention", "full_attention"


def window_keys(default: Value, switch: str | None = None) -> tuple[Key, ...]:
    """All layers see the window, where there is one (Mistral). `switch` is a key that must be true for there to be
    one."""

    def window(value: Value, theirs: Config) -> Value:
        return None if switch and not theirs.get(switch) else value

    keys = (
        Key("sliding_window", "window_layers", default,
            read=lambda value, theirs: [] if window(value, theirs) is None else list(_all(theirs))),
        Key("sliding_window", "window", default, read=window),
    )  # fmt: skip
    return (*keys, _switch(switch)) if switch else keys


def _switch(switch: str) -> Key:
    return Key(switch, "window", write_only=True, write=lambda window, _: window is not None)


def window_keys_by_layer(
    sliding: Callable[[int, Config], bool], default: Value, switch: str | None = None
) -> tuple[Key, ...]:
    """`layer_types` says which layers see the window, or else `sliding(layer, config)`. `switch` is a key that must
    be true for there to be a window at all."""

    def layers(value: Value, theirs: Config) -> list[int]:
        if not theirs.get("sliding_window", default) or (switch and not theirs.get(switch)):
            return []
        if value is None:
            return [i for i in _all(theirs) if sliding(i, theirs)]
        if not isinstance(value, list) or len(value) != len(_all(theirs)):
            raise CutawayError("expected one word for each of {count} layers", count=len(_all(theirs)))
        if unknown := [kind for kind in value if kind not in (SLIDING, FULL)]:
            raise unsupported(unknown[0], (SLIDING, FULL))
        return [i for i, kind in enumerate(value) if kind == SLIDING]

    def kinds(_: Value, config: ModelConfig) -> list[str]:
        return [SLIDING if i in config.window_layers else FULL for i in range(config.n_layers)]

    keys = [
        Key("layer_types", "window_layers", None, read=layers, write=kinds),
        Key("sliding_window", "window", default,
            read=lambda value, theirs: value if layers(theirs.get("layer_types"), theirs) else None),
    ]  # fmt: skip
    return (*keys, _switch(switch)) if switch else tuple(keys)


def _all(theirs: Config) -> range:
    layers = theirs["num_hidden_layers"]
    return range(layers) if isinstance(layers, int) and 0 <= layers <= 1000 else range(0)
