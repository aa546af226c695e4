"""Mixture of experts: many feed-forward networks, of which a router gives each token a few."""

# Shapes: B batch, T tokens, D width, X experts, A chosen experts of a token, N tokens of one expert.

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cutaway.nn.linear import Linear
from cutaway.tap import tap


class MoE(nn.Module):
    """Σ over the A best experts of weight · expert(x), in the place of one MLP (Shazeer et al. 2017, §2).

    The router scores all X experts by a matrix product; their softmax, over all of them, gives the weights of the
    best A, scaled to sum to 1 where `renormalise` (Mixtral: Jiang et al. 2024, §2.1). An expert computes only the
    tokens it was given, so the cost follows A and not X.
    """

    def __init__(
        self,
        d_model: int,
        n_experts: int,
        n_per_token: int,
        renormalise: bool,
        expert: Callable[[], nn.Module],
    ):
        super().__init__()
        self.n_per_token, self.renormalise = n_per_token, renormalise
        self.router = Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(expert() for _ in range(n_experts))

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        logits = tap(self, "router", self.router(x))  # (B, T, X)
        probabilities = logits.float().softmax(dim=-1)
        chosen = tap(self, "expert_index", probabilities.topk(self.n_per_token, dim=-1).indices)  # (B, T, A)
        weights = probabilities.gather(-1, chosen)
        if self.renormalise:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = tap(self, "expert_weight", weights).to(x.dtype)  # (B, T, A)
        outs = tap(self, "expert_out", self._outs(x, chosen))  # (B, T, A, D)
        return tap(self, "out", (weights[..., None] * outs).sum(dim=-2))  # (B, T, D)

    def _outs(self, x: Tensor, chosen: Tensor) -> Tensor:
        """What each token's chosen experts make of it, each expert at work once, on all of its tokens."""
        rows = x.flatten(0, 1)  # (B·T, D)
        flat = chosen.flatten()  # (B·T·A,)
        order = flat.argsort(stable=True)  # the places in `flat`, those of one expert side by side
        counts = torch.bincount(flat, minlength=len(self.experts)).tolist()
        parts = [
            expert(rows[places // self.n_per_token][None])[0]  # (N, D)
            for expert, places in zip(self.experts, order.split(counts), strict=True)
            if len(places)
        ]
        outs = torch.cat(parts)  # (B·T·A, D) in that order
        return outs[order.argsort()].view(*chosen.shape, -1)
