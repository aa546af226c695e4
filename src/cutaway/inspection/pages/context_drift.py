"""The page of a word in two sentences."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.pages.geometry import COSINE, table_name
from cutaway.inspection.pages.projection import measures, plot_of
from cutaway.inspection.pages.words import SIDES, left, right
from cutaway.page.blocks import Heading, Line, Matrix, Page, Point, Remark, Table, Tinted, page
from cutaway.page.locale import Both, Text
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from cutaway.inspection.geometry.context_drift import ContextDrift, WordPath
    from cutaway.inspection.geometry.vectors import Neighbour

FIRST, SECOND = Both("first", "第一句"), Both("second", "第二句")
STAGE = Both("stage", "阶段")
NEAREST = 3  # listed at each stage
_COLUMNS = 8  # of one of them


def context_drift_page(found: "ContextDrift") -> Page:
    side = SIDES[found.side]
    stages = [stage_name(stage) for stage in found.stages]
    table = table_name(found.table)
    rows: list[tuple[Text, ...]] = [
        (stage, f"{cosine:.3f}", _near(first), _near(second))
        for stage, cosine, first, second in zip(
            stages, found.cosines.tolist(), found.first.neighbours, found.second.neighbours, strict=True
        )
    ]
    columns = (
        left(STAGE),
        right(COSINE),
        left(Both("nearest, first", "近邻：第一句")),
        left(Both("nearest, second", "近邻：第二句")),
    )
    start = None
    if not found.same_pieces:
        start = Remark(
            Both(
                "The two sentences cut the word into different pieces, so that its paths begin at different points.",
                "两句话把这个词切成了不同的词块，所以两条路径的起点不同。",
            )
        )
    points = [
        Point(x, y, stage, group)
        for group, path in enumerate((found.first, found.second))
        for stage, (x, y) in zip(stages, path.path.tolist(), strict=True)
    ]
    n = len(stages)
    paths = (range(n), range(n, 2 * n))
    plot = plot_of(found.projection, points, paths=paths, groups=(FIRST, SECOND), arrows=True)
    return page(
        Both(f"'{found.word}' in two sentences ({side.en})", f"“{found.word}”在两句话中（{side.zh}）"),
        [
            Line(FIRST, _marked(found.first)),
            Line(SECOND, _marked(found.second)),
            start,
            Table(columns, rows),
            Remark(
                Both(
                    "cosine: of the word's vector in the one sentence and in the other; 1 is the same direction. "
                    f"nearest: rows of {table.en} nearest to it. The model never compares the two: exact at the "
                    "embedding, approximate deeper down. Raw cosines are high wherever all tokens share a direction.",
                    "余弦：这个词的向量在两句话之间的余弦；1 表示方向相同。近邻："
                    f"{table.zh}中离它最近的行。模型自己从不作这种比较：在嵌入处是精确的，层越深越近似。"
                    "若所有词块有共同的方向，余弦会普遍偏高。",
                )
            ),
            Heading(Both("The two paths", "两条路径")),
            plot,
            *measures(found.projection),
            Heading(
                Both("How far each has come, and how far they have parted", "各自走了多远，彼此差了多远")
            ),
            _cosines(found),
        ],
    )


def stage_name(tap: str) -> Both:
    """What a stage is, by the tap that it is read from."""
    if layer := re.search(r"layers\.(\d+)\.resid_post$", tap):
        return Both(f"layer {layer[1]}", f"第 {layer[1]} 层")
    if tap.endswith(".resid_pre"):
        return Both("input", "输入")
    return Both("final norm", "末端归一化") if tap.endswith(".normed") else Both("embedding", "嵌入")


def _near(items: "Sequence[Neighbour]") -> str:
    return "  ".join(truncate(each.piece, _COLUMNS) for each in items[:NEAREST])


def _marked(path: "WordPath") -> list[Text | Tinted]:
    """The whole text, the word's own pieces on a colour."""
    return [Tinted(piece, 0.3) if place in path.positions else piece for place, piece in enumerate(path.text)]


def _cosines(found: "ContextDrift") -> Matrix:
    """How far the word has come in each sentence, and how far the two have parted."""
    values = np.array(
        [found.first.static_cosines.tolist(), found.second.static_cosines.tolist(), found.cosines.tolist()]
    )
    names = [Both(f"{side.en}, start", f"{side.zh}与起点") for side in (FIRST, SECOND)]
    names.append(Both(f"{FIRST.en}, {SECOND.en}", "两句之间"))
    stages = [stage_name(stage) for stage in found.stages]
    pairs = Both("between which two vectors", "哪两个向量之间")
    return Matrix(values, names, stages, pairs, STAGE, COSINE, "signed", drawn=True)
