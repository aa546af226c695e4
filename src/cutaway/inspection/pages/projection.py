"""Pages of points drawn flat: any projection, and the tokens of a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.inspection.pages.geometry import PIECE, table_name
from cutaway.inspection.terms import left
from cutaway.page.blocks import Line, Page, Point, Points, Remark, Table, page
from cutaway.page.numbers import share
from cutaway.text.display import truncate
from cutaway.words import Text, say

if TYPE_CHECKING:
    from cutaway.inspection.geometry.projection import Projection
    from cutaway.inspection.geometry.token_map import TokenMap

MOST = 1500  # points that are drawn
NAMED = 150  # points up to which each is named
GROUPS = 5  # that can be told apart


def projection_page(found: "Projection") -> Page:
    n = len(found.coordinates)
    every = -(-n // MOST)
    names = found.labels if n <= NAMED else ()
    points = [
        Point(x, y, names[place * every] if names else "")
        for place, (x, y, *_) in enumerate(found.coordinates[::every].tolist())
    ]
    part = None
    if every > 1:
        shown = f"{len(points):,}"
        part = Remark(
            say("{shown} of the {n:,} points are drawn, evenly spaced in their order.", shown=shown, n=n)
        )
    return page(
        say("{n:,} points on their principal axes", n=n),
        [plot_of(found, points), part, *measures(found)],
    )


def token_map_page(found: "TokenMap") -> Page:
    where = table_name(found.table)
    n = len(found.ids)
    grouped = 1 < len(found.named) <= GROUPS and n > len(found.named)
    coordinates = found.projection.coordinates.tolist()
    points = [
        Point(x, y, piece, group if grouped else int(place >= len(found.named)))
        for place, ((x, y, *_), piece, group) in enumerate(
            zip(coordinates, found.pieces, found.groups, strict=True)
        )
    ]
    legend: list[Text] = []
    if grouped:
        legend = [say("{piece} and its nearest", piece=piece) for piece in found.pieces[: len(found.named)]]
    elif n > len(found.named):
        near = say("its nearest") if len(found.named) == 1 else say("their nearest")
        legend = [" ".join(found.pieces[: min(4, len(found.named))]), near]
    lines = [(place, other) for place, other in enumerate(found.nearest.tolist())]
    rows = [
        (truncate(piece, 16), "  ".join(f"{truncate(each.piece, 12)} {each.value:.3f}" for each in near))
        for piece, near in zip(found.pieces, found.neighbours, strict=True)
    ]
    return page(
        say("{n} tokens of {where}, drawn flat", n=n, where=where),
        [
            plot_of(found.projection, points, paths=lines, groups=legend),
            *measures(found.projection),
            Remark(
                say(
                    "The lines (in HTML and SVG) lead from each token to the drawn one that is nearest to "
                    "it in the full space: where a line is long, the drawing misleads."
                )
            ),
            Table(
                [left(PIECE), left(say("nearest in the whole table (cosine)"))],
                rows,
            ),
        ],
    )


def plot_of(
    found: "Projection",
    points: Sequence[Point],
    *,
    paths: Sequence[Sequence[int]] = (),
    groups: Sequence[Text] = (),
    arrows: bool = False,
) -> Points:
    """Points on the first two axes, each axis with its share of the variance."""
    across, down = (f"{100 * kept:.1f} %" for kept in found.variance_kept[:2])
    return Points(
        points,
        say("axis 1 ({across} of the variance)", across=across),
        say("axis 2 ({down})", down=down),
        paths,
        groups,
        arrows,
    )


def measures(found: "Projection") -> list[Line | Remark]:
    """What a drawing keeps of the space and how far it can be trusted."""
    axes = [say("axis {n}", n=n + 1) for n in range(len(found.variance_kept))]
    words: list[Text] = [
        say("{axis} {kept} ", axis=axis, kept=share(kept))
        for axis, kept in zip(axes, found.variance_kept, strict=True)
    ]
    words.append(say("together {total_kept}", total_kept=share(found.total_kept)))
    blocks: list[Line | Remark] = [Line(say("variance"), words)]
    if found.trustworthiness is not None:
        trust: list[Text] = [f"{found.trustworthiness:.3f} ", f"(k = {found.k})"]
        if found.trust_points < len(found.coordinates):
            trust.append(say("estimated on {trust_points:,} points", trust_points=found.trust_points))
        blocks.append(Line(say("trust"), trust))
    blocks.append(
        Remark(
            say(
                "variance: what is missing to 1 cannot be seen in the drawing. trust: trustworthiness "
                "(Venna & Kaski 2001), 1 where every neighbour in the drawing is a true one, about 0.5 "
                "where they are random."
            )
        )
    )
    if len(found.variance_kept) > 2:
        blocks.append(Remark(say("The third axis is not drawn.")))
    return blocks
