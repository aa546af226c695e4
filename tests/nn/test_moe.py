"""The mixture of experts against a loop over tokens, and its cost against its use."""

from functools import partial

import pytest
import torch
from tests.nearness import assert_near
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cutaway.nn.mlp import GatedMLP
from cutaway.nn.moe import MoE
from cutaway.tap import Trace

D, F = 12, 20
SUMMED = D + F  # on the way through an expert


def make(n_experts: int, n_per_token: int, renormalise: bool = True) -> MoE:
    torch.manual_seed(0)
    moe = MoE(D, n_experts, n_per_token, renormalise, partial(GatedMLP, D, F, "silu", False))
    for parameter in moe.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return moe


def one_by_one(moe: MoE, x: Tensor) -> Tensor:
    """The definition, token by token."""
    rows = []
    for token in x.flatten(0, 1):
        probabilities = (moe.router.weight @ token).softmax(dim=0)
        best = probabilities.argsort(descending=True)[: moe.n_per_token]
        weights = probabilities[best] / (probabilities[best].sum() if moe.renormalise else 1)
        outs = torch.stack([moe.experts[i](token[None, None])[0, 0] for i in best.tolist()])
        rows.append(weights @ outs)
    return torch.stack(rows).view(x.shape)


@pytest.mark.parametrize(("n_experts", "n_per_token"), [(1, 1), (4, 1), (4, 4), (9, 3)])
@pytest.mark.parametrize("renormalise", [True, False])
def test_it_is_the_weighted_sum_of_each_tokens_best_experts(
    n_experts: int, n_per_token: int, renormalise: bool
) -> None:
    moe, x = make(n_experts, n_per_token, renormalise), torch.randn(2, 7, D)
    expected = one_by_one(moe, x)
    assert_near(moe(x), expected, SUMMED)
    gradients = [
        torch.autograd.grad(out.square().sum(), list(moe.parameters()), allow_unused=True)
        for out in (moe(x), expected)
    ]
    # The gradients of all weights are sums of like terms, which may cancel out: that of a weight that is always 1 is 0.
    size = max(float(gradient.abs().max()) for gradient in gradients[1] if gradient is not None)
    for ours, theirs in zip(*gradients, strict=True):
        # an expert that no token was given learns nothing
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert_near(ours, theirs, SUMMED + x[..., 0].numel(), size)


def test_a_token_does_not_depend_on_its_neighbours() -> None:
    moe, x = make(6, 2), torch.randn(3, 5, D)
    for row in range(3):
        assert_near(moe(x)[row], moe(x[row : row + 1])[0], SUMMED)


@pytest.mark.parametrize("n_experts", [4, 16, 64])
def test_the_cost_follows_the_experts_used_and_not_all_of_them(n_experts: int) -> None:
    """For every token: the router's D·X products, and three matrices of D·F for each of 2 experts; times 2."""
    moe, x = make(n_experts, 2), torch.randn(2, 8, D)
    with FlopCounterMode(display=False) as counter:
        moe(x)
    assert counter.get_total_flops() == 16 * 2 * (D * n_experts + 2 * 3 * D * F)


def test_an_expert_can_be_banned_and_forced_through_the_router() -> None:
    moe, x = make(6, 2), torch.randn(1, 8, D)

    def ban(logits: Tensor) -> Tensor:
        return logits.index_fill(-1, torch.tensor([0, 1, 2]), -torch.inf)

    def force(logits: Tensor) -> Tensor:
        return logits.index_fill(-1, torch.tensor([5]), 100.0)

    watch = ["expert_index", "expert_weight", "expert_out", "out"]
    with Trace(moe, watch, {"router": ban}) as banned:
        moe(x)
    assert int(banned["expert_index"].min()) >= 3
    with Trace(moe, watch, {"router": force}) as forced:
        moe(x)
    assert bool((forced["expert_index"][..., 0] == 5).all())
    for trace in (banned, forced):
        weighted = (trace["expert_weight"][..., None] * trace["expert_out"]).sum(dim=-2)
        assert_near(trace["out"], weighted, moe.n_per_token)
