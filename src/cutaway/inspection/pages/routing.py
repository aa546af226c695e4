"""The page of a mixture of experts: who was given what."""

from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.terms import LAYER, SIDES, TOKEN, left, right
from cutaway.page.blocks import Bar, Block, Heading, Matrix, Page, Prose, Remark, Table, page
from cutaway.page.numbers import share
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, say

if TYPE_CHECKING:
    from cutaway.inspection.layers.routing import LayerRouting, Routing

EXPERT = say("expert")
LOAD = say("load")
LISTED = 16  # experts up to which also those without a token are listed
DETAILED = 1024  # tokens, of all layers together, that are told one by one


def routing_page(found: "Routing") -> Page:
    """Layer by layer; where layers and tokens are many, token by token only in the first layers."""
    n_layers, n_tokens = len(found.layers), max(len(each.tokens) for each in found.layers)
    shown = found.layers[: max(1, DETAILED // n_tokens)]
    blocks: list[Block] = []
    for place, each in enumerate(shown):
        if place:
            blocks.append(Heading(_title(each)))
        blocks += _layer(each)
    if len(shown) < n_layers:
        n = len(shown)
        blocks.append(
            Remark(
                say(
                    "Token by token: the first {n} of {n_layers} layers; any other one by --layer N, or by "
                    "itself: layers[N].",
                    n=n,
                    n_layers=n_layers,
                )
            )
        )
    if found.dense:
        names = ", ".join(found.dense)
        blocks.append(Remark(say("Layers without experts: {names}.", names=names)))
    blocks.append(_RUNNER_UP)
    if n_layers > 1:
        blocks += [Heading(say("The loads of all layers")), _loads(found)]
    return page(_title(found.layers[0]), blocks)


def layer_routing_page(each: "LayerRouting") -> Page:
    return page(_title(each), [*_layer(each), _RUNNER_UP])


_RUNNER_UP = Remark(
    say(
        "runner-up: the probability of the best expert that was not chosen. On one text a load "
        "is uneven by chance too."
    )
)


def _title(each: "LayerRouting") -> Phrase:
    side, chosen, experts = SIDES[each.side], each.chosen.shape[1], each.scores.shape[1]
    return say(
        "{side} layer {layer}: {chosen} of {experts} experts for each token",
        side=side,
        layer=each.layer,
        chosen=chosen,
        experts=experts,
    )


def _loads(found: "Routing") -> Matrix:
    """Layers down, experts across."""
    several = len({each.side for each in found.layers}) > 1
    return Matrix(
        np.stack([each.load.detach().cpu().double().numpy() for each in found.layers]),
        [f"{each.side} {each.layer}" if several else str(each.layer) for each in found.layers],
        [str(expert) for expert in range(found.n_experts)],
        LAYER,
        EXPERT,
        LOAD,
        drawn=True,
    )


def _layer(each: "LayerRouting") -> list[Block]:
    pieces, n_experts = each.tokens.pieces, each.scores.shape[1]
    rows = []
    for t, piece in enumerate(pieces):
        chosen = zip(each.chosen[t].tolist(), each.weights[t].tolist(), strict=True)
        pairs = "  ".join(f"{expert} {share(weight)}" for expert, weight in chosen)
        rows.append((truncate(piece, 14), pairs, share(float(each.runner_up[t]))))
    loads: list[tuple[Text | Bar, ...]] = [
        (str(expert), str(count), share(load), Bar(load))
        for expert, (count, load) in enumerate(zip(each.counts.tolist(), each.load.tolist(), strict=True))
        if count or n_experts <= LISTED
    ]
    idle = None
    if len(loads) < n_experts:
        n = n_experts - len(loads)
        idle = Remark(say("{n} experts were given no token.", n=n))
    router = Matrix(
        each.probabilities.detach().cpu().double().numpy(),
        pieces,
        [str(expert) for expert in range(n_experts)],
        TOKEN,
        EXPERT,
        say("probability by the router"),
        drawn=True,
    )
    blocks: list[Block | None] = [
        Table(
            [left(TOKEN), left(say("experts and weights")), right(say("runner-up"))],
            rows,
        ),
        router,
        Table([right(EXPERT), right(say("tokens")), right(LOAD), left("")], loads),
        idle,
        Prose(say("balance"), say("{balance:.3f} (1 even)", balance=each.balance)),
        Prose(
            say("evenness"),
            say("{evenness:.3f} (entropy of the load, 1 even)", evenness=each.evenness),
        ),
    ]
    return [block for block in blocks if block is not None]
