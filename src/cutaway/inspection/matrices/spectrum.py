"""How a matrix stretches space: its singular values, what they add up to, and its directions read as tokens."""

# Shapes: M rows, N columns, R singular values.

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.errors import CutawayError
from cutaway.inspection.geometry.vectors import Neighbour, TableName, nearest_rows, table_of
from cutaway.inspection.matrices.matrix import Matrix
from cutaway.inspection.pages.matrices import direction_page, spectrum_page
from cutaway.nn.head import Head
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.words import Phrase


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
    title: Phrase  # the name, as a reader reads it
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
        return spectrum_page(self)


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

    def page(self) -> Page:
        return direction_page(self)


def spectrum(matrix: Matrix) -> Spectrum:
    """The singular values of a matrix and what they add up to; see `Spectrum`."""
    sigma = matrix.svd()[1]
    total, first, last = float(sigma.sum()), float(sigma[0]), float(sigma[-1])
    share = sigma / total if total else sigma
    squares = float(sigma.square().sum())
    zero = first * max(matrix.shape) * torch.finfo(torch.float64).eps
    return Spectrum(
        name=matrix.name,
        title=matrix.title,
        formula=matrix.formula,
        shape=matrix.shape,
        singular_values=sigma,
        frobenius=squares**0.5,
        effective_rank=float(torch.special.entr(share).sum().exp()) if total else 0.0,
        stable_rank=squares / first**2 if total else 0.0,
        condition=first / last if last > zero else float("inf"),
        symmetric_share=_symmetric_share(matrix, squares),
        caveats=matrix.caveats,
    )


def directions(
    loaded: Loaded, matrix: Matrix, *, first: int = 0, count: int = 5, top: int = 10
) -> tuple[Direction, ...]:
    """The singular directions `first`, `first` + 1, … of a matrix of `loaded`, each side read as `top` tokens at either
    end; see `Direction`.

    Raises CutawayError for directions that the matrix does not have.
    """
    u, sigma, v = matrix.svd()
    if not 0 <= first < len(sigma):
        raise CutawayError(
            "first is {first}, expected 0 to {count}: the singular values of {name}",
            first=first,
            count=len(sigma) - 1,
            name=matrix.name,
        )
    if count < 1:
        raise CutawayError("count is {count}, expected at least 1", count=count)
    chosen = range(first, min(first + count, len(sigma)))
    rows = _readings(loaded, matrix, u[:, first : chosen.stop], "rows", top)
    columns = _readings(loaded, matrix, v[:, first : chosen.stop], "columns", top)
    squares = float(sigma.square().sum())
    return tuple(
        Direction(
            index=index,
            sigma=float(sigma[index]),
            energy=float(sigma[index]) ** 2 / squares if squares else 0.0,
            u=u[:, index],
            v=v[:, index],
            rows=row,
            columns=column,
        )
        for index, row, column in zip(chosen, rows, columns, strict=True)
    )


def _symmetric_share(matrix: Matrix, squares: float) -> float | None:
    if matrix.kind != "W_QK" or (matrix.attention or "").endswith("cross_attn") or not squares:
        return None
    assert matrix.right is not None
    small = matrix.right.T @ matrix.left  # ⟨M, Mᵀ⟩ = tr(M M) = tr(small small), without M itself
    return (squares + float((small * small.T).sum())) / (2 * squares)


def _readings(loaded: Loaded, matrix: Matrix, vectors: Tensor, side: str, top: int) -> list[Reading | None]:
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
    listed = [Neighbour(id, label(id), float(values[id])) for id in (*order[:top], *order[: -top - 1 : -1])]
    half = len(order[:top])
    return Reading("entries", tuple(listed[:half]), tuple(listed[half:]))
