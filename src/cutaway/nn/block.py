"""One block: self-attention, attention to an encoder's memory where there is one, feed-forward."""

from functools import partial

from torch import Tensor, nn

from cutaway.config import ModelConfig
from cutaway.nn.attention import Attention, Rotation
from cutaway.nn.cache import KeyValues
from cutaway.nn.mlp import MLP, GatedMLP
from cutaway.nn.moe import MoE
from cutaway.nn.norm import RESIDUALS, make_norm
from cutaway.tap import tap


class Block(nn.Module):
    """Follow Figure 1 of Vaswani et al. 2017: its left column, or with `cross` its right one. With `experts`, a
    mixture of them stands in the place of the feed-forward network."""

    def __init__(self, config: ModelConfig, cross: bool, experts: bool):
        super().__init__()

        def attention() -> Attention:
            return Attention(
                config.d_model,
                config.n_heads,
                config.kv_heads,
                config.head_width,
                config.attn_bias,
                config.has_out_bias,
                config.attn_scale,
                config.attn_softcap,
                partial(make_norm, config.norm, eps=config.norm_eps) if config.qk_norm else None,
            )

        def residual() -> nn.Module:
            kind = RESIDUALS[config.norm_order]
            return kind(config.norm, config.d_model, config.norm_eps, config.dropout)

        def network(d_ff: int) -> MLP:
            kind = GatedMLP if config.gated else MLP
            return kind(config.d_model, d_ff, config.activation, config.mlp_bias)

        self.self_attn, self.self_residual = attention(), residual()
        if cross:
            self.cross_attn, self.cross_residual = attention(), residual()
        self.mlp = (
            MoE(
                config.d_model,
                config.n_experts,
                config.n_experts_per_token,
                config.experts_renormalised,
                partial(network, config.expert_width),
            )
            if experts
            else network(config.d_ff)
        )
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
