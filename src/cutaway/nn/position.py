"""Where a token stands: tables that are added to token vectors, and rotations of queries and keys."""

import math

import torch
from torch import Tensor, nn

from cutaway.config import RopeScaling


def sinusoids(length: int, width: int, layout: str = "halves") -> Tensor:
    """The fixed table of Vaswani et al. 2017, §3.5: (length, width) fp32.

    PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(same), with the sines in the first half of
    the columns and the cosines in the second, as published checkpoints store them. `halves_m2m` spreads the
    frequencies over width/2 - 1 steps, as tensor2tensor, fairseq and M2M100 do.
    """
    half = width // 2
    steps = half - 1 if layout == "halves_m2m" else half
    # Fixed tables are real numbers on the CPU even where parameters are built without storage, on the meta device.
    place = {"dtype": torch.float64, "device": "cpu"}
    frequency = torch.exp(-torch.arange(half, **place) / max(steps, 1) * math.log(1e4))
    angle = torch.arange(length, **place)[:, None] * frequency  # (length, width/2)
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

    def __init__(self, d_head: int, base: float, scaling: RopeScaling | None = None):
        super().__init__()
        self.d_head, self.base, self.scaling = d_head, base, scaling
        self.register_buffer("frequency", self._frequencies(), persistent=False)
        self.amplitude = 1.0
        if scaling is not None and scaling.kind == "yarn":
            recommended = 0.1 * math.log(scaling.factor) + 1 if scaling.factor > 1 else 1.0
            self.amplitude = recommended if scaling.attention_factor is None else scaling.attention_factor

    def _frequencies(self) -> Tensor:
        """(E/2,) fp32: the angle each pair turns by from one position to the next."""
        exponents = torch.arange(0, self.d_head, 2, dtype=torch.float32, device="cpu") / self.d_head
        frequency = self.base**-exponents
        return frequency if self.scaling is None else scaled_frequencies(frequency, self.base, self.scaling)

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions (B | 1, T) -> cos, sin, each (B | 1, 1, T, E) fp32."""
        frequency = self.frequency
        # a model cast to 16 bits must not round its angles
        if frequency.dtype != torch.float32:
            frequency = self._frequencies().to(frequency.device)
        angle = positions.to(torch.float32)[:, None, :, None] * frequency
        cos, sin = angle.cos() * self.amplitude, angle.sin() * self.amplitude
        return cos.repeat(1, 1, 1, 2), sin.repeat(1, 1, 1, 2)

    @staticmethod
    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x (B, H, T, E) turned by the given angles, in x's type."""
        first, second = x.chunk(2, dim=-1)
        return (x * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)


def scaled_frequencies(frequency: Tensor, base: float, scaling: RopeScaling) -> Tensor:
    """Rotary frequencies (E/2,) fp32 stretched for longer texts; see `config.RopeScaling` for the kinds."""
    if scaling.kind == "dynamic":
        return frequency
    slow = frequency / scaling.factor
    if scaling.kind == "linear":
        return slow
    assert scaling.original_max_len is not None, "checked by the config"
    if scaling.kind == "llama3":
        turns = scaling.original_max_len * frequency / (2 * math.pi)  # within the length first trained at
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        kept = ((turns - low) / (high - low)).clamp(0, 1)
    else:
        half = len(frequency)

        def pair(turns: float) -> float:
            """Which pair of coordinates turns so many times within the length first trained at."""
            return half * math.log((scaling.original_max_len or 1) / (turns * 2 * math.pi)) / math.log(base)

        first = max(math.floor(pair(scaling.beta_fast)), 0)
        last = min(math.ceil(pair(scaling.beta_slow)), 2 * half - 1)
        width = max(last - first, 1e-3)  # where both are the same pair, a step
        kept = 1 - ((torch.arange(half, dtype=torch.float32, device="cpu") - first) / width).clamp(0, 1)
    return slow * (1 - kept) + frequency * kept
