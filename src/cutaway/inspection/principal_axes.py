"""Points of many dimensions drawn in two or three, with what the drawing leaves out stated."""

# Shapes: N points, D width, R drawn dimensions.

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.asked import reported
from cutaway.inspection.options import Progress
from cutaway.inspection.vectors import VectorTable
from cutaway.page.blocks import Line, Page, Point, Points, Remark, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import share
from cutaway.words import Text, say

_ROWS = 8192  # of the points in one step
_ALL = 3000  # points up to which trustworthiness is averaged over all of them
MOST = 1500  # points that are drawn
NAMED = 150  # points up to which each is named
_SAMPLE = 1000  # of more points, so many, evenly spaced in the order given


@dataclass(frozen=True, repr=False)
class PrincipalAxes(Drawn):
    """A linear projection onto the R directions in which the points vary most: principal component analysis.

    With X the N points and μ their mean, X - μ = U Σ Vᵀ (singular values); `axes` are the first R rows of Vᵀ, each
    turned so that its largest entry is positive, `coordinates` = (X - μ) · axesᵀ (Jolliffe 2002, §3.5).
    `variance_kept` is σ_r² / Σσ² of each axis: what is missing to 1 cannot be seen in the drawing.

    `trustworthiness` (Venna & Kaski 2001; k = `k`) is
    1 - 2 / (n k (2N - 3k - 1)) · Σ_i Σ_{j ∈ U_i} (r(i, j) - k): U_i are the points among the k nearest of i in the
    drawing but not in the full space, r(i, j) is j's rank among i's neighbours there. 1: every neighbour seen is a
    true one; about 0.5: they are random. The ranks are over all N points; i runs over n = `trust_points` of them (all,
    or where there are very many an even sample, and then it is an estimate). None where N ≤ 2k: it is not defined.
    """

    coordinates: Tensor  # (N, R) fp64
    axes: Tensor  # (R, D) fp64, of length 1 and at right angles
    mean: Tensor  # (D,) fp64
    variance_kept: tuple[float, ...]
    trustworthiness: float | None
    k: int
    trust_points: int
    labels: tuple[str, ...] = ()  # of the N points, where they have names

    def page(self) -> Page:
        n = len(self.coordinates)
        every = -(-n // MOST)
        names = self.labels if self.labels and n <= NAMED else [""] * n
        drawn = zip(self.coordinates[::every].tolist(), names[::every], strict=True)
        points = [Point(x, y, name) for (x, y, *_), name in drawn]
        shown = f"{len(points):,}"
        part = say("{shown} of the {n:,} points are drawn, evenly spaced in their order.", shown=shown, n=n)
        return page(
            say("{n:,} points on their principal axes", n=n),
            [plot_of(self, points), Remark(part) if every > 1 else None, *measures(self)],
        )

    @property
    def total_kept(self) -> float:
        """The share of the variance that the drawing shows."""
        return sum(self.variance_kept)

    def place(self, points: Tensor) -> Tensor:
        """Where other points (M, D) lie in this drawing: (M, R) fp64."""
        return (points.detach().cpu().double() - self.mean) @ self.axes.T


def pca(points: Tensor, *, dims: int = 2, k: int = 10, progress: Progress | None = None) -> PrincipalAxes:
    """Project points (N, D) onto their `dims` (2 or 3) principal axes; see `PrincipalAxes`.

    Raises CutawayError for other `dims`, fewer points than dims + 1 or a width below dims, k below 1, values that are
    not finite, and points that are all the same.
    """
    if dims not in (2, 3):
        raise CutawayError("dims is {dims}, expected 2 or 3", dims=dims)
    if k < 1:
        raise CutawayError("k is {k}, expected at least 1 neighbour", k=k)
    if points.ndim != 2 or len(points) <= dims or points.shape[1] < dims:
        raise CutawayError(
            "points are of shape {shape}, expected at least {least} points of at least {dims} numbers",
            shape=tuple(points.shape),
            least=dims + 1,
            dims=dims,
        )
    points = points.detach().cpu()
    if not bool(points.isfinite().all()):
        raise CutawayError(
            "the points have values that are not finite: there is no distance to them; the model's weights are damaged"
        )
    mean = points.mean(dim=0, dtype=torch.float64)
    # the only copy in fp64: of a whole vocabulary each is more than a gigabyte
    centred = points - mean
    # R of X = QR has X's singular values and Vᵀ, whatever the number of rows.
    reduced = centred.new_zeros(0, points.shape[1])
    for block in reported(centred.split(_ROWS), say("directions"), progress):
        reduced = torch.linalg.qr(torch.cat([reduced, block]), mode="r").R
    _, sigma, directions = torch.linalg.svd(reduced, full_matrices=False)
    if (
        float(sigma[0])
        <= max(float(points.max()), -float(points.min())) * len(points) * torch.finfo(torch.float64).eps
    ):
        raise CutawayError(
            "the points are all the same: there is no direction in which they differ; give different ones"
        )
    axes, n = directions[:dims], len(points)
    axes = axes * axes.gather(1, axes.abs().argmax(dim=1, keepdim=True)).sign()
    kept = (sigma.square() / sigma.square().sum())[:dims].tolist()
    coordinates = centred @ axes.T
    chosen = range(n) if n <= _ALL else torch.linspace(0, n - 1, _SAMPLE).round().long().tolist()
    trust = trustworthiness(centred, coordinates, k, chosen, progress) if n > 2 * k else None
    return PrincipalAxes(coordinates, axes, mean, tuple(kept), trust, k, len(chosen))


def project_table(
    table: VectorTable, pieces: Sequence[str | int] | None = None, *, dims: int = 2, k: int = 10
) -> PrincipalAxes:
    """Draw a whole table (row i of the coordinates is id i), or some pieces of it in the order given.

    Raises CutawayError for a piece that the table does not have, and as `pca` does.
    """
    if pieces is None:
        drawn, ids = pca(table.vectors, dims=dims, k=k), range(len(table.vectors))
    else:
        ids = [table.find(piece) for piece in pieces]
        drawn = pca(table.rows(ids), dims=dims, k=k)
    return replace(drawn, labels=tuple(map(table.label, ids)))


def trustworthiness(
    points: Tensor, drawn: Tensor, k: int, chosen: Sequence[int], progress: Progress | None = None
) -> float:
    """Venna and Kaski's measure of `drawn` (N, R) as a picture of `points` (N, D), both fp64, averaged over the points
    `chosen`; see `PrincipalAxes`. Points that are equally far have the same rank."""
    total, n = 0.0, len(points)
    for block in reported(torch.tensor(list(chosen)).split(128), say("trustworthiness"), progress):
        own = torch.arange(len(block))
        far = torch.cdist(points[block], points)
        seen = torch.cdist(drawn[block], drawn)
        far[own, block] = seen[own, block] = torch.inf
        close = seen.topk(k, dim=1, largest=False).indices  # the k nearest in the drawing
        # torch's own sort looks for the order too, at ten times the price
        ordered = torch.from_numpy(np.sort(far.numpy(), axis=1))
        ranks = torch.searchsorted(ordered, far.gather(1, close)) + 1
        total += float((ranks - k).clamp(min=0).sum())
    return 1.0 - 2.0 * total / (len(chosen) * k * (2 * n - 3 * k - 1))


def plot_of(
    found: PrincipalAxes,
    points: Sequence[Point],
    *,
    paths: Sequence[Sequence[int]] = (),
    groups: Sequence[Text] = (),
    arrows: bool = False,
) -> Points:
    """Points on the first two axes, each axis with its share of the variance."""
    first, second = (f"{100 * kept:.1f} %" for kept in found.variance_kept[:2])
    across = say("axis 1 ({across} of the variance)", across=first)
    return Points(points, across, say("axis 2 ({down})", down=second), paths, groups, arrows)


def measures(found: PrincipalAxes) -> list[Line | Remark]:
    """What a drawing keeps of the space and how far it can be trusted."""
    words: list[Text] = [
        say("{axis} {kept} ", axis=say("axis {n}", n=n), kept=share(kept))
        for n, kept in enumerate(found.variance_kept, 1)
    ]
    words.append(say("together {total_kept}", total_kept=share(found.total_kept)))
    blocks: list[Line | Remark] = [Line(say("variance"), words)]
    if found.trustworthiness is not None:
        trust: list[Text] = [f"{found.trustworthiness:.3f} ", f"(k = {found.k})"]
        if found.trust_points < len(found.coordinates):
            trust.append(say("estimated on {trust_points:,} points", trust_points=found.trust_points))
        blocks.append(Line(say("trust"), trust))
    meaning = say(
        "variance: what is missing to 1 cannot be seen in the drawing. trust: trustworthiness "
        "(Venna & Kaski 2001), 1 where every neighbour in the drawing is a true one, about 0.5 "
        "where they are random."
    )
    unseen = [Remark(say("The third axis is not drawn."))] if len(found.variance_kept) > 2 else []
    return [*blocks, Remark(meaning), *unseen]
