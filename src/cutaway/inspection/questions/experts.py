"""Which expert of a mixture saw which token, and how evenly the work was shared."""

# Shapes: T tokens, X experts, A chosen experts of a token.

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.asked import OneLayer
from cutaway.inspection.page_parts import array, numbers_to
from cutaway.inspection.question import EXPERTS, question
from cutaway.inspection.runs import Run, Tokens, stacks
from cutaway.inspection.terms import LAYER, SIDES, left, right
from cutaway.inspection.wiring import Place, Side, places
from cutaway.nn.moe import MoE
from cutaway.page.blocks import Bar, Block, Heading, Matrix, Page, Prose, Table, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import share
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, names_of, say

_TAPS = ("router", "expert_index", "expert_weight")


@dataclass(frozen=True)
class Routing:
    """The routing of one layer.

    `probabilities` is the softmax of the router's scores over all experts; the A greatest are chosen, and count with
    `weights`, scaled to sum to 1 where the model does so. `balance` is X · Σ_i f_i · P_i (Fedus et al. 2022, "Switch
    Transformers", §2.2, eq. 4–6, without the factor α), with f_i the share of all T·A choices that fell on expert i
    (for A = 1 the paper's eq. 5) and P_i its mean probability (eq. 6). It is 1 where both are even, and at most X.
    Here it is measured on one text: a load on few tokens is uneven by chance too.
    """

    side: Side  # the stack: "encoder" or "decoder"
    layer: int
    tokens: Tokens  # T of them
    scores: Tensor  # (T, X): the router's, before the softmax
    probabilities: Tensor  # (T, X) fp32
    chosen: Tensor  # (T, A) int64, best first
    weights: Tensor  # (T, A)
    cut: Tensor  # (T,): the smallest probability that was chosen
    runner_up: Tensor  # (T,): the greatest one that was not; 0 where every expert is chosen
    counts: Tensor  # (X,) int64: tokens that each expert was given; none is ever dropped here
    load: Tensor  # (X,) fp32: f, the counts as shares of T·A
    mean_probability: Tensor  # (X,) fp32: P
    balance: float
    entropy: float  # nats, of the load: -Σ f_i · ln f_i
    evenness: float  # the entropy as a share of its maximum ln X; 1: even; also 1 for a single expert


@dataclass(frozen=True, repr=False)
class Experts(Drawn):
    """The routing of every layer that was asked for and has experts, and the model's layers that have a plain network
    instead."""

    n_experts: int
    n_per_token: int
    renormalised: bool  # whether the weights of the chosen ones are scaled to sum to 1
    layers: tuple[Routing, ...]  # encoder first, then by layer
    dense: tuple[str, ...]  # names of the layers without experts: "decoder.layers.1"

    def page(self) -> Page:
        return _page(self)


@question(say("Which expert of a mixture saw which token."), "layers", EXPERTS)
def experts(run: Run, *, layer: OneLayer = None) -> Experts:
    """How a text was shared out among the experts of a mixture (Shazeer et al. 2017; Jiang et al. 2024), in every layer
    that has some or in one, from one forward pass. In an encoder-decoder a layer is that of both stacks.

    Raises CutawayError for a model without experts, and for a layer without.
    """
    config = run.model.config
    found = [place for stack in stacks(run).values() for place in places(run.model, stack.name)]
    mixed = [place for place in found if isinstance(place.block.mlp, MoE)]
    if not mixed:
        raise CutawayError(
            "{path}: this model has no experts, so nothing is routed; ask it of a mixture of experts, such as Mixtral",
            path=run.loaded.path,
        )
    asked = [place for place in mixed if layer in (None, place.layer, place.layer - len(place.stack.layers))]
    if not asked:
        raise CutawayError(
            "layer is {layer}, expected one with experts: {there}",
            layer=layer,
            there=names_of(sorted({place.layer for place in mixed})),
        )
    watch = [f"{place.path}.mlp.{name}" for place in asked for name in _TAPS]
    trace = run.seen(dict.fromkeys(watch, lambda x: x[0]))
    return Experts(
        n_experts=config.n_experts,
        n_per_token=config.n_experts_per_token,
        renormalised=config.experts_renormalised,
        layers=tuple(
            _measure(place, stacks(run)[place.side].tokens, *(trace[f"{place.path}.mlp.{n}"] for n in _TAPS))
            for place in asked
        ),
        dense=tuple(place.path for place in found if not isinstance(place.block.mlp, MoE)),
    )


