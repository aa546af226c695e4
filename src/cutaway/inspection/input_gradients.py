"""Which tokens of the input a prediction depends on: gradients by the token vectors, gradient x input, and integrated
gradients."""

# Shapes: T tokens, N rows (points of a path) that are computed side by side, D width, V vocabulary.

import heapq
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.options import Progress, check_choice
from cutaway.inspection.outcome import written_token
from cutaway.inspection.runs import (
    ReadingStack,
    Run,
    Tokens,
    piece_of,
    position_in,
    stack_named,
    stacks,
    token_id,
)
from cutaway.inspection.wiring import output_head
from cutaway.tap import Trace
from cutaway.words import Phrase, say

Quantity = Literal["logit", "log_prob"]


@dataclass(frozen=True, kw_only=True)
class InputAttribution:
    """A share for every token that the model reads, of the logit or log-probability F of one token at one position.

    The input x is the tap `embed`: token vectors as they are scaled, before positions are added. Gradient x input:
    the share of token t is Σ_d x_td · ∂F/∂x_td, the first-order estimate of F(x) - F(0) (Shrikumar et al. 2016, "Not
    Just a Black Box"). Integrated gradients: Σ_d (x_td - b_td) · ∫₀¹ ∂F/∂x_td at b + α(x - b) dα (Sundararajan et al.
    2017, "Axiomatic Attribution for Deep Networks", §3), whose shares sum to F(x) - F(b) exactly (completeness,
    proposition 1); `difference` is what finitely many points miss of it.

    A share shows dependence along that path through the space of vectors, between whose ends lie no words. Another
    baseline gives other shares.
    """

    method: Literal["gradient x input", "integrated gradients"]
    quantity: Quantity
    side: str  # whose position it is
    position: int
    token_id: int
    token: str  # piece
    value: float  # F(x), logits or nats
    tokens: dict[str, Tokens]  # by the side that reads them: T each
    shares: dict[str, Tensor]  # by the side that reads the tokens: (T,) fp64 each
    total: float  # sum of all shares
    baseline: str | None = None  # what the path starts from: "zero", or a piece in the place of every token
    baseline_value: float | None = None  # F(b); None for gradient x input
    points: int | None = None  # at which the gradient was taken on the path
    difference: float | None  # F(x) - F(b) - total
    approximate: Phrase


