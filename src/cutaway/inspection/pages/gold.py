"""Page of alignment error rates."""

from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.pages.words import HEAD, LAYER, left, right
from cutaway.page.blocks import Line, Matrix, Page, Remark, Table, page
from cutaway.page.locale import Both, Text

if TYPE_CHECKING:
    from cutaway.inspection.alignment.error_rate import AlignmentError
    from cutaway.inspection.alignment.gold import GoldComparison

LISTED = 5  # heads


_COLUMNS = (
    right("AER"),
    right(Both("precision", "精确率")),
    right(Both("recall", "召回率")),
    right(Both("links", "链接数")),
)
_AER = Both(
    "AER: alignment error rate (Och & Ney 2003), 0 where all links agree with those that people drew.",
    "AER：对齐错误率（Och 与 Ney 2003），链接与人工标注全部一致时为 0。",
)


def error_page(found: "AlignmentError") -> Page:
    _, *cells = _row("", found)
    return page(
        Both("Links against gold links", "链接与人工对齐对照"), [Table(_COLUMNS, [cells]), Remark(_AER)]
    )


def gold_page(found: "GoldComparison") -> Page:
    ranked = sorted(
        (_rate(each), layer, head, each)
        for layer, row in enumerate(found.heads)
        for head, each in enumerate(row)
    )
    rows: list[list[Text]] = [
        _row(Both("what it depends on", "实际依赖"), found.effect),
        _row(Both("mean of all heads", "所有头的平均"), found.mean),
        *(
            _row(Both(f"head {layer}.{head}", f"头 {layer}.{head}"), each)
            for _, layer, head, each in ranked[:LISTED]
        ),
    ]
    rates = np.array([[_rate(each) for each in row] for row in found.heads])
    n_layers, n_heads = rates.shape
    return page(
        Both("Against the links that people drew", "与人工对齐对照"),
        [
            Line(Both("source", "原文"), found.source),
            Line(Both("translation", "译文"), found.target),
            Table((left(Both("links read from", "链接取自")), *_COLUMNS), rows),
            Matrix(
                rates,
                [str(layer) for layer in range(n_layers)],
                [str(head) for head in range(n_heads)],
                LAYER,
                HEAD,
                Both("alignment error rate", "对齐错误率"),
                drawn=True,
            ),
            Remark(
                Both(
                    "AER: alignment error rate (Och & Ney 2003), 0 where all links agree. Each target word is linked "
                    "to the source word of its greatest weight, or of the token whose hiding costs it most.",
                    "AER：对齐错误率（Och 与 Ney 2003），链接全部一致时为 0。每个译文词链接到权重最大的原文词，"
                    "或遮住后它损失最大的原文词。",
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
