"""Everything that is added to attention scores: masks and relative positions, as one additive bias.

Built once a forward pass, outside the layers. A mask is True where there is a token. Positions count along
the key axis: query t of T stands at key S - T + t, so that a cache only makes S longer.
"""

import math

import torch
from torch import Tensor, nn

from cutaway.nn.init import empty_table


def key_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """mask (B, S) -> (B, 1, 1, S): 0 where there is a token, -inf where there is padding."""
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return bias.masked_fill_(~mask, -math.inf)[:, None, None, :]


def causal_bias(n_queries: int, n_keys: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(T, S): -inf where a query would see a later key."""
    bias = torch.full((n_queries, n_keys), -math.inf, dtype=dtype, device=device)
    return bias.triu_(n_keys - n_queries + 1)


def window_bias(n_queries: int, n_keys: int, window: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(T, S): -inf where a key lies `window` or more tokens before the query (Mistral: Jiang et al. 2023, §2)."""
    bias = torch.full((n_queries, n_keys), -math.inf, dtype=dtype, device=device)
    return bias.tril_(n_keys - n_queries - window)


def document_bias(documents: Tensor, dtype: torch.dtype) -> Tensor:
    """documents (B, T), one number a token -> (B, 1, T, T): -inf between tokens of different documents."""
    apart = documents[:, :, None] != documents[:, None, :]
    bias = torch.zeros(apart.shape, dtype=dtype, device=documents.device)
    return bias.masked_fill_(apart, -math.inf)[:, None]


def add(*parts: Tensor | None) -> Tensor | None:
    """The sum of the biases that are there, or None when none is."""
    total: Tensor | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total


def _distance(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """(T, S): key position minus query position."""
    keys = torch.arange(n_keys, device=device)
    return keys[None, :] - keys[n_keys - n_queries :, None]


class RelativeBias(nn.Module):
    """T5's learned bias per head and bucket of distance (Raffel et al. 2020, §2.1): half of the buckets are
    exact distances, the others grow logarithmically up to `max_distance`."""

    def __init__(self, n_heads: int, buckets: int, max_distance: int, bidirectional: bool):
        super().__init__()
        self.table = empty_table(buckets, n_heads)
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional

    def forward(self, n_queries: int, n_keys: int) -> Tensor:
        """-> (1, H, T, S)."""
        bucket = self.bucket(_distance(n_queries, n_keys, self.table.weight.device))
        return self.table(bucket).permute(2, 0, 1)[None]

    def bucket(self, distance: Tensor) -> Tensor:
        """Key position minus query position -> the row of the table."""
        buckets, base = self.buckets, torch.zeros_like(distance)
        if self.bidirectional:
            buckets //= 2
            base = (distance > 0).long() * buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        ratio = torch.log(distance.float().clamp(min=1) / exact) / math.log(self.max_distance / exact)
        far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return base + torch.where(distance < exact, distance, far)


class AlibiBias(nn.Module):
    """ALiBi: a penalty that grows linearly with distance, with a fixed slope per head (Press et al. 2022)."""

    slopes: Tensor

    def __init__(self, n_heads: int):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(self._slopes(n_heads), device="cpu"), persistent=False)

    @classmethod
    def _slopes(cls, n_heads: int) -> list[float]:
        power = 2 ** math.floor(math.log2(n_heads))
        slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
        # the paper's code takes every other slope of twice as many heads
        if power < n_heads:
            slopes += cls._slopes(2 * power)[::2][: n_heads - power]
        return slopes

    def forward(self, n_queries: int, n_keys: int) -> Tensor:
        """-> (1, H, T, S)."""
        distance = _distance(n_queries, n_keys, self.slopes.device).abs()
        return -(self.slopes[:, None, None] * distance)[None]
