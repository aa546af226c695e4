"""Pages of a model's tables as points in space: neighbours and analogies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.inspection.terms import left, right
from cutaway.page.blocks import Bar, Column, Heading, Page, Point, Points, Prose, Remark, Table, page
from cutaway.page.numbers import number
from cutaway.words import Phrase, Text, say, say_in

if TYPE_CHECKING:
    from cutaway.inspection.geometry.analogy import Analogy, Plane, Ranked
    from cutaway.inspection.geometry.vectors import Measure, Neighbour, Neighbours, VectorTable

TABLES = {
    "embedding": say("the embedding table"),
    "unembedding": say("the unembedding table"),
}
PIECE = say("piece")
COSINE = say("cosine")
MEASURES = {
    "cosine": COSINE,
    "dot": say("dot product"),
    "euclid": say("distance"),
}


def table_page(found: "VectorTable") -> Page:
    rows, width = found.vectors.shape
    size = say("{rows:,} vectors of {width} numbers", rows=rows, width=width)
    tied = Prose(say("tied"), say("with the model's other table"))
    return page(
        say("The {name} table of token vectors", name=found.name),
        [
            Prose(say("size"), size),
            tied if found.tied else None,
            Remark(
                say("Ask it: neighbours(table, token), analogy(table, a, b, c), token_map(table, tokens).")
            ),
        ],
    )


def table_name(name: str) -> Phrase:
    """A table of the model, or one that a user made."""
    return TABLES.get(name, say("the {name} table", name=name))


def neighbours_page(found: "Neighbours") -> Page:
    where = table_name(found.table)
    if found.id is None:
        title = say("Nearest to the vector in {where}", where=where)
    else:
        title = say("Nearest to {piece} (id {id}) in {where}", piece=found.piece, id=found.id, where=where)
    compared = f"{found.compared:,}"
    measure = MEASURES[found.measure]
    return page(
        title,
        [
            neighbour_table(found.items, found.measure),
            Remark(
                say(
                    "Nearness ({measure}) is of the full space, all {compared} rows compared. Near: used alike, which "
                    "is not the same as meaning alike: opposites are near, too.",
                    compared=compared,
                    measure=measure,
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
        listed.append((say("expected"), found.expected))
    columns = (
        left(say("word")),
        left(PIECE),
        right(say_in("place in a list", "rank")),
        right(say("without a, b, c")),
        right(COSINE),
    )
    rows = [
        (name, each.piece, f"{each.rank:,}", _or_left_out(each.rank_without_inputs), f"{each.cosine:.3f}")
        for name, each in listed
    ]
    plane, d = found.plane, found.plane.corners[3].piece
    of_length = say("Vectors of length 1. ") if found.normalised else say("Vectors as they are. ")
    cosine, (first, second) = f"{plane.cosine:.2f}", (f"{length:.2f}" for length in plane.lengths)
    return page(
        say("{sum_of}: nearest in {where}", sum_of=sum_of, where=where),
        [
            neighbour_table(found.answers),
            Heading(say("Where the words themselves stand")),
            Table(columns, rows),
            Remark(
                say(
                    "{of_length}a - b and d - c, d being {d}: cosine {cosine}, lengths {first} and "
                    "{second}; 1 and equal lengths would be a parallelogram. The answers leave a, b and c "
                    "out: where c would be first, this rule made the answer.",
                    of_length=of_length,
                    d=d,
                    cosine=cosine,
                    first=first,
                    second=second,
                )
            ),
            Heading(say("The two differences, drawn")),
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
        say("along a - b"),
        say("across it, towards d - c"),
        paths=((1, 0), (2, 3)),
        groups=("b → a", "c → d", say("where a parallelogram would end")),
        arrows=True,
    )


def _plane_remark(plane: "Plane") -> Phrase:
    off = f"{plane.corners[3].off_plane:.2f}"
    return say(
        "From b to a and from c to d: lengths and the angle between the two are the true ones; "
        "the gap between the pairs is drawn too short, for c and d lie off this plane by {off}.",
        off=off,
    )


def _or_left_out(rank: int | None) -> Text:
    return say("left out") if rank is None else f"{rank:,}"
