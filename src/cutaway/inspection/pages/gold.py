"""Page of alignment error rates."""

from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.terms import HEAD, LAYER, left, right
from cutaway.page.blocks import Line, Matrix, Page, Remark, Table, page
from cutaway.words import Text, say

if TYPE_CHECKING:
    from cutaway.inspection.alignment.error_rate import AlignmentError
    from cutaway.inspection.alignment.gold import GoldComparison

LISTED = 5  # heads


_COLUMNS = (
    right("AER"),
    right(say("precision")),
    right(say("recall")),
    right(say("links")),
)
_AER = say("AER: alignment error rate (Och & Ney 2003), 0 where all links agree with those that people drew.")


def error_page(found: "AlignmentError") -> Page:
    _, *cells = _row("", found)
    return page(say("Links against gold links"), [Table(_COLUMNS, [cells]), Remark(_AER)])


def gold_page(found: "GoldComparison") -> Page:
    ranked = sorted(
        (_rate(each), layer, head, each)
        for layer, row in enumerate(found.heads)
        for head, each in enumerate(row)
    )
    rows: list[list[Text]] = [
        _row(say("what it depends on"), found.effect),
        _row(say("mean of all heads"), found.mean),
        *(
            _row(say("head {layer}.{head}", layer=layer, head=head), each)
            for _, layer, head, each in ranked[:LISTED]
        ),
    ]
    rates = np.array([[_rate(each) for each in row] for row in found.heads])
    n_layers, n_heads = rates.shape
    return page(
        say("Against the links that people drew"),
        [
            Line(say("source"), found.source),
            Line(say("translation"), found.target),
            Table((left(say("links read from")), *_COLUMNS), rows),
            Matrix(
                rates,
                [str(layer) for layer in range(n_layers)],
                [str(head) for head in range(n_heads)],
                LAYER,
                HEAD,
                say("alignment error rate"),
                drawn=True,
            ),
            Remark(
                say(
                    "AER: alignment error rate (Och & Ney 2003), 0 where all links agree. Each target word "
                    "is linked to the source word of its greatest weight, or of the token whose hiding "
                    "costs it most."
                )
            ),
        ],
    )


def _rate(error: "AlignmentError") -> float:
    """None, where there is no link at all, counts as the worst."""
    return 1.0 if error.aer is None else error.aer


def _row(name: Text, error: "AlignmentError") -> list[Text]:
    shown = ["–" if value is None else f"{value:.2f}" for value in (error.aer, error.precision, error.recall)]
    return [name, *shown, str(error.predicted)]
