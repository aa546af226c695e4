"""Pages of feed-forward networks: neurons at work on a token, and one neuron over a text."""

from collections.abc import Sequence
from math import exp, isnan
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.terms import SIDES, TOKEN, WEIGHT, left, right
from cutaway.page.blocks import Atlas, Block, Column, Heading, Line, Matrix, Page, Remark, Shaded, Table, page
from cutaway.page.numbers import share
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, say

if TYPE_CHECKING:
    from cutaway.inspection.layers.firing import NeuronFiring
    from cutaway.inspection.layers.memory import Memory, Neuron, Word

ACTIVATION = say("activation")
NEURON = say("neuron")
ACROSS = 64  # neurons in a row of the picture of all


def memory_page(found: "Memory") -> Page:
    side, words = SIDES[found.side], bool(found.before)
    columns: list[Column] = [left(NEURON), right(WEIGHT), right(say("length"))]
    if words:
        promotes = say("promotes (suppresses, where weight < 0)")
        columns += [right("logit"), left(promotes)]
    written: list[Block] = [
        Remark(say("weight: what multiplies the neuron's value vector, length: of what it writes."))
    ]
    if words:
        written = [
            Heading(say("What the model would say here")),
            Line(say("before"), _words(found.before)),
            Line(say("after"), _words(found.after)),
            Remark(
                say(
                    "weight: what multiplies the neuron's value vector, length: of what it writes, logit: "
                    "its direct part in the logit of '{token}'. promotes: the tokens that one unit of it "
                    "favours by the way straight to the output; later layers are not in it.",
                    token=found.token,
                )
            ),
        ]
    kept = None
    if (reason := found.approximate) is not None:
        kept = Remark(say("To keep in mind: {reason}.", reason=reason))
    return page(
        say(
            "Neurons of {side} layer {layer} that write most at token {position}, '{piece}'",
            side=side,
            layer=found.layer,
            position=found.position,
            piece=found.piece,
        ),
        [
            Table(columns, [_row(each, words) for each in found.neurons]),
            *written,
            kept,
            Heading(_of_all(found)),
            _all(found),
            Heading(say("The listed neurons over the text")),
            _over_text(found),
        ],
    )


def _row(each: "Neuron", words: bool) -> list[Text]:
    row: list[Text] = [name_of(each), f"{each.coefficient:#.4g}", f"{each.strength:#.4g}"]
    if words:
        assert each.logit is not None
        row += [f"{each.logit:+.3f}", "  ".join(truncate(word.piece, 12) for word in each.promotes)]
    return row


def name_of(neuron: "Neuron") -> str:
    """Its number, after that of its expert where there are experts."""
    return str(neuron.number) if neuron.expert is None else f"{neuron.expert}:{neuron.number}"


def _words(words: "Sequence[Word]") -> list[str]:
    return [f"{truncate(word.piece, 12)} {share(exp(word.value))} " for word in words]


def _of_all(found: "Memory") -> Phrase:
    if not found.experts:
        return say("Every neuron of the layer at this token")
    return say("Every neuron of the experts at work at this token, expert by expert")


def _all(found: "Memory") -> Matrix | Atlas:
    """What multiplies each value vector, in rows of 64; where the last row is not full, nothing."""
    weight = say("weight of the value vector")
    coefficients = found.coefficients.detach().cpu().double().numpy()
    width = coefficients.shape[1]
    across = min(ACROSS, width)
    rows = -(-width // across)
    padded = np.pad(coefficients, ((0, 0), (0, rows * across - width)), constant_values=-np.inf)
    firsts = [str(row * across) for row in range(rows)]
    offsets = [f"+{n}" for n in range(across)]
    of_row = say("number of the first")
    maps = [
        Matrix(each.reshape(rows, across), firsts, offsets, of_row, NEURON, weight, "signed", drawn=True)
        for each in padded
    ]
    if len(maps) == 1:
        return maps[0]
    return Atlas([str(expert) for expert in found.experts], maps, len(maps))


def _over_text(found: "Memory") -> Matrix:
    values = found.activations.double().numpy()  # (N, T)
    return Matrix(
        np.where(np.isnan(values), -np.inf, values),  # an expert that was not at work is shown as hidden
        [name_of(each) for each in found.neurons],
        found.pieces,
        NEURON,
        TOKEN,
        ACTIVATION,
        "signed",
        drawn=True,
    )


def neuron_firing_page(found: "NeuronFiring") -> Page:
    side, pieces = SIDES[found.side], found.tokens.pieces
    name = str(found.neuron) if found.expert is None else f"{found.expert}:{found.neuron}"
    values = found.activations.float().tolist()
    worked = [place for place, value in enumerate(values) if not isnan(value)]
    given = None
    if len(worked) < len(pieces):
        n, all_of = len(worked), len(pieces)
        given = Remark(
            say(
                "Its expert was given {n} of the {all_of} tokens; the others have no activation.",
                n=n,
                all_of=all_of,
            )
        )
    return page(
        say("Where neuron {name} of {side} layer {layer} fires", name=name, side=side, layer=found.layer),
        [
            Shaded(
                TOKEN, [pieces[place] for place in worked], [values[place] for place in worked], ACTIVATION
            )
            if worked
            else None,
            given,
        ],
    )
