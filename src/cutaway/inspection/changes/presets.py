"""Lists of changes to try first, each with the number to look at: what a textbook says of a part, seen without it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cutaway.config import ModelConfig
from cutaway.words import Phrase, say


@dataclass(frozen=True)
class Preset:
    """Changes as `lists` reads them, for the models of one config. `about` says what they do, `look` what to look at.

    `changes` is None where a run has to tell them: the head that its `sweep` ranks first is switched off. `lacks` says
    why a model cannot be given them.
    """

    name: str
    title: Phrase
    about: Phrase
    look: Phrase
    changes: Sequence[Mapping[str, object]] | None
    lacks: Phrase | None = None


def presets(config: ModelConfig) -> tuple[Preset, ...]:
    """All of them, in the order of a reader's way in."""
    return tuple(_presets(config))


def _presets(config: ModelConfig) -> Iterator[Preset]:
    words = config.head != "none"

    def look(at: Phrase) -> Phrase:
        return at if words else say("Look at 1 − cosine: how far the text's vector turns.")

    yield Preset(
        "scale",
        say("No 1/√d"),
        say(
            "Attention scores are not divided by √d before the softmax, which then gives more of the weight to the "
            "highest."
        ),
        look(say("Look at KL: the words may stay, but the model is less sure of them, or too sure.")),
        [{"op": "scale"}],
        say("this model does not divide its scores") if config.attn_scale == 1.0 else None,
    )
    yield Preset(
        "positions",
        say("No positions"),
        say("The model is not told where in the text each word stands."),
        look(
            say("Look at the words, and at the tokens with the greatest KL: those that depend on the order.")
        ),
        [{"op": "pos", "set": "none"}],
        say("this model is told no positions anyway") if config.position == "none" else None,
    )
    yield Preset(
        "future",
        say("See the future"),
        say("While it predicts a token, the model also sees that token and those after it."),
        look(
            say(
                "Look at the log-probabilities: they may even fall, since the model never learned to use what lies "
                "ahead. What it writes by itself may stay: there nothing stands ahead yet."
            )
        ),
        [{"op": "mask", "set": "open"}],
        say("an encoder sees the whole text anyway") if config.family == "encoder-only" else None,
    )
    yield Preset(
        "strongest",
        say("Without the strongest head"),
        say(
            "Every attention head is switched off in turn; the one that the output depends on most stays off."
        ),
        look(
            say(
                "Look at the change of log-probability: the words may stay, since other heads take over. Then switch "
                "off the head of that number in every layer."
            )
        ),
        None,
    )
    yield Preset(
        "uniform",
        say("Uniform attention"),
        say("Every head gives all the tokens that it sees the same weight: nothing is picked out any more."),
        look(say("Look at the words: how much of them is left without choosing where to look?")),
        [{"op": "pattern", "side": "*", "layer": "*", "head": "*", "kind": "uniform"}],
    )
    yield Preset(
        "first",
        say("Only the first layer"),
        say("All layers but the first pass their input on as it came."),
        look(
            say("Look at the words, and at the map of the residual stream: how much do the later layers add?")
        ),
        _first_alone(config),
        say("this model has one layer") if max(_depths(config).values()) == 1 else None,
    )


def _first_alone(config: ModelConfig) -> list[dict[str, object]]:
    depths = _depths(config)
    if len({*depths.values()}) == 1:
        depths = {"*": config.n_layers}
    return [
        {"op": "layer", "side": side, "layer": layer}
        for side, depth in depths.items()
        for layer in range(1, depth)
    ]


def _depths(config: ModelConfig) -> dict[str, int]:
    """The number of layers of each stack."""
    match config.family:
        case "encoder-decoder":
            return {"encoder": config.encoder_layers, "decoder": config.n_layers}
        case "encoder-only":
            return {"encoder": config.n_layers}
    return {"decoder": config.n_layers}
