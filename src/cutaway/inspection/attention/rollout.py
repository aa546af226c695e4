"""Attention rollout: how the tokens of a stack mix when the weights of all its layers are multiplied."""

# Shapes: L layers, T tokens, h heads that were asked for.

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.attention.patterns import place
from cutaway.inspection.pages.attention import rollout_page
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.wiring import Side, sides
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn


@dataclass(frozen=True, repr=False)
class Rollout(Drawn):
    """R_l = (r·I + (1 - r)·A_l) R_{l-1} with R_0 = I (Abnar & Zuidema 2020, §3).

    A_l is the mean pattern of the heads of layer l, and r the share of the residual connection, ½ in the paper.
    `weights[l, t, s]` is the share of input token s in position t after layer l; rows sum to 1. Approximate by
    construction: it knows weights only, neither values nor norms nor feed-forward networks, and takes r for the same
    everywhere. In the decoder of an encoder-decoder it follows self-attention alone and leaves out what comes from
    the source.
    """

    side: Side
    residual: float  # r
    heads: tuple[int, ...]
    weights: Tensor  # (L, T, T)
    tokens: Tokens

    def page(self) -> Page:
        return rollout_page(self)


def rollout(
    run: Run, side: Side | None = None, *, residual: float = 0.5, heads: Sequence[int] | None = None
) -> Rollout:
    """Roll out one stack (None: the first) with the mean of `heads` (None: all).

    Raises CutawayError for a side or head that there is not, for cross-attention, which leads from one stack to
    another, and for a share that is not within 0 to 1.
    """
    if not 0 <= residual <= 1:
        raise CutawayError(
            "residual is {residual}, expected a share from 0 to 1 (0.5 is usual)", residual=residual
        )
    side = sides(run.model)[0] if side is None else side
    where = place(run, side, heads=heads)
    if side == "cross":
        raise CutawayError(
            "rollout multiplies the self-attention of one stack, and cross-attention leads from one stack to "
            "another: expected side 'encoder' or 'decoder'"
        )
    wanted, taps = list(where.heads), where.taps("pattern")
    _, trace = run.hidden(dict.fromkeys(taps, lambda pattern: pattern[0, wanted].mean(dim=0)))
    identity = torch.eye(len(where.keys), device=trace[taps[0]].device)
    rolled, layers = identity, []
    for name in taps:
        rolled = (residual * identity + (1 - residual) * trace[name]) @ rolled
        layers.append(rolled)
    return Rollout(side, residual, where.heads, torch.stack(layers), where.keys)
