"""The page of a word in two sentences."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.pages.geometry import COSINE, table_name
from cutaway.inspection.pages.projection import measures, plot_of
from cutaway.inspection.terms import SIDES, left, right
from cutaway.page.blocks import Heading, Line, Matrix, Page, Point, Remark, Table, Tinted, page
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, say, say_in

if TYPE_CHECKING:
    from cutaway.inspection.geometry.context_drift import ContextDrift, WordPath
    from cutaway.inspection.geometry.vectors import Neighbour

FIRST, SECOND = say_in("text", "first"), say_in("text", "second")
STAGE = say("stage")
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
        left(say("nearest, first")),
        left(say("nearest, second")),
    )
    start = None
    if not found.same_pieces:
        start = Remark(
            say(
                "The two sentences cut the word into different pieces, so that its paths begin at "
                "different points."
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
        say("'{word}' in two sentences ({side})", word=found.word, side=side),
        [
            Line(FIRST, _marked(found.first)),
            Line(SECOND, _marked(found.second)),
            start,
            Table(columns, rows),
            Remark(
                say(
                    "cosine: of the word's vector in the one sentence and in the other; 1 is the same "
                    "direction. nearest: rows of {table} nearest to it. The model never compares the two: "
                    "exact at the embedding, approximate deeper down. Raw cosines are high wherever all "
                    "tokens share a direction.",
                    table=table,
                )
            ),
            Heading(say("The two paths")),
            plot,
            *measures(found.projection),
            Heading(say("How far each has come, and how far they have parted")),
            _cosines(found),
        ],
    )


def stage_name(tap: str) -> Phrase:
    """What a stage is, by the tap that it is read from."""
    if layer := re.search(r"layers\.(\d+)\.resid_post$", tap):
        return say("layer {layer}", layer=layer[1])
    if tap.endswith(".resid_pre"):
        return say("input")
    return say("final norm") if tap.endswith(".normed") else say("embedding")


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
    names = [say("{side}, start", side=side) for side in (FIRST, SECOND)]
    names.append(say("{first}, {second}", first=FIRST, second=SECOND))
    stages = [stage_name(stage) for stage in found.stages]
    pairs = say("between which two vectors")
    return Matrix(values, names, stages, pairs, STAGE, COSINE, "signed", drawn=True)
