"""`cutaway inspect … --show neighbours` and `--show analogy`: a model's tokens as points in space."""

from functools import partial
from typing import TYPE_CHECKING, Literal

from cutaway.cli.terminal import shows_unicode, write_table
from cutaway.cli.view_page import heading, remark, title
from cutaway.cli.view_request import Answer, Request
from cutaway.errors import CutawayError, nearest

if TYPE_CHECKING:
    from cutaway.inspection.geometry.analogy import Analogy
    from cutaway.inspection.geometry.vectors import Neighbours, VectorTable

BAR = 24  # columns of a cosine of 1
TABLES: tuple[Literal["embedding"], Literal["unembedding"]] = ("embedding", "unembedding")


def neighbours(request: Request) -> Answer:
    from cutaway.inspection.geometry.vectors import neighbours as find

    table = _table(request)
    found = find(table, _point(request.text), top=request.top(10))
    return Answer(found, partial(_show_neighbours, found))


def _show_neighbours(found: "Neighbours") -> None:
    title(f"Nearest to {found.piece} (id {found.id}) in the {found.table} table")
    _items([(each.piece, each.id, each.value) for each in found.items])
    remark(
        f"Cosine in the full space, all {found.compared:,} rows compared. Near: used alike, which is not the same as "
        "meaning alike: opposites are near, too."
    )


def analogy(request: Request) -> Answer:
    from cutaway.inspection.geometry.analogy import analogy as solve

    words = [word for word in request.text.split() if word not in ("-", "+", "−")]
    if len(words) != 3:
        raise CutawayError(
            f"the text has {len(words)} words, expected three of a - b + c, such as 'king - man + woman'"
        )
    a, b, c = map(_point, words)
    target = request.options.target
    found = solve(
        _table(request), a, b, c, expected=None if target is None else _point(target), top=request.top(10)
    )
    return Answer(found, partial(_show_analogy, found))


def _show_analogy(found: "Analogy") -> None:
    a, b, c = found.inputs
    title(f"{a.piece} - {b.piece} + {c.piece}: nearest in the {found.table} table")
    _items([(each.piece, each.id, each.value) for each in found.answers])
    heading("Where the words themselves stand")
    listed = [("a", a), ("b", b), ("c", c)]
    if found.expected is not None:
        listed.append(("expected", found.expected))
    rows = [
        (name, each.piece, f"{each.rank:,}", _or_left_out(each.rank_without_inputs), f"{each.cosine:.3f}")
        for name, each in listed
    ]
    write_table(
        ("word", "piece", "rank", "without a, b, c", "cosine"),
        rows,
        right=("rank", "without a, b, c", "cosine"),
    )
    plane = found.plane
    remark(
        f"Vectors of length 1. a - b and d - c, d being {plane.corners[3].piece}: cosine {plane.cosine:.2f}, lengths "
        f"{plane.lengths[0]:.2f} and {plane.lengths[1]:.2f}; 1 and equal lengths would be a parallelogram. The answers "
        "leave a, b and c out: where c would be first, this rule made the answer."
    )


def _or_left_out(rank: int | None) -> str:
    return "left out" if rank is None else f"{rank:,}"


def _items(items: list[tuple[str, int, float]]) -> None:
    mark = "█" if shows_unicode() else "#"
    rows = [
        (piece, str(id), f"{value:.3f}", mark * round(BAR * max(0.0, value))) for piece, id, value in items
    ]
    write_table(("piece", "id", "cosine", ""), rows, right=("id", "cosine"))


def _point(word: str) -> str | int:
    """A piece, or an id written as `#123`."""
    return int(word[1:]) if word[:1] == "#" and word[1:].isdecimal() else word


def _table(request: Request) -> "VectorTable":
    from cutaway.inspection.geometry.vectors import table_of

    given = request.options.name
    for name in TABLES:
        if given in (None, name):
            return table_of(request.loaded, name)
    raise CutawayError(f"--name is {given!r}{nearest(str(given), TABLES)}, expected embedding or unembedding")
