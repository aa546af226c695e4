"""From gradients to better weights: AdamW, Muon for the matrices inside, and averages of the weights over training."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cutaway.errors import CutawayError
from cutaway.train.machine import multiplies_bf16, one_thread
from cutaway.train.recipe import AverageName, OptimizerName


def undecayed(model: nn.Module) -> set[str]:
    """Names of the parameters without weight decay: vectors (norms, biases) and embedding tables."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    return {name for name, p in model.named_parameters() if p.ndim < 2 or id(p) in tables}


def hidden_matrices(model: nn.Module) -> set[str]:
    """Names of the matrices between embedding and vocabulary layer, the ones Muon is meant for."""
    head = getattr(model, "head", None)
    outside = {id(p) for p in head.parameters()} if isinstance(head, nn.Module) else set()
    still = undecayed(model)
    return {n for n, p in model.named_parameters() if p.ndim == 2 and n not in still and id(p) not in outside}


class Muon:
    """Momentum, orthogonalised (Jordan et al. 2024), with the step matched to AdamW's: 0.2·√max(rows, columns)
    times `lr` (Liu et al. 2025, §2.2), so that one learning rate serves both.

    The same update as torch.optim.Muon(adjust_lr_fn="match_rms_adamw"), with matrices of one shape
    orthogonalised together: 0.5 s instead of 1.0 s for 48 matrices 256×256 and 16 of 1024×256 on two busy cores.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        rounds: int = 5,
    ):
        self.params = list(params)
        self.momentum, self.weight_decay, self.rounds = momentum, weight_decay, rounds
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {p: {} for p in self.params}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        alike: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for p in self.params:
            if p.grad is not None:
                alike.setdefault(tuple(p.shape), []).append(p)
        for (rows, columns), params in alike.items():
            updates = orthogonal(torch.stack([self._momentum(p) for p in params]), self.rounds)
            size = 0.2 * max(rows, columns) ** 0.5 * lr
            for p, update in zip(params, updates, strict=True):
                p.mul_(1 - lr * self.weight_decay).add_(update, alpha=-size)

    def _momentum(self, p: nn.Parameter) -> Tensor:
        """The gradient with Nesterov momentum, its buffer brought up to date."""
        assert p.grad is not None
        if "momentum_buffer" not in self.state[p]:
            self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        buffer = self.state[p]["momentum_buffer"].lerp_(p.grad, 1 - self.momentum)
        return p.grad.lerp(buffer, self.momentum)


def orthogonal(matrices: Tensor, rounds: int) -> Tensor:
    """Each of (N, rows, columns) with its singular values pushed towards 1 by the quintic Newton-Schulz iteration,
    in bf16 where the hardware multiplies it."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16() if multiplies_bf16(matrices.device) else matrices
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(rounds):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Optimizer:
    """AdamW (Loshchilov & Hutter 2019) for every parameter, or Muon for the hidden matrices and AdamW for the
    rest, stepping as one, with state by parameter name."""

    def __init__(
        self,
        model: nn.Module,
        name: OptimizerName = "adamw",
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ):
        self.lr = lr
        self.names = {p: n for n, p in model.named_parameters() if p.requires_grad}
        matrices = hidden_matrices(model) if name == "muon" else set()
        still = undecayed(model)
        rest = [(n, p) for p, n in self.names.items() if n not in matrices]
        groups = [
            {"params": [p for n, p in rest if n not in still], "weight_decay": weight_decay},
            {"params": [p for n, p in rest if n in still], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        inside = [p for p, n in self.names.items() if n in matrices]
        self.adamw = torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=True)
        self.muon = Muon(inside, momentum, weight_decay)

    def step(self, factor: float) -> None:
        """One update at `factor` times the peak learning rate, from the gradients that lie in `.grad`."""
        for group in self.adamw.param_groups:
            group["lr"] = self.lr * factor
        with one_thread():
            self.adamw.step()
        self.muon.step(self.lr * factor)

    def zero_grad(self) -> None:
        for p in self.names:
            p.grad = None

    def state(self) -> dict[str, Tensor]:
        """Every state tensor as `<parameter>/<key>`."""
        return {
            f"{name}/{key}": value
            for p, name in self.names.items()
            for entries in (self.adamw.state.get(p, {}), self.muon.state.get(p, {}))
            for key, value in entries.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave. Raises CutawayError when a name belongs to no parameter here."""
        by_name = {name: p for p, name in self.names.items()}
        self.adamw.state.clear()
        for key, value in tensors.items():
            name, _, entry = key.rpartition("/")
            if name not in by_name:
                raise CutawayError(
                    "optimiser state for {name!r}, which this model does not have; the state belongs to another model",
                    name=name,
                )
            p = by_name[name]
            entries = self.muon.state[p] if p in self.muon.state else self.adamw.state[p]
            entries[entry] = value.to(p.device, copy=True)


class Average:
    """Average of a model's parameters: what is validated and exported, while training goes on with the raw ones.

    ema: θ̄ ← d·θ̄ + (1 - d)·θ after every update, with d = min(decay, (1 + n) / (10 + n)) so that early weights
    are soon forgotten. mean: the mean of the last `count` snapshots, one taken every `every` updates (the
    paper's averaged checkpoints, §6.1); it keeps `count` copies in memory and in the training state.
    """

    def __init__(
        self, model: nn.Module, name: AverageName, *, decay: float = 0.999, count: int = 5, every: int = 1000
    ):
        self.name, self.decay, self.count, self.every = name, decay, count, every
        self.updates = 0
        self._live = dict(model.named_parameters())
        self._copies: list[list[Tensor]] = []  # ema: one; mean: up to `count`, oldest first
        if name == "ema":
            self._copies.append(self._snapshot())

    def _snapshot(self) -> list[Tensor]:
        return [p.detach().clone() for p in self._live.values()]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after an update."""
        self.updates += 1
        if self.name == "ema":
            decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
            for mean, p in zip(self._copies[0], self._live.values(), strict=True):
                mean.lerp_(p, 1 - decay)
        elif self.name == "mean" and self.updates % self.every == 0:
            self._copies.append(self._snapshot())
            del self._copies[: -self.count]

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Within this context the model holds the average; afterwards the raw weights, bit for bit."""
        if not self._copies:
            yield
            return
        raw = self._snapshot()
        with torch.no_grad():
            for p, *copies in zip(self._live.values(), *self._copies, strict=True):
                p.copy_(torch.stack(copies).mean(0))
        try:
            yield
        finally:
            with torch.no_grad():
                for p, value in zip(self._live.values(), raw, strict=True):
                    p.copy_(value)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{i}/{name}": tensor
            for i, copy in enumerate(self._copies)
            for name, tensor in zip(self._live, copy, strict=True)
        }

    def restore(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        self.updates = updates
        self._copies = [
            [tensors[f"{i}/{name}"].to(p.device, copy=True) for name, p in self._live.items()]
            for i in sorted({int(key.partition("/")[0]) for key in tensors})
        ]
