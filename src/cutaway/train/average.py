"""Averages of the weights over training: what is validated and exported, while training goes on with the raw ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

AverageName = Literal["none", "ema", "mean"]


class Average:
    """Average of a model's parameters.

    ema: θ̄ ← d·θ̄ + (1 - d)·θ after every update, with d = min(decay, (1 + n) / (10 + n)) so that early weights
    are soon forgotten. mean: the mean of the last `count` snapshots, one taken every `every` updates (the
    paper's averaged checkpoints, §6.1); it keeps `count` copies in memory and in the training state.
    """

    def __init__(
        self, model: nn.Module, name: AverageName, *, decay: float = 0.999, count: int = 5, every: int = 1000
    ):
        self.name, self.decay, self.count, self.every = name, decay, count, every
        self.updates = 0
        self._names = [n for n, _ in model.named_parameters()]
        self._live = [p for _, p in model.named_parameters()]
        self._copies: list[list[Tensor]] = []  # ema: one; mean: up to `count`, oldest first
        if name == "ema":
            self._copies.append([p.detach().clone() for p in self._live])

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after an update."""
        self.updates += 1
        if self.name == "ema":
            decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
            for mean, p in zip(self._copies[0], self._live, strict=True):
                mean.lerp_(p, 1 - decay)
        elif self.name == "mean" and self.updates % self.every == 0:
            self._copies.append([p.detach().clone() for p in self._live])
            del self._copies[: -self.count]

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Within this context the model holds the average; afterwards the raw weights, bit for bit."""
        if not self._copies:
            yield
            return
        raw = [p.detach().clone() for p in self._live]
        with torch.no_grad():
            for p, *copies in zip(self._live, *self._copies, strict=True):
                p.copy_(torch.stack(copies).mean(0))
        try:
            yield
        finally:
            with torch.no_grad():
                for p, value in zip(self._live, raw, strict=True):
                    p.copy_(value)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{i}/{name}": tensor
            for i, copy in enumerate(self._copies)
            for name, tensor in zip(self._names, copy, strict=True)
        }

    def restore(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        self.updates = updates
        numbers = sorted({int(key.partition("/")[0]) for key in tensors})
        self._copies = [
            [
                tensors[f"{i}/{name}"].to(p.device).clone()
                for name, p in zip(self._names, self._live, strict=True)
            ]
            for i in numbers
        ]
