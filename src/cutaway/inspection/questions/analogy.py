"""a is to b as ? is to c: the ranked answers of a - b + c, and whether the four points really form a parallelogram."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.errors import CutawayError
from cutaway.inspection.options import Option
from cutaway.inspection.question import question
from cutaway.inspection.terms import left, right
from cutaway.inspection.vectors import (
    COSINE,
    PIECE,
    Neighbour,
    TableName,
    VectorTable,
    nearest_rows,
    nearness,
    neighbour_table,
    space_of,
    table_name,
)  # fmt: skip
from cutaway.page.blocks import Heading, Page, Point, Points, Table, page
from cutaway.page.drawn import Drawn
from cutaway.words import Text, say, say_in


@dataclass(frozen=True)
class Ranked:
    """A token and its place. `rank` counts every row of the table, the inputs too (1: the nearest of all; equal values
    share the best place); `rank_without_inputs` leaves a, b and c out, and is None for those three."""

    id: int
    piece: str
    cosine: float
    rank: int
    rank_without_inputs: int | None


@dataclass(frozen=True)
class Corner:
    """One point in the drawing: its coordinates there, and how far it lies off the plane, in the vectors' units."""

    name: str  # "a", "b", "c", "d" (the answer drawn), or "target" (a - b + c)
    piece: str  # empty for the target
    x: float
    y: float
    off_plane: float


@dataclass(frozen=True)
class Plane:
    """The plane through b that is spanned by the two differences a - b and d - c, a true linear projection.

    With e₁ = (a - b) / ‖a - b‖ and e₂ the part of d - c at right angles to e₁, made of length 1, a point p is drawn
    at ((p - b)·e₁, (p - b)·e₂), and lies ‖(p - b) - x e₁ - y e₂‖ off the plane. The arrows, b to a and c to d, lie
    in the plane's directions: their drawn lengths and the angle between them are the true ones, so the four corners
    are a parallelogram in the drawing if and only if they are one in the full space. The gap between the two pairs is
    drawn too short: c and d lie off the plane by the same amount. Where the arrows are parallel (`flat`), e₂ is the
    part of c - b at right angles to e₁ instead, and nothing lies off the plane.
    """

    corners: tuple[Corner, ...]  # a, b, c, d, target
    directions: Tensor  # (2, D) fp64: e₁ and e₂
    flat: bool
    cosine: float  # of the angle between a - b and d - c: 1 for a parallelogram, as far as directions go
    lengths: tuple[float, float]  # ‖a - b‖ and ‖d - c‖, equal in a parallelogram
    miss: float  # ‖d - (a - b + c)‖, 0 for a parallelogram


@dataclass(frozen=True, repr=False)
class Analogy(Drawn):
    """a - b + c and the rows of the table nearest to it by the cosine, in the full space, every row compared.

    target = â - b̂ + ĉ with x̂ = x / ‖x‖ where `normalised` (3CosAdd: Mikolov et al. 2013, "Linguistic Regularities in
    Continuous Space Word Representations", §4; Levy & Goldberg 2014), else the vectors as they are. `answers` leave
    the three inputs out, as that test does; `inputs` tell where they stand without this rule: where c is the nearest
    of all, the answer is owed to the rule as well as to the vectors (Linzen 2016). `expected` is the answer that
    was asked about, None where none was. `plane` is drawn with `expected`, or else with the best answer.
    """

    table: str
    normalised: bool
    answers: tuple[Neighbour, ...]  # best first
    inputs: tuple[Ranked, Ranked, Ranked]  # a, b, c
    expected: Ranked | None
    plane: Plane

    def page(self) -> Page:
        return _page(self)


@question(say("a is to b as ? is to c: the tokens nearest to a - b + c."), "space")
def analogy(
    space: Loaded | WordVectors | VectorTable,
    a: Annotated[int | str, Option(say("A token: king, in king - man + woman."), positional=True)],
    b: Annotated[int | str, Option(say("The token that is taken off: man."), positional=True)],
    c: Annotated[int | str, Option(say("The token that is added: woman."), positional=True)],
    *,
    expected: Annotated[int | str | None, Option(say("The answer that is expected: queen."))] = None,
    table: Annotated[TableName, Option(say("The table of the model whose rows are compared."))] = "embedding",
    top: Annotated[int, Option(say("Answers that are listed."), at_least=1)] = 10,
    normalised: Annotated[bool, Option(say("Whether vectors are made of length 1 first."))] = True,
) -> Analogy:
    """King - man + woman is analogy(loaded, "king", "man", "woman"). See `Analogy`.

    Raises CutawayError for a token that the table lacks, inputs that are not three, an expected answer that is an
    input, vectors of length 0, and three inputs whose a - b + c is 0 or whose a and b are equal.
    """
    rows = space_of(space, table)
    inputs = [rows.find(point) for point in (a, b, c)]
    answer = None if expected is None else rows.find(expected)
    if len(set(inputs)) < 3:
        shown = _shown(rows, inputs)
        raise CutawayError("a, b and c are {shown}, expected three different tokens", shown=shown)
    if answer is not None and answer in inputs:
        raise CutawayError(
            "the expected answer {shown} is one of the inputs: expected another token",
            shown=_shown(rows, [answer]),
        )
    if (count := len(rows.vectors)) < 4:
        raise CutawayError("the table has {count} rows, expected a fourth one to answer with", count=count)
    vectors = _vectors(rows, inputs, normalised)
    target = vectors[0] - vectors[1] + vectors[2]
    answers = nearest_rows(rows, target[None], top=top, measure="cosine", left_out=inputs)[0]
    near = nearness(rows, target[None], "cosine")[0]

    def ranked(id: int) -> Ranked:
        better = near > near[id]
        rank = 1 + int(better.sum())
        others = None if id in inputs else rank - int(better[inputs].sum())
        return Ranked(id, rows.label(id), float(near[id]), rank, others)

    fourth = answers[0].id if answer is None else answer
    corners = torch.cat([vectors, _vectors(rows, [fourth], normalised)])
    return Analogy(
        table=rows.name,
        normalised=normalised,
        answers=answers,
        inputs=(ranked(inputs[0]), ranked(inputs[1]), ranked(inputs[2])),
        expected=None if answer is None else ranked(answer),
        plane=plane(corners, [rows.label(id) for id in (*inputs, fourth)]),
    )


