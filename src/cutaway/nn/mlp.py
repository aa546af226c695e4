"""The position-wise feed-forward network, plain or gated."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.linear import Linear
from cutaway.tap import tap

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class MLP(nn.Module):
    """down(activation(up(x))) on every position alike (Vaswani et al. 2017, §3.3)."""

    def __init__(self, d_model: int, d_ff: int, activation: str, use_bias: bool):
        super().__init__()
        self.up = Linear(d_model, d_ff, bias=use_bias)
        self.down = Linear(d_ff, d_model, bias=use_bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        pre = tap(self, "pre", self.up(x))  # (B, T, F)
        hidden = tap(self, "hidden", self.activation(pre))  # (B, T, F)
        return tap(self, "out", self.down(hidden))  # (B, T, D)


class GatedMLP(MLP):
    """down(activation(gate(x)) · up(x)): the GLU variants (Shazeer 2020)."""

    def __init__(self, d_model: int, d_ff: int, activation: str, use_bias: bool):
        super().__init__(d_model, d_ff, activation, use_bias)
        self.gate = Linear(d_model, d_ff, bias=use_bias)

    def forward(self, x: Tensor) -> Tensor:
        pre = tap(self, "pre", self.gate(x))  # (B, T, F)
        hidden = tap(self, "hidden", self.activation(pre) * self.up(x))  # (B, T, F)
        return tap(self, "out", self.down(hidden))  # (B, T, D)
