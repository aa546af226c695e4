"""The names of activation functions in config.json."""

from collections.abc import Mapping

from cutaway.checkpoint.table import Key, Value

NAMES = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def activation_key(theirs: str, default: str) -> Key:
    def read(value: Value, _: Mapping[str, Value]) -> str:
        if not isinstance(value, str) or value not in NAMES:
            raise ValueError(f"{value!r} is not supported, only {', '.join(NAMES)}")
        return NAMES[value]

    # Of two names for one function, a file is written with the first, or with the architecture's own.
    written = {ours: name for name, ours in reversed(NAMES.items())} | {NAMES[default]: default}
    return Key(theirs, "activation", default, read=read, write=lambda value, _: written[str(value)])