@dataclass(frozen=True)
class Asked:
    """F: one number of the run as a function of its token vectors."""

    run: Run
    side: ReadingStack
    position: int
    token: int
    quantity: Quantity
    inputs: dict[str, Tensor]  # the token vectors (T, D) by side

    @classmethod
    def of(cls, run: Run, position: int, token: int | str | None, quantity: Quantity) -> "Asked":
        """`token` is an id, a piece, or a text of one token; None: the one that was written there, in a gap the one
        that the model puts there. One forward pass.

        Raises CutawayError for a model without output head, a position out of range, or a token that is not one.
        """
        check_choice("quantity", quantity, Quantity)
        output_head(run.model)
        side = stack_named(run, None)
        where = position_in(side.tokens, position)
        taps = {name: f"{stack.embedding_name}.embed" for name, stack in stacks(run).items()}
        logits, trace = run.forward(list(taps.values()))
        chosen = written_token(run, logits[where], where) if token is None else token_id(run, token)
        return cls(run, side, where, chosen, quantity, {name: trace[tap][0] for name, tap in taps.items()})

    def starts(self, baseline: int | None) -> dict[str, Tensor]:
        """Where the path begins, by side: zeros, or the vector of one token everywhere."""
        if baseline is None:
            return {name: torch.zeros_like(x) for name, x in self.inputs.items()}
        embedding = self.side.embedding
        vector = embedding.tokens.weight[baseline].detach() * embedding.scale
        return {name: vector.expand_as(x).clone() for name, x in self.inputs.items()}

    def gradients(self, at: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """F (N,) and its gradients (N, T, D), for token vectors (N, T, D) by side."""
        leaves = {name: x.detach().clone().requires_grad_() for name, x in at.items()}
        rows = len(next(iter(leaves.values())))
        edits = {
            f"{side.embedding_name}.embed": lambda _, leaf=leaves[name]: leaf
            for name, side in stacks(self.run).items()
        }
        given = {name: ids.expand(rows, -1) for name, ids in self.run.inputs.items()}
        with torch.enable_grad(), Trace(self.run.model, edit=edits):
            logits = self.run.model(**given)[:, self.position].float()  # (N, V)
            scores = logits.log_softmax(dim=-1) if self.quantity == "log_prob" else logits
            values = scores[:, self.token]
            slopes = torch.autograd.grad(values.sum(), list(leaves.values()), allow_unused=True)
        found = {
            name: torch.zeros_like(leaf) if slope is None else slope
            for (name, leaf), slope in zip(leaves.items(), slopes, strict=True)
        }
        return values.detach(), found

    def answer(
        self, value: float, before: float | None, shares: dict[str, Tensor], **how: Any
    ) -> InputAttribution:
        """`before` is F(b), `how` the fields that tell of the method."""
        total = sum(float(share.sum()) for share in shares.values())
        return InputAttribution(
            quantity=self.quantity,
            side=self.side.name,
            position=self.position,
            token_id=self.token,
            token=piece_of(self.run, self.token),
            value=value,
            tokens={name: side.tokens for name, side in stacks(self.run).items()},
            shares=shares,
            total=total,
            baseline_value=before,
            difference=None if before is None else value - before - total,
            **how,
        )


def gradient_x_input(asked: "Asked") -> InputAttribution:
    """Gradient times input. An encoder-decoder has shares on both sides: of the source, and of the target so far."""
    values, slopes = asked.gradients({name: x[None] for name, x in asked.inputs.items()})
    shares = {
        name: (x.double() * slopes[name][0].double()).sum(dim=-1).cpu() for name, x in asked.inputs.items()
    }
    approximate = say("first order, exact only where the model is linear between 0 and this input")
    return asked.answer(float(values[0]), None, shares, method="gradient x input", approximate=approximate)


MOST_POINTS = 1200
_POINTS = 12  # of one piece of the way, which are computed side by side
_POWER = 6  # each norm multiplies vectors near zero by up to 1/√eps: F turns where alpha is a tiny number


def integrated_gradients(
    asked: Asked,
    *,
    baseline: int | str | None = None,
    tolerance: float = 0.005,
    most_points: int = MOST_POINTS,
    progress: Progress | None = None,
) -> InputAttribution:
    """Integrated gradients, defined in `InputAttribution`.

    The straight path starts at `baseline`: None for vectors of zeros, or a token (its id, piece, or text) in the place
    of every token. It is cut into pieces of 12 Gauss-Legendre points (with the middle 13 passes at a time). A piece
    must add up to the difference of F at its ends; the one that misses most is halved until all together miss no more
    than `tolerance` of F(x) - F(b), or `most_points` were taken. From zeros α = s⁶ and pieces are cut in s, because
    norms make F turn sharply where vectors are short. Where nothing is added to the token vectors (rotary or no
    positions) that happens within a tiny step, which decides all shares: a token as baseline says more there.
    Raises CutawayError for a baseline that is no token, and for a tolerance or a number of points that is not positive.
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
    run, ends = asked.run, asked.inputs
    start = None if baseline is None else token_id(run, baseline)
    path = _Path(asked, asked.starts(start), ends, _POWER if start is None else 1)
    (at_start, at_end), _ = asked.gradients({name: path.at(name, torch.tensor([0.0, 1.0])) for name in ends})
    before, value = float(at_start), float(at_end)
    pieces = [path.piece(0.0, 1.0, before, value)]
    points = _POINTS
    while points + 2 * _POINTS <= most_points:
        if progress is not None:
            progress(say("points of the integral"), points, most_points)
        if sum(piece.missed for piece in pieces) <= tolerance * abs(value - before):
            break
        worst = heapq.heappop(pieces)
        middle = (worst.start + worst.end) / 2
        for half in (
            path.piece(worst.start, middle, worst.start_value, worst.middle_value),
            path.piece(middle, worst.end, worst.middle_value, worst.end_value),
        ):
            heapq.heappush(pieces, half)
        points += 2 * _POINTS
    if progress is not None:
        progress(say("points of the integral"), points, points)
    shares = {name: torch.stack([piece.shares[name] for piece in pieces]).sum(dim=0) for name in ends}
    jumps = ""
    if run.model.config.n_experts:
        jumps = say("; F jumps where a router changes its choice, and a jump is no token's share")
    return asked.answer(
        value,
        before,
        shares,
        method="integrated gradients",
        baseline="zero" if start is None else piece_of(run, start),
        points=points,
        approximate=say(
            "the integral is a sum over {points} points, which misses the stated part{jumps}",
            points=points,
            jumps=jumps,
        ),
    )


@dataclass(order=True)
class _Piece:
    """A part of the path from s = start to end; the one that misses most comes first."""

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
class _Path:
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
