"""Pages of points drawn flat: any projection, and the tokens of a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.inspection.pages.geometry import PIECE, table_name
from cutaway.inspection.pages.words import left
from cutaway.page.blocks import Line, Page, Point, Points, Remark, Table, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import share
from cutaway.text.display import truncate

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
            Both(
                f"{shown} of the {n:,} points are drawn, evenly spaced in their order.",
                f"{n:,} 个点中按次序等距画出 {shown} 个。",
            )
        )
    return page(
        Both(f"{n:,} points on their principal axes", f"{n:,} 个点在主轴上的投影"),
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
        legend = [
            Both(f"{piece} and its nearest", f"{piece} 及其近邻")
            for piece in found.pieces[: len(found.named)]
        ]
    elif n > len(found.named):
        near = (
            Both("its nearest", "它的近邻") if len(found.named) == 1 else Both("their nearest", "它们的近邻")
        )
        legend = [" ".join(found.pieces[: min(4, len(found.named))]), near]
    lines = [(place, other) for place, other in enumerate(found.nearest.tolist())]
    rows = [
        (truncate(piece, 16), "  ".join(f"{truncate(each.piece, 12)} {each.value:.3f}" for each in near))
        for piece, near in zip(found.pieces, found.neighbours, strict=True)
    ]
    return page(
        Both(f"{n} tokens of {where.en}, drawn flat", f"{where.zh}中 {n} 个词块的平面图"),
        [
            plot_of(found.projection, points, paths=lines, groups=legend),
            *measures(found.projection),
            Remark(
                Both(
                    "The lines (in HTML and SVG) lead from each token to the drawn one that is nearest to it in "
                    "the full space: where a line is long, the drawing misleads.",
                    "连线（HTML 与 SVG 中）把每个词块连到图上词块中、"
                    "在完整空间里离它最近的那一个：连线长的地方，图会误导人。",
                )
            ),
            Table(
                [left(PIECE), left(Both("nearest in the whole table (cosine)", "全表中真正的近邻（余弦）"))],
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
        Both(f"axis 1 ({across} of the variance)", f"第 1 轴（方差的 {across}）"),
        Both(f"axis 2 ({down})", f"第 2 轴（{down}）"),
        paths,
        groups,
        arrows,
    )


def measures(found: "Projection") -> list[Line | Remark]:
    """What a drawing keeps of the space and how far it can be trusted."""
    axes = [Both(f"axis {n + 1}", f"第 {n + 1} 轴") for n in range(len(found.variance_kept))]
    words: list[Text] = [
        Both(f"{axis.en} {share(kept)} ", f"{axis.zh} {share(kept)} ")
        for axis, kept in zip(axes, found.variance_kept, strict=True)
    ]
    words.append(Both(f"together {share(found.total_kept)}", f"合计 {share(found.total_kept)}"))
    blocks: list[Line | Remark] = [Line(Both("variance", "保留方差"), words)]
    if found.trustworthiness is not None:
        trust: list[Text] = [f"{found.trustworthiness:.3f} ", f"(k = {found.k})"]
        if found.trust_points < len(found.coordinates):
            trust.append(
                Both(f"estimated on {found.trust_points:,} points", f"由 {found.trust_points:,} 个点估计")
            )
        blocks.append(Line(Both("trust", "可信度"), trust))
    blocks.append(
        Remark(
            Both(
                "variance: what is missing to 1 cannot be seen in the drawing. trust: trustworthiness (Venna & Kaski "
                "2001), 1 where every neighbour in the drawing is a true one, about 0.5 where they are random.",
                "保留方差：与 1 的差额在图上看不到。可信度（trustworthiness，Venna 与 Kaski 2001）："
                "图上的近邻全是真近邻时为 1，全凭偶然时约为 0.5。",
            )
        )
    )
    if len(found.variance_kept) > 2:
        blocks.append(Remark(Both("The third axis is not drawn.", "第三轴未画出。")))
    return blocks
