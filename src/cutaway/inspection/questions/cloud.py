"""A whole vocabulary as points in space: where its rows lie, and the groups that they fall into."""

# Shapes: V rows, D width, G groups.

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor
from torch.nn.functional import normalize

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.errors import CutawayError
from cutaway.inspection.direction_groups import direction_groups
from cutaway.inspection.options import Option, Progress
from cutaway.inspection.principal_axes import MOST, PrincipalAxes, measures, pca, plot_of
from cutaway.inspection.question import question
from cutaway.inspection.terms import left, right
from cutaway.inspection.vectors import TableName, VectorTable, space_of, table_name
from cutaway.page.blocks import Page, Point, Remark, Table, page
from cutaway.page.drawn import Drawn
from cutaway.words import Phrase, Text, say

LANDMARKS = 12  # words that a group is told by
_FREQUENT = 6  # those of a list of words are among the first of so many parts of it


@dataclass(frozen=True, repr=False)
class Cloud(Drawn):
    """Every row of a table, made of length 1, by the three directions in which the rows vary most (see
    `PrincipalAxes`), and in groups of like directions, which are found in the full space (`direction_groups`).

    Three directions show a small part of D dimensions: rows far from each other may be drawn side by side. The groups,
    drawn by colour, tell some of what is lost. `landmarks` are the rows of a group nearest to its centre, of a list of
    words only among its first sixth, the frequent ones.
    """

    table: str
    pieces: tuple[str, ...]  # V
    groups: Tensor  # (V,) int64
    landmarks: tuple[tuple[int, ...], ...]  # G lists of ids, the nearest to the centre first
    axes: PrincipalAxes  # its coordinates are (V, 3)
    told: tuple[Phrase, ...]  # what the drawing keeps, and what its colours are

    def page(self) -> Page:
        return _page(self)


@question(say("The whole vocabulary as a cloud of points, in groups."), "space")
def cloud(
    space: Loaded | WordVectors | VectorTable,
    *,
    table: Annotated[TableName, Option(say("The table of the model whose rows are drawn."))] = "embedding",
    groups: Annotated[int, Option(say("How many groups the rows are put into."), at_least=1, at_most=5)] = 5,
    k: Annotated[int, Option(say("The neighbourhood that trustworthiness looks at."), at_least=1)] = 10,
    progress: Progress | None = None,
) -> Cloud:
    """Draw all rows of a table; see `Cloud`.

    Raises CutawayError for a table of fewer than four rows or three columns, and as `pca` does.
    """
    rows = space_of(space, table)
    count, width = rows.vectors.shape
    if count < 4 or width < 3:
        raise CutawayError(
            "the table has {count} rows of {width} numbers, expected at least 4 of at least 3",
            count=count,
            width=width,
        )
    vectors = normalize(rows.vectors.detach().cpu().float(), dim=1)
    drawn = pca(vectors, dims=3, k=min(k, (count - 1) // 2), progress=progress)
    found, centres = direction_groups(vectors, groups, progress)
    frequent = -(-count // _FREQUENT) if isinstance(space, WordVectors) else count
    near = vectors[:frequent] @ centres.T
    landmarks: list[tuple[int, ...]] = []
    for group in range(len(centres)):
        own = (found[:frequent] == group).nonzero().flatten()
        order = near[own, group].argsort(descending=True, stable=True)[:LANDMARKS]
        landmarks.append(tuple(own[order].tolist()))
    pieces = tuple(map(rows.label, range(count)))
    return Cloud(rows.name, pieces, found, tuple(landmarks), drawn, tuple(_told(drawn)))


def _told(drawn: PrincipalAxes) -> Iterator[Phrase]:
    kept = f"{100 * drawn.total_kept:.1f} %"
    yield say(
        "The three directions drawn keep {kept} of the variance; the rest cannot be seen here.", kept=kept
    )
    if drawn.trustworthiness is not None:
        trust = f"{drawn.trustworthiness:.3f}"
        yield say(
            "Trustworthiness {trust} (Venna & Kaski 2001; k = {k}, {points:,} points asked): 1 where all that are near "
            "in the drawing are near in truth, about 0.5 where it is chance. The neighbours that are listed are always "
            "those of the full space.",
            trust=trust,
            k=drawn.k,
            points=drawn.trust_points,
        )
    yield COLOURS


COLOURS = say(
    "Rows of one colour point in like directions of the full space (spherical k-means): a colour tells what the "
    "drawing cannot."
)


# Its page.


def _page(found: Cloud) -> Page:
    count = len(found.pieces)
    every = -(-count // MOST)
    chosen = range(0, count, every)
    coordinates, groups = found.axes.coordinates.tolist(), found.groups.tolist()
    points = [Point(coordinates[id][0], coordinates[id][1], "", groups[id]) for id in chosen]
    named = [" ".join(found.pieces[id] for id in ids) for ids in found.landmarks]
    sizes = found.groups.bincount(minlength=len(named)).tolist()
    legend: list[Text] = [" ".join(found.pieces[id] for id in ids[:3]) for ids in found.landmarks]
    rows = [
        (str(group), f"{size:,}", words)
        for group, (size, words) in enumerate(zip(sizes, named, strict=True), 1)
    ]
    shown = f"{len(points):,}"
    part = say("{shown} of the {n:,} points are drawn, evenly spaced in their order.", shown=shown, n=count)
    return page(
        say("{n:,} rows of {where} as a cloud", n=count, where=table_name(found.table)),
        [
            plot_of(found.axes, points, groups=legend),
            Remark(part) if every > 1 else None,
            *measures(found.axes),
            Table([right(say("group")), right(say("rows")), left(say("near its centre"))], rows),
            COLOURS,
        ],
    )
