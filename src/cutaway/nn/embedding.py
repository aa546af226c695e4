"""From token ids to vectors: the token's own, its position's, its segment's."""

import torch
from torch import Tensor, nn

from cutaway.config import ModelConfig
from cutaway.nn.init import empty_table
from cutaway.nn.norm import make_norm
from cutaway.nn.position import Sinusoidal
from cutaway.tap import tap


class Embedding(nn.Module):
    """tokens(ids) · scale + position (+ segment), normalised where the architecture does so.

    Vaswani et al. 2017, §3.4–3.5; segments as in BERT (Devlin et al. 2019, §3).
    """

    def __init__(self, config: ModelConfig, tokens: nn.Embedding | None = None):
        super().__init__()
        self.tokens = empty_table(config.vocab_size, config.d_model) if tokens is None else tokens
        self.scale, self.offset = config.embed_scale, config.position_offset
        rows = config.max_len + config.position_offset
        self.positions: nn.Embedding | Sinusoidal | None = None
        if config.position in ("learned", "learned_relative"):
            self.positions = empty_table(rows, config.d_model)
        elif config.position == "sinusoidal":
            self.positions = Sinusoidal(rows, config.d_model, config.sinusoid)
        self.segments = empty_table(config.n_segments, config.d_model) if config.n_segments else None
        self.norm = (
            make_norm(config.norm, config.d_model, config.norm_eps) if config.embed_norm else nn.Identity()
        )
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()

    def forward(self, ids: Tensor, positions: Tensor, segments: Tensor | None = None) -> Tensor:
        """ids (B, T) at positions (B | 1, T), segments (B, T) or None for all zero -> (B, T, D)."""
        x = tap(self, "embed", self.tokens(ids) * self.scale)
        if self.positions is not None:
            x = x + tap(self, "position", self.positions(positions + self.offset).to(x.dtype))
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        return self.dropout(self.norm(x))


def token_positions(mask: Tensor | None, n_tokens: int, start: int, device: torch.device) -> Tensor:
    """Positions of the newest `n_tokens`: (1, T) counted from `start`, or (B, T) counted over the real tokens
    of `mask` (B, start + T), so that padding on the left shifts nothing."""
    if mask is None:
        return torch.arange(start, start + n_tokens, device=device)[None]
    return (mask.long().cumsum(dim=1) - 1).clamp(min=0)[:, -n_tokens:]