def _measure(place: Place, tokens: Tokens, scores: Tensor, chosen: Tensor, weights: Tensor) -> Routing:
    n_experts = scores.shape[-1]
    probabilities = scores.float().softmax(dim=-1)
    taken = torch.zeros_like(probabilities, dtype=torch.bool).scatter_(1, chosen, True)
    counts = taken.sum(dim=0)
    load, mean = counts.float() / counts.sum(), probabilities.mean(dim=0)
    entropy = float(torch.special.entr(load.double()).sum())
    return Routing(
        side=place.side,
        layer=place.layer,
        tokens=tokens,
        scores=scores,
        probabilities=probabilities,
        chosen=chosen,
        weights=weights,
        cut=probabilities.masked_fill(~taken, math.inf).amin(dim=1),
        runner_up=probabilities.masked_fill(taken, 0.0).amax(dim=1),
        counts=counts,
        load=load,
        mean_probability=mean,
        balance=float(n_experts * (load.double() * mean.double()).sum()),
        entropy=entropy,
        evenness=entropy / math.log(n_experts) if n_experts > 1 else 1.0,
    )


# Its page.

EXPERT = say("expert")
LOAD = say("load")
READ = say("token read")
LISTED = 16  # experts up to which also those without a token are listed
DETAILED = 1024  # tokens, of all layers together, that are told one by one


def _page(found: Experts) -> Page:
    """Layer by layer; where layers and tokens are many, token by token only in the first layers."""
    n_layers, n_tokens = len(found.layers), max(len(each.tokens) for each in found.layers)
    shown = found.layers[: max(1, DETAILED // n_tokens)]
    first, *others = (page(_title(each), _layer(each)) for each in shown)
    some = say(
        "Token by token: the first {n} of {n_layers} layers; give another one as `layer`.",
        n=len(shown), n_layers=n_layers,
    )  # fmt: skip
    about = say(
        "runner-up: the probability of the best expert that was not chosen. balance: the mean of what the router "
        "gives the experts, weighed by their load, times their number: 1 where all work alike, {n} where one does "
        "everything. evenness: the entropy of the load as a share of the greatest possible: 1 where all work alike. "
        "On one text a load is uneven by chance too.",
        n=found.n_experts,
    )
    dense = say("Layers without experts: {names}.", names=names_of(found.dense))
    loads = [Heading(say("The loads of all layers")), _loads(found)] if n_layers > 1 else []
    return page(
        first.title,
        [
            *first.then(*others).blocks,
            some if len(shown) < n_layers else None,
            dense if found.dense else None,
            about,
            *loads,
        ],
    )


def _title(each: Routing) -> Phrase:
    return say(
        "{side} layer {layer}: {chosen} of {experts} experts for each token",
        side=SIDES[each.side],
        layer=each.layer,
        chosen=each.chosen.shape[1],
        experts=each.scores.shape[1],
    )


def _loads(found: Experts) -> Matrix:
    """Layers down, experts across."""
    loads = np.stack([array(each.load) for each in found.layers])
    names: list[Text] = [str(each.layer) for each in found.layers]
    if len({each.side for each in found.layers}) > 1:
        names = [say("{side} {layer}", side=SIDES[each.side], layer=each.layer) for each in found.layers]
    return Matrix(loads, names, numbers_to(found.n_experts), LAYER, EXPERT, LOAD, drawn=True)


def _layer(each: Routing) -> Iterator[Block | Text]:
    pieces, n_experts = each.tokens.pieces, each.scores.shape[1]
    rows = []
    for t, piece in enumerate(pieces):
        chosen = zip(each.chosen[t].tolist(), each.weights[t].tolist(), strict=True)
        pairs = "  ".join(f"{expert} {share(weight)}" for expert, weight in chosen)
        rows.append((truncate(piece, 14), pairs, share(float(each.runner_up[t]))))
    yield Table([left(READ), left(say("experts and weights")), right(say("runner-up"))], rows)
    probabilities, unit = array(each.probabilities), say("probability by the router")
    yield Matrix(probabilities, pieces, numbers_to(n_experts), READ, EXPERT, unit, drawn=True)
    loads = [
        (str(expert), str(count), share(load), Bar(load))
        for expert, (count, load) in enumerate(zip(each.counts.tolist(), each.load.tolist(), strict=True))
        if count or n_experts <= LISTED
    ]
    yield Table([right(EXPERT), right(say("tokens")), right(LOAD), left("")], loads)
    if len(loads) < n_experts:
        yield say("Experts that were given no token: {n}.", n=n_experts - len(loads))
    yield Prose(say("balance"), f"{each.balance:.3f}")
    yield Prose(say("evenness"), f"{each.evenness:.3f}")
