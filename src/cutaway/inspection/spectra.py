"""How a matrix stretches space: its singular values, what they add up to, and its directions read as tokens."""

# Shapes: M rows, N columns, R singular values.

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.errors import CutawayError
from cutaway.inspection.terms import left, right
from cutaway.inspection.vectors import Neighbour, TableName, nearest_rows, table_of
from cutaway.inspection.weight_matrices import WeightMatrix, caveat_lines
from cutaway.inspection.wiring import at_least_one, is_cross
from cutaway.nn.head import Head
from cutaway.page.blocks import Bars, Page, Prose, Remark, Table, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import number
from cutaway.words import Phrase, Text, say

_FIRST = 8  # singular values that are written out
APPROXIMATE = Remark(
    say(
        "Directions are read by static token vectors only (approximate: positions, context and "
        "norms are left out). What lies along a row direction is sent to the column direction."
    )
)


@dataclass(frozen=True, repr=False)
class Spectrum(Drawn):
    """The singular values σ₁ ≥ σ₂ ≥ … of a matrix M, and numbers made of them; all without unit.

    effective_rank: exp(-Σ p ln p), p = σ / Σσ: 1 where one direction does all, R where all are equal (Roy & Vetterli
    2007). stable_rank: ‖M‖_F² / σ₁² (the numerical rank of Rudelson & Vershynin 2007). frobenius: ‖M‖_F = √Σσ².
    condition: σ₁ / σ_R, infinite where σ_R is 0 to within rounding (σ₁ · max(M, N) · 2⁻⁵²); of a product of two
    thin factors, σ_R is the last of the values that can differ from 0. A matrix of zeros has ranks of 0.

    symmetric_share, of a W_QK over one stream only: ‖(M + Mᵀ)/2‖_F² / ‖M‖_F². 1: a token looks for another as much as
    that one for it; 0: never both (M = -Mᵀ); about 1/2 for a random matrix. None elsewhere: rows and columns then are
    different spaces.
    """

    name: str
    title: Text  # the name, as a reader reads it
    formula: Phrase
    shape: tuple[int, int]
    singular_values: Tensor  # (R,) fp64
    frobenius: float
    effective_rank: float
    stable_rank: float
    condition: float
    symmetric_share: float | None
    caveats: tuple[Phrase, ...]

    def page(self) -> Page:
        sigmas = self.singular_values.tolist()
        shown = [number(sigma) for sigma in sigmas[:_FIRST]]
        if len(sigmas) > _FIRST:
            shown += ["…", number(sigmas[-1]), f"({len(sigmas)})"]
        symmetry = say(
            "{share:.2f} (1: symmetric, 0.5: random, 0: never mutual)", share=self.symmetric_share or 0.0
        )
        ranks = say(
            "effective {effective_rank:.1f}, stable {stable_rank:.1f} of {count}",
            effective_rank=self.effective_rank,
            stable_rank=self.stable_rank,
            count=len(sigmas),
        )
        rows, columns = self.shape
        return page(
            say("{title} ({rows} × {columns})", title=self.title, rows=rows, columns=columns),
            [
                Prose(say("formula"), self.formula),
                Prose("σ", " ".join(shown)),
                Prose(say("ranks"), ranks),
                None if self.symmetric_share is None else Prose(say("symmetry"), symmetry),
                *caveat_lines(self.caveats),
                Bars(sigmas, say("singular value"), "σ"),
            ],
        )


@dataclass(frozen=True)
class Reading:
    """The tokens at both ends of a direction, with the dot product of their row and the direction (of length 1)."""

    table: str  # that was read; "entries" where the matrix itself has one row or column for each token
    positive: tuple[Neighbour, ...]  # greatest first
    negative: tuple[Neighbour, ...]  # least first


@dataclass(frozen=True, repr=False)
class Direction(Drawn):
    """One singular triple of M = Σ σ u vᵀ: what points along u on the side of the rows is sent to v, σ times as long.

    `energy` is σ² / Σσ². What a side reads from the residual stream is read as tokens through the embedding, what it
    writes through the unembedding; both sides of W_QK read. A side that is not the residual stream has no tokens:
    None. u and v change their signs together: the positive tokens of one side belong to the positive ones of the
    other. Approximate: only static token vectors are compared, where the model has positions, context and norms, too
    (Millidge & Black 2022, "The Singular Value Decompositions of Transformer Weight Matrices are Highly
    Interpretable").
    """

    index: int
    sigma: float
    energy: float
    u: Tensor  # (M,) fp64, of length 1
    v: Tensor  # (N,) fp64, of length 1
    rows: Reading | None
    columns: Reading | None

    @property
    def readings(self) -> list[tuple[Phrase, Reading]]:
        """The sides that are read as tokens, with their names."""
        both = ((say("rows"), self.rows), (say("columns"), self.columns))
        return [(side, reading) for side, reading in both if reading is not None]

    def page(self) -> Page:
        title = say(
            "Direction {index}: σ = {sigma}, {energy:.1f} % of the energy",
            index=self.index,
            sigma=number(self.sigma),
            energy=100 * self.energy,
        )
        rows = [
            (side, end, "  ".join(f"{each.piece} {each.value:+.2f}" for each in tokens))
            for side, reading in self.readings
            for end, tokens in (("+", reading.positive), ("−", reading.negative))
        ]
        if not rows:
            return page(title, [Remark(say("Neither side is read as tokens."))])
        columns = (left(say("side")), left(say("end")), left(say("tokens")))
        return page(title, [Table(columns, rows), APPROXIMATE])


