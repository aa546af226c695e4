"""Where a token stands: tables that are added to token vectors, and rotations of queries and keys."""

import torch
from torch import Tensor, nn


def sinusoids(length: int, width: int, layout: str = "halves") -> Tensor:
    """The fixed table of Vaswani et al. 2017, §3.5: (length, width) fp32.

    PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(same), with the sines in the first half of
    the columns and the cosines in the second, as published checkpoints store them. `halves_m2m` spreads the
    frequencies over width/2 - 1 steps, as tensor2tensor, fairseq and M2M100 do.
    """
    half = width // 2
    steps = half - 1 if layout == "halves_m2m" else half
    frequency = torch.exp(
        -torch.arange(half, dtype=torch.float64) / max(steps, 1) * torch.log(torch.tensor(1e4))
    )
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency  # (length, width/2)
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


class Sinusoidal(nn.Module):
    """Looks positions up in the fixed sinusoid table; nothing is trained and nothing is stored."""

    table: Tensor

    def __init__(self, length: int, width: int, layout: str):
        super().__init__()
        self.register_buffer("table", sinusoids(length, width, layout), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """positions (B | 1, T) -> (B | 1, T, D)."""
        return self.table[positions]


class Rotary(nn.Module):
    """Rotates pairs of query and key coordinates by an angle that grows with position (Su et al. 2021).

    Pairs are (i, i + E/2), the layout of published checkpoints. Angles are computed in fp32 whatever the
    weights' type, so that distant positions stay exact.
    """

    frequency: Tensor

    def __init__(self, d_head: int, base: float):
        super().__init__()
        self.d_head, self.base = d_head, base
        self.register_buffer("frequency", self._frequencies(), persistent=False)

    def _frequencies(self) -> Tensor:
        return self.base ** -(torch.arange(0, self.d_head, 2, dtype=torch.float32) / self.d_head)

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions (B | 1, T) -> cos, sin, each (B | 1, 1, T, E) fp32."""
        frequency = self.frequency
        if frequency.dtype != torch.float32:  # a model cast to 16 bits must not round its angles
            frequency = self._frequencies().to(frequency.device)
        angle = positions.to(torch.float32)[:, None, :, None] * frequency
        return angle.cos().repeat(1, 1, 1, 2), angle.sin().repeat(1, 1, 1, 2)

    @staticmethod
    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x (B, H, T, E) turned by the given angles, in x's type."""
        first, second = x.chunk(2, dim=-1)
        return (x * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)
