"""What decoding needs of a model: one step at a time, the rows of its cache, and on request its cross-attention."""

# Shapes: R rows still being decoded, V vocabulary, L layers, H heads, S source tokens.

from collections.abc import Sequence
from typing import Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from cutaway.errors import CutawayError
from cutaway.tap import Trace

# "mean": one weight per source token, averaged over layers and heads; "full": every layer and head.
Attention = Literal["mean", "full"] | None

CROSS_ATTENTION = "decoder.layers.*.cross_attn.pattern"


class RowCache(Protocol):
    """The part of a cache that decoding touches: its rows."""

    def select(self, rows: Tensor, same_source: bool = False) -> None: ...


C = TypeVar("C", bound=RowCache)
C_contra = TypeVar("C_contra", bound=RowCache, contravariant=True)


class StepModel(Protocol[C_contra]):
    """Anything that continues rows of ids (R, T) with logits (R, V) fp32, advancing its cache."""

    def step(self, ids: Tensor, cache: C_contra, mask: Tensor | None = None) -> Tensor: ...


class Stepper(Generic[C]):
    """Runs a model's steps, keeping the cross-attention of each when it is asked for."""

    def __init__(self, model: StepModel[C], cache: C, attention: Attention = None):
        self._model, self._cache, self._attention = model, cache, attention
        parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        self.device = torch.device("cpu") if parameter is None else parameter.device
        if attention is None:
            self._trace = None
        elif isinstance(model, nn.Module):
            self._trace = Trace(model, {CROSS_ATTENTION: _reduce_heads if attention == "mean" else _newest})
        else:
            raise CutawayError(
                "{name} is no torch module: its attention cannot be seen", name=type(model).__name__
            )

    def step(self, ids: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """ids (R, T) -> logits (R, V), and the newest token's cross-attention (R, S) or (R, L, H, S)."""
        if self._trace is None:
            return self._model.step(ids, self._cache, mask), None
        try:
            with self._trace:
                logits = self._model.step(ids, self._cache, mask)
        except LookupError as error:
            raise CutawayError("this model has no cross-attention: it reads no source text") from error
        layers = torch.stack([calls.pop() for calls in self._trace.calls.values()], dim=1)
        return logits, layers.mean(dim=1) if self._attention == "mean" else layers

    def select(self, rows: Tensor, same_source: bool = False) -> None:
        self._cache.select(rows, same_source)


def _newest(pattern: Tensor) -> Tensor:
    return pattern[:, :, -1]  # (R, H, S)


def _reduce_heads(pattern: Tensor) -> Tensor:
    return pattern[:, :, -1].mean(dim=1)  # (R, S)


def stack_attention(steps: Sequence[Tensor]) -> Tensor | None:
    """Each new token's cross-attention (S,) or (L, H, S), T of them -> (T, S) or (L, H, T, S)."""
    return torch.stack(list(steps), dim=-2) if steps else None
