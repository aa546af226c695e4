"""Attention rollout: how the tokens of a stack mix when the weights of all its layers are multiplied."""

# Shapes: L layers, T tokens, h heads that were asked for.

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cutaway.inspection.asked import FirstStack
from cutaway.inspection.options import Option
from cutaway.inspection.page_parts import array
from cutaway.inspection.patterns import heads_of
from cutaway.inspection.question import question
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.terms import ATTENTIONS, TOKEN
from cutaway.inspection.wiring import Side, sides
from cutaway.page.blocks import Atlas, Matrix, Page, page
from cutaway.page.drawn import Drawn
from cutaway.words import say


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
        return _page(self)


@question(
    say("How the tokens of a stack mix when the attention of all its layers is multiplied."), "attention"
)
def rollout(
    run: Run,
    *,
    side: FirstStack = None,
    residual: Annotated[
        float, Option(say("The share that the residual connection counts for."), at_least=0, at_most=1)
    ] = 0.5,
    heads: Annotated[
        tuple[int, ...] | None, Option(say("The heads that are averaged; all unless given."))
    ] = None,
) -> Rollout:
    """Roll out one stack, from one forward pass.

    Raises CutawayError for a side or head that there is not.
    """
    where = heads_of(run, side or sides(run.model)[0], heads=heads)
    wanted, taps = list(where.heads), where.taps("pattern")
    trace = run.seen(dict.fromkeys(taps, lambda pattern: pattern[0, wanted].mean(dim=0)))
    identity = torch.eye(len(where.keys), device=trace[taps[0]].device)
    rolled, layers = identity, []
    for name in taps:
        rolled = (residual * identity + (1 - residual) * trace[name]) @ rolled
        layers.append(rolled)
    return Rollout(where.side, residual, where.heads, torch.stack(layers), where.keys)


# Its page.


def _page(found: Rollout) -> Page:
    pieces, share = found.tokens.pieces, f"{found.residual:g}"
    names = [say("after layer {layer}", layer=layer) for layer in range(len(found.weights))]
    maps = [
        Matrix(each, pieces, pieces, TOKEN, say("input token"), say("share")) for each in array(found.weights)
    ]
    return page(
        say("Rollout of {side}, all {count} layers", side=ATTENTIONS[found.side], count=len(maps)),
        [
            maps[-1],
            Atlas(names, maps, min(8, len(maps))),
            say(
                "The mean patterns of all layers multiplied, the residual connection taken as a share "
                "of {share} everywhere (Abnar & Zuidema 2020). An approximation in principle: it knows "
                "weights only, neither values nor norms nor feed-forward networks.",
                share=share,
            ),
        ],
    )
