"""Integrated gradients: what a prediction gains from each token along the way from a baseline to the input."""

# Shapes: T tokens, N points on the way, D width.

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.attribution.gradients import Asked, InputAttribution, Quantity
from cutaway.inspection.runs import Run, piece_of, token_id
from cutaway.words import say

MOST_POINTS = 1200
_POINTS = 12  # of one piece of the way, which are computed side by side
_POWER = 6  # each norm multiplies vectors near zero by up to 1/√eps: F turns where alpha is a tiny number


def integrated_gradients(
    run: Run,
    position: int = -1,
    token: int | str | None = None,
    *,
    quantity: Quantity = "log_prob",
    baseline: int | str | None = None,
    tolerance: float = 0.005,
    most_points: int = MOST_POINTS,
    told: Callable[[int], None] | None = None,
) -> InputAttribution:
    """Integrated gradients of one token's logit or log-probability at `position`; defined in `InputAttribution`.

    The straight way starts at `baseline`: None for vectors of zeros, or a token (its id, piece, or text) in the place
    of every token. It is cut into pieces of 12 Gauss-Legendre points. What a piece must add up to is known, the
    difference of F at its ends; the piece that misses most is halved until all together miss no more than `tolerance`
    of F(x) - F(b), or `most_points` were taken. From zeros α = s⁶ and pieces are cut in s, because norms make F turn
    sharply where vectors are short. Where nothing is added to the token vectors (rotary or no positions) F turns within
    a tiny step from zero, which then decides all shares: a token as baseline says more there, and needs fewer points.
    `token` is as in `gradient_x_input`; `told` hears how many points were taken so far. Memory is that of 13 forward
    and backward passes at a time.
    Raises CutawayError as `gradient_x_input` does, for a baseline that is no token, and for a tolerance or a number of
    points that is not positive.
    """
    if most_points < _POINTS:
        raise CutawayError(
            "most_points is {most_points}, expected at least {points}, those of one piece",
            most_points=most_points,
            points=_POINTS,
        )
    if not tolerance > 0:
        raise CutawayError(
            "tolerance is {tolerance}, expected a number above 0, such as 0.005", tolerance=tolerance
        )
    asked = Asked.of(run, position, token, quantity)
    ends = asked.inputs()
    start = None if baseline is None else token_id(run, baseline)
    way = _Way(asked, asked.starts(ends, start), ends, _POWER if start is None else 1)
    (at_start, at_end), _ = asked.gradients({name: way.at(name, torch.tensor([0.0, 1.0])) for name in ends})
    before, value = float(at_start), float(at_end)
    pieces = [way.piece(0.0, 1.0, before, value)]
    points = _POINTS
    while points + 2 * _POINTS <= most_points:
        if told is not None:
            told(points)
        if sum(piece.missed for piece in pieces) <= tolerance * abs(value - before):
            break
        worst = heapq.heappop(pieces)
        middle = (worst.start + worst.end) / 2
        for half in (
            way.piece(worst.start, middle, worst.start_value, worst.middle_value),
            way.piece(middle, worst.end, worst.middle_value, worst.end_value),
        ):
            heapq.heappush(pieces, half)
        points += 2 * _POINTS
    shares = {name: torch.stack([piece.shares[name] for piece in pieces]).sum(dim=0) for name in ends}
    jumps = ""
    if run.model.config.n_experts:
        jumps = say("; F jumps where a router changes its choice, and a jump is no token's share")
    return asked.answer(
        method="integrated gradients",
        value=value,
        shares=shares,
        baseline="zero" if start is None else piece_of(run, start),
        baseline_value=before,
        points=points,
        approximate=say(
            "the integral is a sum over {points} points, which misses the stated part{jumps}",
            points=points,
            jumps=jumps,
        ),
    )


@dataclass(order=True)
class _Piece:
    """A part of the way from s = start to end; the one that misses most comes first."""

    order: float  # -missed
    start: float
    end: float
    start_value: float = field(compare=False)  # F there
    middle_value: float = field(compare=False)
    end_value: float = field(compare=False)
    shares: dict[str, Tensor] = field(compare=False)  # by side: (T,) fp64

    @property
    def missed(self) -> float:
        return -self.order


@dataclass(frozen=True)
class _Way:
    asked: Asked
    starts: dict[str, Tensor]  # by side: (T, D)
    ends: dict[str, Tensor]
    power: int  # alpha = s to this power: pieces are cut, and points chosen, in s

    def at(self, side: str, alpha: Tensor) -> Tensor:
        """alpha (N,) -> (N, T, D): start + alpha · (end - start), in the vectors' own type."""
        start, end = self.starts[side].double(), self.ends[side].double()
        point = start + alpha.to(end.device, torch.float64)[:, None, None] * (end - start)
        return point.to(self.ends[side].dtype)

    def piece(self, start: float, end: float, start_value: float, end_value: float) -> _Piece:
        """The integral from start to end, and F in the middle for when it is halved."""
        spots, weights = np.polynomial.legendre.leggauss(_POINTS)
        s = start + (end - start) * (torch.from_numpy(spots) + 1) / 2
        weight = torch.from_numpy(weights) * (end - start) / 2 * self.power * s ** (self.power - 1)  # d alpha
        rows = torch.cat([s, torch.tensor([(start + end) / 2], dtype=torch.float64)]) ** self.power
        values, slopes = self.asked.gradients({side: self.at(side, rows) for side in self.ends})
        shares = {}
        for side, slope in slopes.items():
            integral = torch.einsum("n,ntd->td", weight.to(slope.device), slope[:-1].double())
            length = self.ends[side].double() - self.starts[side].double()
            shares[side] = (length * integral).sum(dim=-1).cpu()
        total = sum(float(share.sum()) for share in shares.values())
        missed = abs(end_value - start_value - total)
        return _Piece(-missed, start, end, start_value, float(values[-1]), end_value, shares)
