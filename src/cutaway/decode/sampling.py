"""How the next token is chosen from the logits: the best one, or one drawn from a distribution cut to shape."""

# Shapes: R rows still being decoded, V vocabulary.

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.errors import CutawayError

# Logits come in fp32: a probability, or the sum of some, is known to about this much, so that a mass this close
# below p counts as p. Without it 0.5 + 0.3 would miss top_p 0.8 by rounding.
RESOLUTION = 1e-6
_BLOCK = 64  # uniform numbers a row draws at a time


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. The filters apply in the order of the fields, each to what the one before left.

    `temperature` 0 or `top_p` 0 takes the most probable token, and then only the penalty has an effect.
    `repetition_penalty` (Keskar et al. 2019, §4.1) divides positive scores and multiplies negative ones, for every
    token that already stands in the row, prompt included. The scores are the logits, in a beam search the
    log-probabilities, which are not made to sum to 1 again: so does transformers (`GenerationMixin._beam_search`), for
    which models choose their penalty. `seed` and the row's number alone decide a row's draws.
    """

    repetition_penalty: float = 1.0
    temperature: float = 0.0
    top_k: int = 0  # keep the k best; 0 keeps all
    # keep the fewest best ones that together have this mass (Holtzman et al. 2020, §3.1)
    top_p: float = 1.0
    # keep those with at least this share of the best one's probability (Nguyen et al. 2024)
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.repetition_penalty > 0 and math.isfinite(self.repetition_penalty)):
            raise CutawayError(
                "repetition_penalty is {penalty}, expected a number above 0 (1 changes nothing)",
                penalty=self.repetition_penalty,
            )
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise CutawayError(
                "temperature is {temperature}, expected 0 or more (0 takes the most probable token)",
                temperature=self.temperature,
            )
        if self.top_k < 0:
            raise CutawayError("top_k is {top_k}, expected 0 (off) or a count of tokens", top_k=self.top_k)
        if not 0 <= self.top_p <= 1:
            raise CutawayError(
                "top_p is {top_p}, expected a share from 0 (the most probable token) to 1 (off)",
                top_p=self.top_p,
            )
        if not 0 <= self.min_p <= 1:
            raise CutawayError("min_p is {min_p}, expected a share from 0 (off) to 1", min_p=self.min_p)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0 or self.top_p == 0


def penalise_repetition(scores: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """scores (R, V) with those of `seen` (R, V) tokens made less likely, whatever their sign."""
    return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """logits (R, V) with all but the k greatest of each row at -inf; exactly k stay, or all V if k is more."""
    if k >= logits.shape[-1]:
        return logits
    values, index = logits.topk(k, dim=-1)
    return torch.full_like(logits, -math.inf).scatter_(-1, index, values)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """logits (R, V) with all but the nucleus at -inf: the smallest set of best tokens with mass >= p."""
    ranked, index = logits.double().sort(dim=-1, descending=True, stable=True)
    probability = ranked.softmax(dim=-1)
    before = probability.cumsum(dim=-1) - probability  # the mass of all better ones
    keep = before < p - RESOLUTION
    keep[..., 0] = True
    return logits.masked_fill(~torch.zeros_like(keep).scatter_(-1, index, keep), -math.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """logits (R, V) with those at -inf whose probability is less than p times the greatest one's."""
    if p == 0:
        return logits
    threshold = logits.amax(dim=-1, keepdim=True) + math.log(p) - RESOLUTION
    return logits.masked_fill(logits < threshold, -math.inf)


def shape(logits: Tensor, sampling: Sampling) -> Tensor:
    """Temperature and filters: logits (R, V) -> (R, V) float64, -inf where a token cannot be drawn."""
    best = logits.amax(dim=-1, keepdim=True)  # subtracted first, so that no small temperature overflows
    shaped = (logits - best).double() / sampling.temperature
    if sampling.top_k:
        shaped = keep_top_k(shaped, sampling.top_k)
    if sampling.top_p < 1:
        shaped = keep_top_p(shaped, sampling.top_p)
    return keep_min_p(shaped, sampling.min_p)


def draw(shaped: Tensor, uniform: Tensor) -> Tensor:
    """Inverse-transform sampling: logits (R, V) and numbers in [0, 1) (R,) -> ids (R,)."""
    mass = shaped.double().softmax(dim=-1).cumsum(dim=-1)
    target = uniform[:, None] * mass[:, -1:]
    return torch.searchsorted(mass, target, right=True)[:, 0]


def row_seed(seed: int, row: int) -> int:
    """The seed of one row's own random numbers, far from those of its neighbours."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{row}".encode(), digest_size=4).digest())


class Draws:
    """Uniform numbers in [0, 1), one stream a row: what a row draws depends on its seed and on nothing else."""

    def __init__(self, seeds: Sequence[int]):
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._block = torch.empty(len(seeds), _BLOCK, dtype=torch.float64)
        self._used = _BLOCK

    def select(self, rows: Tensor) -> None:
        """Go on with these rows only, in this order."""
        self._generators = [self._generators[row] for row in rows.tolist()]
        self._block = self._block[rows.cpu()]

    def next(self) -> Tensor:
        """The next number of every row: (R,) float64."""
        if self._used == _BLOCK:
            drawn = [torch.rand(_BLOCK, dtype=torch.float64, generator=each) for each in self._generators]
            self._block = torch.stack(drawn)
            self._used = 0
        self._used += 1
        return self._block[:, self._used - 1]