def plane(corners: Tensor, pieces: Sequence[str] = ("", "", "", "")) -> Plane:
    """Draw a, b, c, d, the rows of corners (4, D) fp64; see `Plane`. Raises CutawayError where a and b are equal."""
    a, b, c, d = corners.unbind()
    target = a - b + c
    first, second = a - b, d - c
    length = float(first.norm())
    if length <= 1e-12 * float(corners.norm(dim=1).max()):
        raise CutawayError(
            "a and b have the same vector: their difference has no direction to draw; choose two different words"
        )
    along = first / length
    across = second - (second @ along) * along
    flat = float(across.norm()) <= 1e-9 * length
    if flat:
        across = (c - b) - ((c - b) @ along) * along
        # all on one line: any direction at right angles will do
        if float(across.norm()) <= 1e-9 * length:
            across = torch.eye(len(along), dtype=along.dtype)[int(along.abs().argmin())]
            across = across - (across @ along) * along
    directions = torch.stack([along, normalize(across, dim=0)])
    points = torch.stack([a, b, c, d, target]) - b
    drawn = points @ directions.T
    off, names = (points - drawn @ directions).norm(dim=1), ("a", "b", "c", "d", "target")
    placed = zip(names, (*pieces, ""), drawn.tolist(), off.tolist(), strict=True)
    return Plane(
        corners=tuple(Corner(name, piece, x, y, far) for name, piece, (x, y), far in placed),
        directions=directions,
        flat=flat,
        cosine=float(cosine_similarity(first, second, dim=0)),
        lengths=(length, float(second.norm())),
        miss=float((d - target).norm()),
    )


def _vectors(table: VectorTable, ids: Sequence[int], normalised: bool) -> Tensor:
    vectors = table.rows(ids)
    lengths = vectors.norm(dim=1, keepdim=True)
    if zero := [id for id, length in zip(ids, lengths.flatten().tolist(), strict=True) if length == 0]:
        raise CutawayError(
            "the vector of {shown} is 0: it has no direction to compare; choose another word",
            shown=_shown(table, zero),
        )
    return vectors / lengths if normalised else vectors


def _shown(table: VectorTable, ids: Sequence[int]) -> str:
    return ", ".join(table.label(id) for id in ids)


# Its page.


def _page(found: Analogy) -> Page:
    sum_of = "{} - {} + {}".format(*(each.piece for each in found.inputs))
    listed: list[tuple[Text, Ranked]] = list(zip("abc", found.inputs, strict=True))
    if found.expected is not None:
        listed.append((say("expected"), found.expected))
    rows = []
    for name, each in listed:
        others = each.rank_without_inputs
        without = say("left out") if others is None else f"{others:,}"
        rows.append((name, each.piece, f"{each.rank:,}", without, f"{each.cosine:.3f}"))
    numbers = (say_in("place in a list", "rank"), say("without a, b, c"), COSINE)
    columns = (left(say("word")), left(PIECE), *map(right, numbers))
    plane, d = found.plane, found.plane.corners[3]
    first, second, cosine, off = (f"{each:.2f}" for each in (*plane.lengths, plane.cosine, d.off_plane))
    return page(
        say("{sum_of}: nearest in {where}", sum_of=sum_of, where=table_name(found.table)),
        [
            neighbour_table(found.answers),
            Heading(say("Where the words themselves stand")),
            Table(columns, rows),
            say(
                "{of_length}a - b and d - c, d being {d}: cosine {cosine}, lengths {first} and "
                "{second}; 1 and equal lengths would be a parallelogram. The answers leave a, b and c "
                "out: where c would be first, this rule made the answer.",
                of_length=say("Vectors of length 1. ") if found.normalised else say("Vectors as they are. "),
                d=d.piece,
                cosine=cosine,
                first=first,
                second=second,
            ),
            Heading(say("The two differences, drawn")),
            _plot(plane),
            say(
                "From b to a and from c to d: lengths and the angle between the two are the true ones; the gap "
                "between the pairs is drawn too short, for c and d lie off this plane by {off}.",
                off=off,
            ),
        ],
    )


def _plot(plane: Plane) -> Points:
    """The four corners and a - b + c with the arrows b → a and c → d."""
    *corners, target = plane.corners
    points = [
        Point(corner.x, corner.y, f"{corner.name} {corner.piece}".rstrip(), group)
        for corner, group in zip(corners, (0, 0, 1, 1), strict=True)
    ]
    points.append(Point(target.x, target.y, "a - b + c", 2))
    return Points(
        points,
        say("direction of a - b"),
        say("d - c at right angles to it"),
        paths=((1, 0), (2, 3)),
        groups=("b → a", "c → d", say("where a parallelogram would end")),
        arrows=True,
    )
