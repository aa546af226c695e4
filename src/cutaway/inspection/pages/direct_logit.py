"""Pages of direct logit attribution: what wrote a logit."""

from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.terms import LAYER, left, right
from cutaway.page.blocks import Block, Heading, Matrix, Page, Prose, Remark, Table, page
from cutaway.page.numbers import number
from cutaway.words import Phrase, Text, say

if TYPE_CHECKING:
    from cutaway.inspection.attribution.direct_logit import Component, LogitAttribution

TOP = 10  # components that are listed
_KINDS = {
    "token": say("token vector"),
    "position": say("position vector"),
    "segment": say("segment vector"),
    "attention bias": say("attention bias"),
    "feed-forward": say("feed-forward"),
    "norm bias": say("norm bias"),
    "output bias": say("output bias"),
}
_SHARE = say("logits")
_NOT = say(
    "A share is what a component wrote into the residual stream, read by the token's row "
    "of the output matrix, with the scales of the norms held. It says what was written "
    "directly, not what the logit would lose without it: later layers read it too."
)


def logit_page(found: "LogitAttribution", top: int = TOP) -> Page:
    """The strongest components, and all heads and feed-forward networks by layer."""
    listed = sorted(found.components, key=lambda each: -abs(each.share))[:top]
    rest = found.total - sum(each.share for each in listed)
    others = len(found.components) - len(listed)
    rows: list[tuple[Text, Text, Text]] = [
        (f"{each.share:+.3f}", "" if each.layer is None else str(each.layer), _named(each)) for each in listed
    ]
    if others:
        rows.append((f"{rest:+.3f}", "", say("the {others} others together", others=others)))
    columns = (
        right(say("share")),
        right(LAYER),
        left(say("written by")),
    )
    caveat = None
    if found.approximate is not None:
        caveat = Remark(say("To keep in mind: {approximate}.", approximate=found.approximate))
    return page(
        _title(found),
        [
            Prose(
                say("sum"),
                say(
                    "{total:.4f} of {count} shares; logit {logit:.4f}, difference {difference:.1e}",
                    total=found.total,
                    count=len(found.components),
                    logit=found.logit,
                    difference=found.difference,
                ),
            ),
            _capped(found),
            Table(columns, rows),
            *_by_layer(found),
            Remark(_NOT),
            caveat,
        ],
    )


def _title(found: "LogitAttribution") -> Phrase:
    where = say("at token {position}, '{piece}'", position=found.position, piece=found.piece)
    if found.against is None:
        return say("What wrote the logit of '{token}' {where}", token=found.token, where=where)
    return say(
        "What wrote the logit of '{token}' minus that of '{against}' {where}",
        token=found.token,
        against=found.against,
        where=where,
    )


def _capped(found: "LogitAttribution") -> Prose | None:
    """The model's own logit, where a soft cap makes it another than the one explained."""
    if abs(found.model_logit - found.logit) <= 1e-4 * max(1.0, abs(found.logit)):
        return None
    after = number(found.model_logit)
    return Prose(
        say("capped"),
        say("{after} is what the model gives after its soft cap", after=after),
    )


def _named(each: "Component") -> Text:
    if each.number is not None:
        kind = say("head") if each.kind == "head" else say("expert")
        return say("{kind} {number} of {place}", kind=kind, number=each.number, place=each.place)
    kind = _KINDS[each.kind]
    return say("{kind}, {place}", kind=kind, place=each.place)


def _by_layer(found: "LogitAttribution") -> list[Block]:
    """Layers down; across every head of self-attention and cross-attention, the feed-forward network (its experts
    together), and the biases of the layer."""
    cells: dict[tuple[int, str], float] = {}
    cross = any(each.place.endswith("cross_attn") for each in found.components)
    for each in found.components:
        if each.layer is not None:
            name = _column(each, cross)
            cells[each.layer, name] = cells.get((each.layer, name), 0.0) + each.share
    layers = sorted({layer for layer, _ in cells})
    names = sorted({name for _, name in cells}, key=_order)
    values = np.array([[cells.get((layer, name), 0.0) for name in names] for layer in layers])
    heads = say("h heads")
    if cross:
        heads = say("s self-attention, c cross-attention")
    return [
        Heading(say("By layer ({heads}, ff feed-forward, b biases)", heads=heads)),
        Matrix(
            values,
            [str(layer) for layer in layers],
            names,
            LAYER,
            say("component"),
            _SHARE,
            "signed",
        ),
    ]


def _column(each: "Component", cross: bool) -> str:
    if each.kind == "head":
        side = ("c" if each.place.endswith("cross_attn") else "s") if cross else "h"
        return f"{side}{each.number}"
    return "ff" if each.kind in ("feed-forward", "expert") else "b"


def _order(name: str) -> tuple[int, int]:
    """In the order of the data's way."""
    if name in ("ff", "b"):
        return ("ff", "b").index(name) + 2, 0
    return int(name[0] == "c"), int(name[1:])
