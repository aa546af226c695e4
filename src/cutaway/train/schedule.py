"""How large the learning rate is at each update, as a fraction of its peak."""

import math
from dataclasses import dataclass
from typing import Literal

ScheduleName = Literal["constant", "inverse_sqrt", "cosine", "wsd"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """`at(n, total)` for update n = 1, 2, … of `total`, between 0 and 1.

    Every schedule rises linearly over `warmup` updates: the first is 1/warmup, never 0, and update `warmup` is
    the peak, 1. After it:

    * constant: stays 1.
    * inverse_sqrt: √(warmup / n), the paper's (Vaswani et al. 2017, §5.3) with the peak as its unit.
    * cosine: half a cosine down to `end` (Loshchilov & Hutter 2017).
    * wsd: stays 1, then falls linearly to `end` over the last `decay` part of all updates (Hu et al. 2024, §4).

    cosine and wsd reach `end` at update total + 1, the first that is not made, so that none is wasted on a rate
    of 0. `total` may be an estimate that moves, as in a run limited by time.
    """

    name: ScheduleName = "inverse_sqrt"
    warmup: int = 0
    decay: float = 0.2
    end: float = 0.0

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}, expected at least 0 updates")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay is {self.decay}, expected a part of the run: 0 < decay <= 1")
        if not 0 <= self.end <= 1:
            raise ValueError(f"end is {self.end}, expected a fraction of the peak: 0 <= end <= 1")

    def at(self, n: int, total: float) -> float:
        """The factor for update `n` (counted from 1) of `total`."""
        if n < self.warmup:
            return n / self.warmup
        start = max(self.warmup, 1)
        if self.name == "inverse_sqrt":
            return math.sqrt(start / n)
        if self.name == "cosine":
            done = min(1.0, (n - start) / max(1.0, total + 1 - start))
            return self.end + (1 - self.end) * 0.5 * (1 + math.cos(math.pi * done))
        if self.name == "wsd":
            length = max(1.0, self.decay * total)
            left = min(1.0, max(0.0, total + 1 - n) / length)
            return self.end + (1 - self.end) * left
        return 1.0
