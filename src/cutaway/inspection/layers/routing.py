"""Which expert of a mixture saw which token, and how evenly the work was shared."""

# Shapes: T tokens, X experts, A chosen experts of a token.

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.pages.routing import layer_routing_page, routing_page
from cutaway.inspection.runs import ReadingStack, Run, Tokens, stacks
from cutaway.nn.moe import MoE
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn


@dataclass(frozen=True, repr=False)
class LayerRouting(Drawn):
    """The routing of one layer.

    `probabilities` is the softmax of the router's scores over all experts; the A greatest are chosen, and count with
    `weights`, scaled to sum to 1 where the model does so. `balance` is X · Σ_i f_i · P_i (Fedus et al. 2022, "Switch
    Transformers", §2.2, eq. 4–6, without the factor α), with f_i the share of all T·A choices that fell on expert i
    (for A = 1 the paper's eq. 5) and P_i its mean probability (eq. 6). It is 1 where both are even, and at most X.
    Here it is measured on one text: a load on few tokens is uneven by chance too.
    """

    side: str
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

    def page(self) -> Page:
        return layer_routing_page(self)


@dataclass(frozen=True, repr=False)
class Routing(Drawn):
    """The routing of every layer that has experts, and the layers that have a plain network instead."""

    n_experts: int
    n_per_token: int
    renormalised: bool  # whether the weights of the chosen ones are scaled to sum to 1
    layers: tuple[LayerRouting, ...]  # encoder first, then by layer
    dense: tuple[str, ...]  # names of the layers without experts: "decoder.layers.1"

    def page(self) -> Page:
        return routing_page(self)


def routing(run: Run) -> Routing:
    """How a text was shared out among the experts of a mixture (Shazeer et al. 2017; Jiang et al. 2024).

    Raises CutawayError for a model without experts.
    """
    config = run.model.config
    found = [(side, layer) for side in stacks(run).values() for layer in range(len(side.stack.layers))]
    mixed = [(side, layer) for side, layer in found if isinstance(side.block(layer).mlp, MoE)]
    if not mixed:
        raise CutawayError(
            "{path}: this model has no experts (n_experts is {n_experts}), so nothing is routed; "
            "its feed-forward networks can be seen by their neurons",
            path=run.loaded.path,
            n_experts=config.n_experts,
        )
    watch = [
        f"{_path(side, layer)}.mlp.{name}"
        for side, layer in mixed
        for name in ("router", "expert_index", "expert_weight")
    ]
    _, trace = run.hidden(dict.fromkeys(watch, lambda x: x[0]))
    layers = []
    for side, layer in mixed:
        taps = (trace[f"{_path(side, layer)}.mlp.{n}"] for n in ("router", "expert_index", "expert_weight"))
        layers.append(_measure(side, layer, *taps))
    return Routing(
        n_experts=config.n_experts,
        n_per_token=config.n_experts_per_token,
        renormalised=config.experts_renormalised,
        layers=tuple(layers),
        dense=tuple(
            _path(side, layer) for side, layer in found if not isinstance(side.block(layer).mlp, MoE)
        ),
    )


def _path(side: ReadingStack, layer: int) -> str:
    return f"{side.name}.layers.{layer}"


def _measure(side: ReadingStack, layer: int, scores: Tensor, chosen: Tensor, weights: Tensor) -> LayerRouting:
    n_experts = scores.shape[-1]
    probabilities = scores.float().softmax(dim=-1)
    taken = torch.zeros_like(probabilities, dtype=torch.bool).scatter_(1, chosen, True)
    counts = taken.sum(dim=0)
    load, mean = counts.float() / counts.sum(), probabilities.mean(dim=0)
    entropy = float(torch.special.entr(load.double()).sum())
    return LayerRouting(
        side=side.name,
        layer=layer,
        tokens=side.tokens,
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
