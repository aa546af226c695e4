"""Pages of a model's tables as points in space: neighbours and analogies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.inspection.pages.words import left, right
from cutaway.page.blocks import Bar, Column, Heading, Page, Point, Points, Prose, Remark, Table, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import number

if TYPE_CHECKING:
    from cutaway.inspection.geometry.analogy import Analogy, Plane, Ranked
    from cutaway.inspection.geometry.vectors import Measure, Neighbour, Neighbours, VectorTable

TABLES = {
    "embedding": Both("the embedding table", "嵌入表"),
    "unembedding": Both("the unembedding table", "解嵌入表（输出矩阵）"),
}
PIECE = Both("piece", "词块")
COSINE = Both("cosine", "余弦")
MEASURES = {
    "cosine": COSINE,
    "dot": Both("dot product", "点积"),
    "euclid": Both("distance", "距离"),
}


def table_page(found: "VectorTable") -> Page:
    rows, width = found.vectors.shape
    size = Both(f"{rows:,} vectors of {width} numbers", f"{rows:,} 个向量，各 {width} 个分量")
    tied = Prose(Both("tied", "共享"), Both("with the model's other table", "与模型的另一张表共享"))
    return page(
        Both(f"The {found.name} table of token vectors", f"词向量表（{found.name}）"),
        [
            Prose(Both("size", "大小"), size),
            tied if found.tied else None,
            Remark(
                Both(
                    "Ask it: neighbours(table, token), analogy(table, a, b, c), token_map(table, tokens).",
                    "接着提问：neighbours(table, token)、analogy(table, a, b, c)、token_map(table, tokens)。",
                )
            ),
        ],
    )


def table_name(name: str) -> Both:
    """A table of the model, or one that a user made."""
    return TABLES.get(name, Both(f"the {name} table", f"{name} 表"))


def neighbours_page(found: "Neighbours") -> Page:
    where = table_name(found.table)
    if found.id is None:
        title = Both(f"Nearest to the vector in {where.en}", f"{where.zh}中离该向量最近的行")
    else:
        title = Both(
            f"Nearest to {found.piece} (id {found.id}) in {where.en}",
            f"{where.zh}中离 {found.piece}（id {found.id}）最近的词块",
        )
    compared = f"{found.compared:,}"
    measure = MEASURES[found.measure]
    return page(
        title,
        [
            neighbour_table(found.items, found.measure),
            Remark(
                Both(
                    f"{measure.en.capitalize()} in the full space, all {compared} rows compared. Near: used alike, "
                    "which is not the same as meaning alike: opposites are near, too.",
                    f"在完整空间中按{measure.zh}与全部 {compared} 行比较。相近指用法相似，不等于意思相同："
                    "反义词也会相近。",
                )
            ),
        ],
    )


def neighbour_table(items: "Sequence[Neighbour]", measure: "Measure" = "cosine") -> Table:
    """Rows of a table with their nearness; a cosine also as a bar."""
    columns: list[Column] = [left(PIECE), right("id"), right(MEASURES[measure])]
    if measure != "cosine":
        return Table(columns, [(each.piece, str(each.id), number(each.value)) for each in items])
    rows = [(each.piece, str(each.id), f"{each.value:.3f}", Bar(max(0.0, each.value))) for each in items]
    return Table([*columns, left("")], rows)


def analogy_page(found: "Analogy") -> Page:
    a, b, c = found.inputs
    where = table_name(found.table)
    sum_of = f"{a.piece} - {b.piece} + {c.piece}"
    listed: list[tuple[Text, Ranked]] = [("a", a), ("b", b), ("c", c)]
    if found.expected is not None:
        listed.append((Both("expected", "预期"), found.expected))
    columns = (
        left(Both("word", "角色")),
        left(PIECE),
        right(Both("rank", "名次")),
        right(Both("without a, b, c", "除去 a、b、c")),
        right(COSINE),
    )
    rows = [
        (name, each.piece, f"{each.rank:,}", _or_left_out(each.rank_without_inputs), f"{each.cosine:.3f}")
        for name, each in listed
    ]
    plane, d = found.plane, found.plane.corners[3].piece
    of_length = (
        Both("Vectors of length 1. ", "向量长度均为 1。")
        if found.normalised
        else Both("Vectors as they are. ", "向量未作缩放。")
    )
    cosine, (first, second) = f"{plane.cosine:.2f}", (f"{length:.2f}" for length in plane.lengths)
    return page(
        Both(f"{sum_of}: nearest in {where.en}", f"{sum_of}：{where.zh}中最近的词块"),
        [
            neighbour_table(found.answers),
            Heading(Both("Where the words themselves stand", "这几个词自己排在哪里")),
            Table(columns, rows),
            Remark(
                Both(
                    f"{of_length.en}a - b and d - c, d being {d}: cosine {cosine}, lengths {first} and {second}; 1 "
                    "and equal lengths would be a parallelogram. The answers leave a, b and c out: where c would be "
                    "first, this rule made the answer.",
                    f"{of_length.zh}a - b 与 d - c（d 是 {d}）：余弦 {cosine}，长度 {first} 和 {second}；"
                    "余弦为 1 且长度相等才是平行四边形。答案里除去了 a、b、c："
                    "若 c 本来排第一，答案就是这条规则造成的。",
                )
            ),
            Heading(Both("The two differences, drawn", "两个差向量的图示")),
            plane_plot(plane),
            Remark(_plane_remark(plane)),
        ],
    )


def plane_plot(plane: "Plane") -> Points:
    """The four corners and a - b + c with the arrows b → a and c → d."""
    points = [
        Point(corner.x, corner.y, f"{corner.name} {corner.piece}".rstrip(), group)
        for corner, group in zip(plane.corners[:4], (0, 0, 1, 1), strict=True)
    ]
    target = plane.corners[4]
    points.append(Point(target.x, target.y, "a - b + c", 2))
    return Points(
        points,
        Both("along a - b", "沿 a - b 的方向"),
        Both("across it, towards d - c", "与之垂直、偏向 d - c 的方向"),
        paths=((1, 0), (2, 3)),
        groups=("b → a", "c → d", Both("where a parallelogram would end", "平行四边形的终点")),
        arrows=True,
    )


def _plane_remark(plane: "Plane") -> Both:
    off = f"{plane.corners[3].off_plane:.2f}"
    return Both(
        "From b to a and from c to d: lengths and the angle between the two are the true ones; the gap between the "
        f"pairs is drawn too short, for c and d lie off this plane by {off}.",
        f"从 b 到 a、从 c 到 d：两段的长度和夹角都是真实的；两对词之间的间距画得偏短，因为 c 和 d 偏离这个平面 {off}。",
    )


def _or_left_out(rank: int | None) -> Text:
    return Both("left out", "已除去") if rank is None else f"{rank:,}"
