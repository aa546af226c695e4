"""Sliding windows as config.json tells them: one number, and which layers it is for."""

from collections.abc import Callable, Mapping

from cutaway.checkpoint.table import Key, Value
from cutaway.config import ModelConfig

SLIDING, FULL = "sliding_attention", "full_attention"
Config = Mapping[str, Value]


def everywhere(default: Value) -> tuple[Key, ...]:
    """All layers see the window, where there is one (Mistral)."""
    return (
        Key(
            "sliding_window",
            "window_layers",
            default,
            read=lambda value, theirs: list(_all(theirs)) if value else [],
        ),
        Key("sliding_window", "window", default),
    )


def by_layer(
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
            raise ValueError(f"expected one word a layer, {len(_all(theirs))} of them")
        if unknown := [kind for kind in value if kind not in (SLIDING, FULL)]:
            raise ValueError(f"{unknown[0]!r} is not supported, only {SLIDING} and {FULL}")
        return [i for i, kind in enumerate(value) if kind == SLIDING]

    def kinds(_: Value, config: ModelConfig) -> list[str]:
        return [SLIDING if i in config.window_layers else FULL for i in range(config.n_layers)]

    keys = [
        Key("layer_types", "window_layers", None, read=layers, write=kinds),
        Key("sliding_window", "window", default,
            read=lambda value, theirs: value if layers(theirs.get("layer_types"), theirs) else None),
    ]  # fmt: skip
    if switch:
        keys.append(Key(switch, "window", write_only=True, write=lambda window, _: window is not None))
    return tuple(keys)


def _all(theirs: Config) -> range:
    layers = theirs["num_hidden_layers"]
    return range(layers) if isinstance(layers, int) and 0 <= layers <= 1000 else range(0)
