"""Multi-head attention: self or cross, full or grouped-query, with or without a cache."""

# Shapes: B batch, T queries, S keys, D width, H heads, K key/value heads, E head width.

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.cache import KeyValues
from cutaway.nn.linear import Linear
from cutaway.nn.position import Rotary
from cutaway.tap import tap, tapped

Rotation = tuple[Tensor, Tensor]  # cos and sin of this call's positions, from Rotary.angles


class Attention(nn.Module):
    """softmax(QKᵀ/√E + bias) V over H heads (Vaswani et al. 2017, §3.2).

    With fewer key/value heads than query heads, neighbouring query heads share one (Ainslie et al. 2023).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        d_head: int,
        use_bias: bool,
        out_bias: bool,
        scale: float | None = None,
        softcap: float | None = None,
        head_norm: Callable[[int], nn.Module] | None = None,
    ):
        """`head_norm` makes the norm of each head's query and key, given its width."""
        super().__init__()
        self.n_heads, self.d_head, self.groups = n_heads, d_head, n_heads // n_kv_heads
        self.scale = d_head**-0.5 if scale is None else scale
        self.softcap = softcap
        self.q_proj = Linear(d_model, n_heads * d_head, bias=use_bias)
        self.k_proj = Linear(d_model, n_kv_heads * d_head, bias=use_bias)
        self.v_proj = Linear(d_model, n_kv_heads * d_head, bias=use_bias)
        self.o_proj = Linear(n_heads * d_head, d_model, bias=out_bias)
        self.q_norm = None if head_norm is None else head_norm(d_head)
        self.k_norm = None if head_norm is None else head_norm(d_head)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
        cache: KeyValues | None = None,
    ) -> Tensor:
        """x (B, T, D) attends to itself, or to `memory` (B, S, D); bias broadcasts to (B, H, T, S).

        `cache` holds the keys and values of earlier calls; a fixed one (of a memory) is only read.
        """
        x = _for_products(x)
        q = self._heads(self.q_proj(x))
        q = tap(self, "q", q if self.q_norm is None else self.q_norm(q))  # (B, H, T, E)
        if cache is not None and cache.fixed:
            k, v = tap(self, "k", cache.keys), tap(self, "v", cache.values)  # (B, K, S, E)
        else:
            k, v = self.keys_values(x if memory is None else memory)
        if rotation is not None:
            q = tap(self, "q_rot", Rotary.rotate(q, *rotation))
            k = tap(self, "k_rot", Rotary.rotate(k, *rotation))
        if cache is not None and not cache.fixed:
            k, v = cache.append(k, v)
        z = tap(self, "z", self._attend(q, k, v, bias))  # (B, H, T, E)
        return tap(self, "out", self.o_proj(z.transpose(1, 2).flatten(2)))  # (B, T, D)

    def keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """source (B, S, D) -> keys and values, each (B, K, S, E)."""
        source = _for_products(source)
        k = self._heads(self.k_proj(source))
        k = tap(self, "k", k if self.k_norm is None else self.k_norm(k))
        v = tap(self, "v", self._heads(self.v_proj(source)))
        return k, v

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        if self.groups > 1:
            k, v = (t.repeat_interleave(self.groups, dim=1) for t in (k, v))
        seen = self.softcap is not None or tapped(self, "scores", "scaled", "masked", "pattern")
        if not seen and not _explicit_is_faster(q, k):
            if bias is not None:
                bias = bias.to(q.dtype)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=self.scale)
        scores = tap(self, "scores", q @ k.mT)  # (B, H, T, S)
        scaled = tap(self, "scaled", scores * self.scale)
        capped = scaled if self.softcap is None else soft_cap(scaled, self.softcap)
        masked = tap(self, "masked", capped if bias is None else capped + bias)
        pattern = tap(self, "pattern", softmax_over_keys(masked))
        return pattern.to(v.dtype) @ v

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.d_head)).transpose(1, 2)


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """cap·tanh(x/cap): nearly x while small, never beyond ±cap (Gemma 2, §2)."""
    return (x / cap).tanh() * cap


def softmax_over_keys(masked: Tensor) -> Tensor:
    """Softmax over the last dimension in fp32; a row that may see no key at all gives zeros, not NaN."""
    masked = masked.float()
    blind = masked.amax(dim=-1, keepdim=True) == -math.inf
    # the zeros before the softmax are for its gradient alone
    if not torch.is_grad_enabled():
        return masked.softmax(dim=-1).masked_fill_(blind, 0.0)
    return masked.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def _for_products(x: Tensor) -> Tensor:
    """Under autocast, cast what several products share once and not once each."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def _explicit_is_faster(q: Tensor, k: Tensor) -> bool:
    """Whether the explicit product trains faster than the fused kernel: in bf16 on a CPU, up to about 128 keys,
    where the fused kernel's backward pass is slow (benchmarks/attention.py measures it)."""
    on_cpu = torch.is_grad_enabled() and q.device.type == "cpu"
    return on_cpu and q.dtype == torch.bfloat16 and k.shape[-2] <= 128
