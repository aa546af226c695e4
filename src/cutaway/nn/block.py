"""One block: self-attention, attention to an encoder's memory where there is one, feed-forward."""

from functools import partial

from torch import Tensor, nn

from cutaway.config import ModelConfig
from cutaway.nn.attention import Attention, Rotation
from cutaway.nn.cache import KeyValues
from cutaway.nn.mlp import MLP, GatedMLP
from cutaway.nn.norm import RESIDUALS
from cutaway.tap import tap


class Block(nn.Module):
    """Follow Figure 1 of Vaswani et al. 2017: its left column, or with `cross` its right one."""

    def __init__(self, config: ModelConfig, cross: bool):
        super().__init__()

        def attention() -> Attention:
            eps = config.norm_eps if config.qk_norm else None
            heads = (config.n_heads, config.kv_heads, config.head_width)
            return Attention(config.d_model, *heads, config.attn_bias, config.attn_scale, eps)

        def residual() -> nn.Module:
            kind = RESIDUALS[config.norm_order]
            return kind(config.norm, config.d_model, config.norm_eps, config.dropout)

        mlp = GatedMLP if config.gated else MLP
        self.self_attn, self.self_residual = attention(), residual()
        if cross:
            self.cross_attn, self.cross_residual = attention(), residual()
        self.mlp = mlp(config.d_model, config.d_ff, config.activation, config.mlp_bias)
        self.mlp_residual = residual()
        self.cross = cross

    def forward(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
        memory: Tensor | None = None,
        memory_bias: Tensor | None = None,
        self_cache: KeyValues | None = None,
        cross_cache: KeyValues | None = None,
    ) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        x = tap(self, "resid_pre", x)
        x = self.self_residual(x, partial(self.self_attn, bias=bias, rotation=rotation, cache=self_cache))
        x = tap(self, "resid_mid", x)
        if self.cross:
            x = self.cross_residual(
                x, partial(self.cross_attn, memory=memory, bias=memory_bias, cache=cross_cache)
            )
            x = tap(self, "resid_cross", x)
        return tap(self, "resid_post", self.mlp_residual(x, self.mlp))
