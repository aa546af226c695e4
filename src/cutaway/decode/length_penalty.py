"""How the scores of hypotheses of different lengths compare."""

from dataclasses import dataclass
from typing import Literal

from cutaway.errors import CutawayError


@dataclass(frozen=True)
class LengthPenalty:
    """A hypothesis' score is its sum of log-probabilities divided by `divisor(length)`.

    The length counts every new token, the end token too. `gnmt` divides by ((5 + length) / 6)^alpha (Wu et al.
    2016, §7, equation 14), `power` by length^alpha (the convention of transformers and OpenNMT; 1 gives the mean).
    Without either, alpha 0, short results win.
    """

    alpha: float = 0.6
    kind: Literal["gnmt", "power"] = "gnmt"

    def __post_init__(self) -> None:
        if not -10 <= self.alpha <= 10:
            raise CutawayError(
                "length penalty alpha is {alpha}, expected a number from -10 to 10 (0.6 is usual)",
                alpha=self.alpha,
            )
        if self.kind not in ("gnmt", "power"):
            raise CutawayError("length penalty kind is {kind!r}, expected 'gnmt' or 'power'", kind=self.kind)

    def divisor(self, length: int) -> float:
        return ((5 + length) / 6 if self.kind == "gnmt" else float(length)) ** self.alpha

    def best_attainable(self, total: float, length: int, most: int) -> float:
        """The best score that a live hypothesis of `length` tokens and log-probability `total` can still end
        with, at most `most` tokens long: nothing it adds raises the total, and of the divisors ahead the greatest
        helps most, which is the last one where alpha is positive and else the next one."""
        return total / self.divisor(most if self.alpha > 0 else length + 1)
