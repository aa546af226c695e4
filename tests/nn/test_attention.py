"""The softmax over keys: the same bits with and without a gradient, and zeros where nothing may be seen."""

import math

import torch

from cutaway.nn.attention import softmax_over_keys


def test_the_short_way_without_gradients_gives_the_same_bits() -> None:
    masked = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    masked = masked.masked_fill(torch.ones(5, 5).triu(1) > 0, -math.inf)
    masked[1, :, 2] = -math.inf
    before = masked.clone()
    with torch.enable_grad():
        asked = masked.clone().requires_grad_()
        pattern = softmax_over_keys(asked)
        pattern[..., 0].sum().backward()
    with torch.no_grad():
        assert torch.equal(softmax_over_keys(masked), pattern)
    assert torch.equal(masked, before), "the masked scores are shown as they were"
    assert (pattern[1, :, 2] == 0).all() and (pattern.sum(-1) > 0.99).sum() == 2 * 3 * 5 - 3
    assert asked.grad is not None and asked.grad.isfinite().all()
