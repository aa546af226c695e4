"""Normalisation, and where a sublayer's norm stands."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.tap import tap


class RMSNorm1P(nn.RMSNorm):
    """RMSNorm scaled by 1 + weight, so that weight decay pulls towards plain normalisation (Gemma)."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight + 1, self.eps)


NORMS: dict[str, type[nn.LayerNorm] | type[nn.RMSNorm]] = {
    "layernorm": nn.LayerNorm,
    "rmsnorm": nn.RMSNorm,
    "rmsnorm1p": RMSNorm1P,
}


def make_norm(kind: str, width: int, eps: float) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019) over the last dimension."""
    return NORMS[kind](width, eps=eps)


class PreNorm(nn.Module):
    """x + sublayer(norm(x)): the residual stream itself is never normalised (Xiong et al. 2020)."""

    def __init__(self, kind: str, width: int, eps: float, dropout: float):
        super().__init__()
        self.norm = make_norm(kind, width, eps)
        self.dropout = nn.Dropout(dropout) if dropout else None

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropped(sublayer(self.normed(x)))

    def normed(self, x: Tensor) -> Tensor:
        """What the sublayer reads."""
        return tap(self, "normed", self.norm(x))

    def dropped(self, out: Tensor) -> Tensor:
        return out if self.dropout is None else self.dropout(out)


class PostNorm(PreNorm):
    """norm(x + sublayer(x)): the original Transformer's Add & Norm (Vaswani et al. 2017, §3.1)."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropped(sublayer(x)))


class SandwichNorm(PreNorm):
    """x + out_norm(sublayer(norm(x))): what a sublayer writes is normalised too (Gemma 2, §2)."""

    def __init__(self, kind: str, width: int, eps: float, dropout: float):
        super().__init__(kind, width, eps, dropout)
        self.out_norm = make_norm(kind, width, eps)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropped(self.out_norm(sublayer(self.normed(x))))


RESIDUALS: dict[str, type[PreNorm]] = {"pre": PreNorm, "post": PostNorm, "sandwich": SandwichNorm}
