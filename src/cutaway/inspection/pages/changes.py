"""Pages of changes: what a run loses when something in it is changed, and what it writes then."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.terms import ATTENTIONS, HEAD, LAYER, NATS, PROBABILITY, SIDES, TOKEN, left, right
from cutaway.page.blocks import (
    Atlas,
    Bar,
    Block,
    Edit,
    Edited,
    Heading,
    Line,
    Matrix,
    Page,
    Prose,
    Remark,
    Table,
    Tinted,
    page,
)
from cutaway.page.numbers import nats, share
from cutaway.text.display import truncate
from cutaway.words import Phrase, say, say_in

if TYPE_CHECKING:
    from cutaway.inspection.changes.comparison import Comparison, Departure, VectorChange
    from cutaway.inspection.changes.output import Output
    from cutaway.inspection.changes.sweep import HeadEffect, HeadSweep, Unit

RANKED = 8  # heads
MOVED = 1e-5  # of its length: how far a residual stream must move to have moved
# What an effect is counted in, and how much of its own unit that is.
UNITS: "dict[Unit, tuple[Phrase, float]]" = {
    "nats": (NATS, 1.0),
    "1 - cosine": (say("1 − cosine, ‰"), 1000.0),
}
POOLINGS = {
    "mean": say("the mean of all tokens"),
    "cls": say("the first token's vector"),
    "max": say("the greatest of all tokens, number by number"),
    "last": say("the last token's vector"),
}


def sweep_page(found: "HeadSweep", top: int = RANKED) -> Page:
    first, *others = effect_maps(found)
    done = say("result set to 0")
    if found.set == "mean":
        done = say("result replaced by its mean over the tokens")
    if found.unit == "nats":
        what = say(
            "Fall of the output's log-probability ({base:.2f} in all) with one head's {done}. "
            "Below 0: more probable without it.",
            base=found.base,
            done=done,
        )
    else:
        what = say(
            "1 minus the cosine between the text's vector and what it is with one head's {done}, "
            "in thousandths: 0 where it points the same way.",
            done=done,
        )
    return page(
        first[0],
        [
            first[1],
            *(block for title, matrix in others for block in (Heading(title), matrix)),
            Heading(say("The heads that the output depends on most")),
            ranking(found.ranking[:top], found.unit),
            Remark(
                say(
                    "{what} The output: {output}. Dependence on this one head, whose work others may take "
                    "over; not its purpose.",
                    what=what,
                    output=found.output,
                )
            ),
        ],
    )


def effect_maps(found: "HeadSweep", drawn: bool = False) -> list[tuple[Phrase, Matrix]]:
    """For each side a title and the effects of its heads, layers down, with one scale for all."""
    unit, scale = UNITS[found.unit]
    greatest = scale * max(float(grid.abs().max()) for grid in found.effects.values())
    maps = []
    for side, grid in found.effects.items():
        n_layers, n_heads = grid.shape
        title = say(
            "{attentions}: what the output loses without each head ({unit})",
            attentions=ATTENTIONS[side],
            unit=unit,
        )
        values = scale * grid.detach().cpu().double().numpy()
        layers, heads = [str(layer) for layer in range(n_layers)], [f"h{head}" for head in range(n_heads)]
        maps.append(
            (title, Matrix(values, layers, heads, LAYER, HEAD, unit, "signed", drawn, greatest or None))
        )
    return maps


def effect_atlas(found: "HeadSweep") -> Matrix | Atlas:
    """The effects of all heads with one scale for all sides."""
    maps = [matrix for _, matrix in effect_maps(found, drawn=True)]
    if len(maps) == 1:
        return maps[0]
    strongest = list(found.effects).index(found.ranking[0].side)
    return Atlas([ATTENTIONS[side] for side in found.effects], maps, len(maps), strongest)


def ranking(heads: "Sequence[HeadEffect]", unit: "Unit") -> Table:
    """Heads with their effects, the strongest as the longest bar."""
    counted, scale = UNITS[unit]
    longest = max((each.effect for each in heads), default=0.0)
    rows = [
        (
            SIDES[each.side],
            f"{each.layer}.{each.head}",
            nats(scale * each.effect),
            Bar(each.effect / longest if longest > 0 else 0.0),
        )
        for each in heads
    ]
    effect = say("effect ({counted})", counted=counted)
    columns = (left(say("attention")), right(say("layer.head")), right(effect), left(""))
    return Table(columns, rows)


def output_page(found: "Output") -> Page:
    words = [
        Tinted(piece, math.exp(log_prob), hint=share(math.exp(log_prob)))
        for piece, log_prob in zip(found.pieces, found.log_probs, strict=True)
    ]
    return page(
        say("What the model writes"),
        [
            Prose(say("text"), found.text),
            Line(say("tokens"), words, tint=PROBABILITY),
            Line(say("score"), [f"{found.score:.3f}"]),
        ],
    )


def comparison_page(found: "Comparison", changes: Sequence[Mapping[str, object]]) -> Page:
    """`changes` as JSON objects."""
    blocks: list[Block] = [Prose(say("change"), json.dumps(change, ensure_ascii=False)) for change in changes]
    if found.base is not None and found.changed is not None:
        blocks += _written(found, found.base, found.changed)
    blocks += _fates(found, changes) if found.vector is None else _vector(found.vector)
    blocks += [_way(departure) for departure in found.departures]
    for departure in found.departures:
        blocks += _departure_map(departure)
    return page(say("The same text without and with the changes"), blocks)


def _written(found: "Comparison", base: "Output", changed: "Output") -> list[Block]:
    same = say("the same, token by token")
    edits: list[tuple[Edit, Sequence[str], Sequence[str]]] = [
        (edit.kind, edit.base_pieces, edit.changed_pieces) for edit in found.token_edits
    ]
    return [
        Heading(say("What the model writes")),
        Prose(say("without"), base.text),
        Prose(say("with"), changed.text),
        Remark(same) if base.ids == changed.ids else Edited(edits),
    ]


def _fates(found: "Comparison", changes: Sequence[Mapping[str, object]]) -> list[Block]:
    """The tokens of the unchanged output, each before and after."""
    differences: list[float] = found.difference.tolist()
    finite = [abs(each) for each in differences if math.isfinite(each)]
    reach = max(finite, default=0.0) or 1.0
    rows = []
    for piece, before, after, difference, divergence in zip(
        found.pieces,
        found.base_log_probs.exp().tolist(),
        found.changed_log_probs.exp().tolist(),
        differences,
        found.divergence.tolist(),
        strict=True,
    ):
        tint = max(-1.0, min(1.0, difference / reach))
        change = Tinted(nats(difference), tint, "signed")
        rows.append((truncate(piece, 20), share(before), share(after), change, f"{divergence:.3f}"))
    columns = (
        left(TOKEN),
        right(say("without")),
        right(say("with")),
        right(say_in("of a number", "change")),
        right("KL"),
    )
    total = nats(sum(differences))
    both_ways = all(departure.side == "encoder" for departure in found.departures)
    given = say("those before it")
    opened = any((change["op"], change.get("set")) == ("mask", "open") for change in changes)
    if both_ways:
        given = say("the whole text")
    return [
        Heading(say("How the tokens of the unchanged output fare")),
        Table(
            columns,
            rows,
            tint=say("change of log-probability, ±{reach:.3g} nats", reach=reach),
        ),
        Remark(
            say(
                "without, with: probability, given {given}; change: of its logarithm, in nats, {total} "
                "in all; KL: divergence of the whole distribution, in nats. A trained model has never "
                "met such changes: they show dependence, not purpose.",
                given=given,
                total=total,
            )
        ),
        *([Remark(_OPENED)] if opened else []),
    ]


_OPENED = say(
    "With the mask open, a token sees itself and those after it here, where the whole text "
    "is given. What the model writes it writes word by word: there the mask can only open "
    "what stands in the prompt."
)


def _vector(found: "VectorChange") -> list[Block]:
    pooling = POOLINGS[found.pooling]
    size = len(found.base)
    return [
        Heading(say("What becomes of the text's vector")),
        Line(say("1 − cosine"), [f"{found.distance:.4g}"]),
        Remark(
            say(
                "The vector of {size:,} numbers is {pooling}. 0: it points the same way; 1: at a right "
                "angle. A trained model has never met such changes: they show dependence, not purpose.",
                size=size,
                pooling=pooling,
            )
        ),
    ]


def _way(departure: "Departure") -> Prose:
    """Where the residual stream parts from the unchanged one."""
    first = departure.first(MOVED)
    if first is None:
        where = say("residual stream does not move")
    else:
        farthest = f"{100 * float(departure.relative[-1].max()):.3g} %"
        at = say("at its input")
        if first > 0:
            at = say("in layer {first}", first=first - 1)
        where = say(
            "residual stream first moves {at}; at its end by up to {farthest} of its length",
            at=at,
            farthest=farthest,
        )
    return Prose(SIDES[departure.side], where)


def _departure_map(departure: "Departure") -> list[Block]:
    if departure.first(MOVED) is None:
        return []
    side, values = SIDES[departure.side], departure.relative.detach().cpu().double().numpy()
    borders = [str(border) for border in range(len(values))]
    return [
        Heading(say("How far the residual stream of the {side} has moved", side=side)),
        Matrix(
            values,
            borders,
            departure.tokens.pieces,
            say("layers passed"),
            say("token read"),
            "‖x' − x‖ / ‖x‖",
            drawn=True,
            greatest=float(values.max(initial=1.0, where=np.isfinite(values))),
        ),
    ]
