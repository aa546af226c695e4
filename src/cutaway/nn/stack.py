"""N blocks one after another: an encoder, or a decoder with its causal mask."""

import torch
from torch import Tensor, nn

from cutaway.config import ModelConfig
from cutaway.nn import bias as biases
from cutaway.nn.block import Block
from cutaway.nn.cache import Cache
from cutaway.nn.norm import make_norm
from cutaway.nn.position import Rotary
from cutaway.tap import tap


class Stack(nn.Module):
    """The left or right half of the figure. `causal`: no token sees a later one. `cross`: every block also
    attends to an encoder's memory."""

    def __init__(self, config: ModelConfig, n_layers: int, causal: bool, cross: bool = False):
        super().__init__()
        self.causal = causal
        self.rotary = self.local_rotary = None
        if config.position == "rotary":
            self.rotary = Rotary(config.head_width, config.rope_base, config.rope_scaling)
            if config.rope_local_base is not None:
                self.local_rotary = Rotary(config.head_width, config.rope_local_base)
        self.window, self.window_layers = config.window, frozenset(config.window_layers)
        self.relative: biases.RelativeBias | biases.AlibiBias | None = None
        if config.position in ("relative", "learned_relative"):
            buckets, distance = config.relative_buckets, config.relative_max_distance
            self.relative = biases.RelativeBias(config.n_heads, buckets, distance, bidirectional=not causal)
        elif config.position == "alibi":
            self.relative = biases.AlibiBias(config.n_heads)
        experts = [config.n_experts > 0 and i not in config.dense_layers for i in range(n_layers)]
        self.layers = nn.ModuleList(Block(config, cross, experts[i]) for i in range(n_layers))
        self.norm = (
            make_norm(config.norm, config.d_model, config.norm_eps)
            if config.has_final_norm
            else nn.Identity()
        )

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        documents: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Cache | None = None,
        first: int = 0,
    ) -> Tensor:
        """x (B, T, D) at positions (B | 1, T) -> (B, T, D).

        mask (B, S) is False at padding; documents (B, T) keeps packed documents apart. With a cache, x are the
        newest T of S = cache.length positions and mask covers all S. x enters block number `first`; those before it
        do not run.
        """
        rotation = local_rotation = None if self.rotary is None else self.rotary.angles(positions)
        if self.local_rotary is not None:
            local_rotation = self.local_rotary.angles(positions)
        # what stands at padding has no influence, whatever it holds: NaN would reach through the mask
        if mask is not None:
            x = x.masked_fill(~mask[:, -x.shape[1] :, None], 0.0)
        n_keys = x.shape[1] if cache is None else cache.length
        bias = local_bias = self._bias(x, n_keys, mask, documents)
        if self.window is not None and n_keys > self.window:
            far = biases.window_bias(x.shape[1], n_keys, self.window, torch.float32, x.device)
            local_bias = biases.add(bias, far)
        memory_bias = None if memory_mask is None else biases.key_bias(memory_mask, torch.float32)
        for i, layer in enumerate(self.layers):
            if i < first:
                continue
            self_cache = None if cache is None else cache.self_attn[i]
            cross_cache = None if cache is None or cache.cross_attn is None else cache.cross_attn[i]
            near = (local_bias, local_rotation) if i in self.window_layers else (bias, rotation)
            x = layer(x, *near, memory, memory_bias, self_cache, cross_cache)
        return tap(self, "normed", self.norm(x))

    def _bias(self, x: Tensor, n_keys: int, mask: Tensor | None, documents: Tensor | None) -> Tensor | None:
        n_queries = x.shape[1]
        causal = self.causal and n_queries > 1  # a single newest token may see everything so far
        return biases.add(
            biases.causal_bias(n_queries, n_keys, torch.float32, x.device) if causal else None,
            None if mask is None else biases.key_bias(mask, torch.float32),
            None if documents is None else biases.document_bias(documents, torch.float32),
            None if self.relative is None else self.relative(n_queries, n_keys),
        )