def spectrum(matrix: WeightMatrix) -> Spectrum:
    """The singular values of a matrix and what they add up to; see `Spectrum`."""
    sigma = matrix.singular_values()
    total, first, last = float(sigma.sum()), float(sigma[0]), float(sigma[-1])
    squares = float(sigma.square().sum())
    zero = first * max(matrix.shape) * torch.finfo(torch.float64).eps
    return Spectrum(
        name=matrix.name,
        title=matrix.title,
        formula=matrix.formula,
        shape=matrix.shape,
        singular_values=sigma,
        frobenius=squares**0.5,
        effective_rank=float(torch.special.entr(sigma / total).sum().exp()) if total else 0.0,
        stable_rank=squares / first**2 if total else 0.0,
        condition=first / last if last > zero else float("inf"),
        symmetric_share=_symmetric_share(matrix, squares),
        caveats=matrix.caveats,
    )


def directions(
    loaded: Loaded, matrix: WeightMatrix, *, first: int = 0, count: int = 5, top: int = 10
) -> tuple[Direction, ...]:
    """The singular directions `first`, `first` + 1, … of a matrix of `loaded`, each side read as `top` tokens at either
    end; see `Direction`.

    Raises CutawayError for directions that the matrix lacks.
    """
    at_least_one(count=count, top=top)
    u, sigma, v = matrix.svd()
    if not 0 <= first < len(sigma):
        raise CutawayError(
            "first is {first}, expected 0 to {last}: the singular values of {name}",
            first=first,
            last=len(sigma) - 1,
            name=matrix.name,
        )
    chosen = range(first, min(first + count, len(sigma)))
    rows = _readings(loaded, matrix, u[:, first : chosen.stop], "rows", top)
    columns = _readings(loaded, matrix, v[:, first : chosen.stop], "columns", top)
    squares = float(sigma.square().sum())
    found: list[Direction] = []
    for index, row, column in zip(chosen, rows, columns, strict=True):
        size = float(sigma[index])
        energy = size**2 / squares if squares else 0.0
        found.append(Direction(index, size, energy, u[:, index], v[:, index], row, column))
    return tuple(found)


def _symmetric_share(matrix: WeightMatrix, squares: float) -> float | None:
    if matrix.kind != "W_QK" or is_cross(matrix.attention or "") or not squares:
        return None
    assert matrix.right is not None
    small = matrix.right.T @ matrix.left  # ⟨M, Mᵀ⟩ = tr(M M) = tr(small small), without M itself
    return (squares + float((small * small.T).sum())) / (2 * squares)


def _readings(
    loaded: Loaded, matrix: WeightMatrix, vectors: Tensor, side: str, top: int
) -> list[Reading | None]:
    """vectors (M or N, K), one direction a column -> one reading each."""
    space = matrix.rows if side == "rows" else matrix.columns
    if space == "vocabulary":
        label = table_of(loaded).label
        return [_entries(vectors[:, i], top, label) for i in range(vectors.shape[1])]
    writes = side == "columns" and matrix.kind != "W_QK"
    if space != "residual" or (writes and not isinstance(loaded.model.head, Head)):
        return [None] * vectors.shape[1]
    name: TableName = "unembedding" if writes else "embedding"
    table = table_of(loaded, name)
    positive = nearest_rows(table, vectors.T, top=top, measure="dot")
    negative = nearest_rows(table, -vectors.T, top=top, measure="dot")
    return [
        Reading(name, high, tuple(Neighbour(each.id, each.piece, -each.value) for each in low))
        for high, low in zip(positive, negative, strict=True)
    ]


def _entries(values: Tensor, top: int, label: Callable[[int], str]) -> Reading:
    """The greatest and the least entries of values (V,), one for each token."""
    order = values.argsort(descending=True, stable=True).tolist()
    ends = (order[:top], order[: -top - 1 : -1])
    greatest, least = (tuple(Neighbour(id, label(id), float(values[id])) for id in end) for end in ends)
    return Reading("entries", greatest, least)


def directions_table(found: Sequence[Direction]) -> Table | None:
    """The directions of one matrix, a line for each side that is read as tokens."""
    rows: list[tuple[Text, Text, Text]] = []
    for each in found:
        for n, (side, reading) in enumerate(each.readings):
            name = say("{index} {name}", index=each.index, name=side)
            ends = (" ".join(token.piece for token in end) for end in (reading.positive, reading.negative))
            rows.append((name, "" if n else f"{100 * each.energy:.1f} %", "  |  ".join(ends)))
    columns = (left(say("direction")), right(say("energy")), left(say("tokens at its two ends")))
    return Table(columns, rows) if rows else None
