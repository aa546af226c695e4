"""Which tokens of the input a prediction depends on: gradients by the token vectors, and gradient x input."""

# Shapes: T tokens, N rows that are computed side by side, D width, V vocabulary.

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from cutaway.errors import CutawayError, nearest
from cutaway.inspection.outcome import written_token
from cutaway.inspection.pages.input_attribution import input_attribution_page
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
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.tap import Trace
from cutaway.words import Phrase, say

Quantity = Literal["logit", "log_prob"]


@dataclass(frozen=True, repr=False)
class InputAttribution(Drawn):
    """A share for every token that the model reads, of the logit or log-probability F of one token at one position.

    The input x is the tap `embed`: token vectors as they are scaled, before positions are added. Gradient x input:
    the share of token t is Σ_d x_td · ∂F/∂x_td, the first-order estimate of F(x) - F(0) (Shrikumar et al. 2016, "Not
    Just a Black Box"). Integrated gradients: Σ_d (x_td - b_td) · ∫₀¹ ∂F/∂x_td at b + α(x - b) dα (Sundararajan et al.
    2017, "Axiomatic Attribution for Deep Networks", §3), whose shares sum to F(x) - F(b) exactly (completeness,
    proposition 1); `difference` is what finitely many points miss of it.

    A share shows dependence along that way through the space of vectors, between whose ends lie no words. Another
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
    baseline: str | None  # what the way starts from: "zero", or a piece in the place of every token
    baseline_value: float | None  # F(b); None for gradient x input
    points: int | None  # at which the gradient was taken on the way
    difference: float | None  # F(x) - F(b) - total
    approximate: Phrase

    def page(self) -> Page:
        return input_attribution_page(self)


def gradient_x_input(
    run: Run, position: int = -1, token: int | str | None = None, *, quantity: Quantity = "log_prob"
) -> InputAttribution:
    """Gradient times input of one token's logit or log-probability at `position`.

    `token` is an id, a piece, or a text of one token; None: the one that was written there, in a gap
    the one that the model puts there. An
    encoder-decoder has shares on both sides: of the source, and of the target so far.
    Raises CutawayError for a model without output head, a position out of range, or a token that is not one.
    """
    asked = Asked.of(run, position, token, quantity)
    ends = asked.inputs()
    values, slopes = asked.gradients({name: x[None] for name, x in ends.items()})
    shares = {name: (x.double() * slopes[name][0].double()).sum(dim=-1).cpu() for name, x in ends.items()}
    return asked.answer(
        method="gradient x input",
        value=float(values[0]),
        shares=shares,
        approximate=say("first order, exact only where the model is linear between 0 and this input"),
    )


@dataclass(frozen=True)
class Asked:
    """F: one number of the run as a function of its token vectors."""

    run: Run
    side: ReadingStack
    position: int
    token: int
    quantity: Quantity

    @classmethod
    def of(cls, run: Run, position: int, token: int | str | None, quantity: Quantity) -> "Asked":
        if quantity not in get_args(Quantity):
            raise CutawayError(
                "quantity is {quantity!r}{hint}, expected {get_args}",
                quantity=quantity,
                hint=nearest(quantity, get_args(Quantity)),
                get_args=" or ".join(get_args(Quantity)),
            )
        output_head(run.model)
        side = stack_named(run, None)
        where = position_in(side.tokens, position)
        chosen = written_token(run, run.forward()[0][where], where) if token is None else token_id(run, token)
        return cls(run, side, where, chosen, quantity)

    def inputs(self) -> dict[str, Tensor]:
        """The token vectors (T, D) by side."""
        names = {name: f"{side.embedding_name}.embed" for name, side in stacks(self.run).items()}
        _, trace = self.run.hidden(list(names.values()))
        return {name: trace[tap][0] for name, tap in names.items()}

    def starts(self, ends: dict[str, Tensor], baseline: int | None) -> dict[str, Tensor]:
        """Where the way begins, by side: zeros, or the vector of one token everywhere."""
        if baseline is None:
            return {name: torch.zeros_like(x) for name, x in ends.items()}
        embedding = self.side.embedding
        vector = embedding.tokens.weight[baseline].detach() * embedding.scale
        return {name: vector.expand_as(x).clone() for name, x in ends.items()}

    def gradients(self, at: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """F (N,) and its gradients (N, T, D), for token vectors (N, T, D) by side."""
        leaves = {name: x.detach().clone().requires_grad_() for name, x in at.items()}
        rows = len(next(iter(leaves.values())))
        edits = {
            f"{side.embedding_name}.embed": _instead(leaves[name]) for name, side in stacks(self.run).items()
        }
        inputs = {name: ids.expand(rows, -1) for name, ids in self.run.inputs.items()}
        with torch.enable_grad(), Trace(self.run.model, edit=edits):
            logits = self.run.model(**inputs)[:, self.position].float()  # (N, V)
            scores = logits.log_softmax(dim=-1) if self.quantity == "log_prob" else logits
            values = scores[:, self.token]
            slopes = torch.autograd.grad(values.sum(), list(leaves.values()), allow_unused=True)
        found = {
            name: torch.zeros_like(leaf) if slope is None else slope
            for (name, leaf), slope in zip(leaves.items(), slopes, strict=True)
        }
        return values.detach(), found

    def answer(
        self,
        *,
        method: Literal["gradient x input", "integrated gradients"],
        value: float,
        shares: dict[str, Tensor],
        approximate: Phrase,
        baseline: str | None = None,
        baseline_value: float | None = None,
        points: int | None = None,
    ) -> InputAttribution:
        total = sum(float(share.sum()) for share in shares.values())
        return InputAttribution(
            method=method,
            quantity=self.quantity,
            side=self.side.name,
            position=self.position,
            token_id=self.token,
            token=piece_of(self.run, self.token),
            value=value,
            tokens={name: side.tokens for name, side in stacks(self.run).items()},
            shares=shares,
            total=total,
            baseline=baseline,
            baseline_value=baseline_value,
            points=points,
            difference=None if baseline_value is None else value - baseline_value - total,
            approximate=approximate,
        )


def _instead(leaf: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda _: leaf
