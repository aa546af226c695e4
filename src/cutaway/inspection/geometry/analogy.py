"""a is to b as ? is to c: the ranked answers of a - b + c, and whether the four points really form a parallelogram."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from cutaway.errors import CutawayError
from cutaway.inspection.geometry.vectors import Neighbour, VectorTable, nearest_rows, nearness
from cutaway.inspection.pages.geometry import analogy_page
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn


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
    at ((p - b)·e₁, (p - b)·e₂), and lies ‖(p - b) - x e₁ - y e₂‖ off the plane. Message arrows, b to a and c to d, lie
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
        return analogy_page(self)


def analogy(
    table: VectorTable,
    a: str | int,
    b: str | int,
    c: str | int,
    *,
    expected: str | int | None = None,
    top: int = 10,
    normalised: bool = True,
) -> Analogy:
    """Answer "a is to b as ? is to c"; king - man + woman is analogy(table, "king", "man", "woman"). See `Analogy`.

    Raises CutawayError for a piece or id that the table does not have, inputs that are not three, an expected answer
    that is an input, vectors of length 0, and three inputs whose a - b + c is 0 or whose a and b are equal.
    """
    inputs = [table.find(point) for point in (a, b, c)]
    answer = None if expected is None else table.find(expected)
    if len(set(inputs)) < 3:
        raise CutawayError(
            "a, b and c are {shown}, expected three different tokens", shown=_shown(table, inputs)
        )
    if answer is not None and answer in inputs:
        raise CutawayError(
            "the expected answer {shown} is one of the inputs: expected another token",
            shown=_shown(table, [answer]),
        )
    if len(table.vectors) < 4:
        raise CutawayError(
            "the table has {count} rows, expected a fourth one to answer with", count=len(table.vectors)
        )
    vectors = _vectors(table, inputs, normalised)
    target = vectors[0] - vectors[1] + vectors[2]
    answers = nearest_rows(table, target[None], top=top, measure="cosine", left_out=inputs)[0]
    near = nearness(table, target[None], "cosine")[0]

    def ranked(id: int) -> Ranked:
        better = near > near[id]
        rank = 1 + int(better.sum())
        others = None if id in inputs else rank - int(better[inputs].sum())
        return Ranked(id, table.label(id), float(near[id]), rank, others)

    fourth = answers[0].id if answer is None else answer
    corners = torch.cat([vectors, _vectors(table, [fourth], normalised)])
    return Analogy(
        table=table.name,
        normalised=normalised,
        answers=answers,
        inputs=(ranked(inputs[0]), ranked(inputs[1]), ranked(inputs[2])),
        expected=None if answer is None else ranked(answer),
        plane=plane(corners, [table.label(id) for id in (*inputs, fourth)]),
    )


def plane(corners: Tensor, pieces: Sequence[str] = ("", "", "", "")) -> Plane:
    """Draw a, b, c, d, the rows of corners (4, D) fp64; see `Plane`. Raises CutawayError where a and b are equal."""
    a, b, c, d = corners.unbind()
    target = a - b + c
    first, second = a - b, d - c
    length = float(first.norm())
    if length <= 1e-12 * float(corners.norm(dim=1).max()):
        raise CutawayError("a and b have the same vector: their difference has no direction to draw")
    along = first / length
    across = second - (second @ along) * along
    flat = float(across.norm()) <= 1e-9 * length
    if flat:
        across = (c - b) - ((c - b) @ along) * along
        if float(across.norm()) <= 1e-9 * length:  # all on one line: any direction at right angles will do
            across = torch.eye(len(along), dtype=along.dtype)[int(along.abs().argmin())]
            across = across - (across @ along) * along
    directions = torch.stack([along, normalize(across, dim=0)])
    points = torch.stack([a, b, c, d, target]) - b
    drawn = points @ directions.T
    off = (points - drawn @ directions).norm(dim=1)
    return Plane(
        corners=tuple(
            Corner(name, piece, x, y, far)
            for name, piece, (x, y), far in zip(
                ("a", "b", "c", "d", "target"), (*pieces, ""), drawn.tolist(), off.tolist(), strict=True
            )
        ),
        directions=directions,
        flat=flat,
        cosine=float(cosine_similarity(first, second, dim=0)),
        lengths=(length, float(second.norm())),
        miss=float((d - target).norm()),
    )


def _vectors(table: VectorTable, ids: Sequence[int], normalised: bool) -> Tensor:
    vectors = table.rows(ids)
    lengths = vectors.norm(dim=1, keepdim=True)
    if not bool(lengths.all()):
        zero = [id for id, length in zip(ids, lengths.flatten().tolist(), strict=True) if length == 0]
        raise CutawayError(
            "the vector of {shown} is 0: it has no direction to compare", shown=_shown(table, zero)
        )
    return vectors / lengths if normalised else vectors


def _shown(table: VectorTable, ids: Sequence[int]) -> str:
    return ", ".join(table.label(id) for id in ids)
