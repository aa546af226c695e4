"""What decoding is asked for: how results are searched for and ranked, and how long they may be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from cutaway.decode.sampling import Sampling
from cutaway.errors import CutawayError

# "mean": one weight per source token, averaged over layers and heads; "full": every layer and head.
Attention = Literal["mean", "full"] | None

MAX_BEAM = 32
MAX_ALTERNATIVES = 20


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


@dataclass(frozen=True)
class Candidate:
    """One continuation that a step of the search weighed."""

    parent: int  # which live hypothesis of the step before it continues; 0 in the first step
    id: int
    total: float  # sum of log-probabilities up to here
    fate: Literal["live", "stop", "length", "dropped"]


@dataclass(frozen=True)
class BeamStep:
    """One sentence's step, for drawing the tree: its candidates, best first. The live ones, in this order, are the
    parents of the next step."""

    row: int
    length: int
    candidates: list[Candidate]


@dataclass(frozen=True, kw_only=True)
class Search:
    """How results are found, and what is kept of the way there.

    `beam` 1 takes one token after another: the most probable one, or a drawn one where `sampling` has a temperature. A
    wider beam keeps that many hypotheses side by side, and gives the `n_best` of what they lead to. Results are scored
    and ranked by `length_penalty` either way.
    """

    beam: int = 1
    n_best: int = 1
    length_penalty: LengthPenalty = field(default_factory=LengthPenalty)
    sampling: Sampling = field(default_factory=Sampling)
    alternatives: int = 0  # how many of the most probable tokens to keep at each place
    attention: Attention = None  # which cross-attention of an encoder-decoder to keep
    observe: Callable[[BeamStep], None] | None = None  # hears every step of a wider beam

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= MAX_BEAM:
            raise CutawayError("beam is {beam}, expected 1 to {most}", beam=self.beam, most=MAX_BEAM)
        if not 1 <= self.n_best <= self.beam:
            raise CutawayError(
                "n_best is {n_best}, expected 1 to the beam's width ({beam})",
                n_best=self.n_best,
                beam=self.beam,
            )
        if self.beam != 1 and not self.sampling.greedy:
            raise CutawayError(
                "temperature is {temperature} and beam is {beam}: sampling needs beam 1",
                temperature=self.sampling.temperature,
                beam=self.beam,
            )
        if not 0 <= self.alternatives <= MAX_ALTERNATIVES:
            raise CutawayError(
                "alternatives is {alternatives}, expected 0 to {most}",
                alternatives=self.alternatives,
                most=MAX_ALTERNATIVES,
            )
        if self.attention not in (None, "mean", "full"):
            raise CutawayError(
                "attention is {attention!r}, expected 'mean', 'full' or None", attention=self.attention
            )


@dataclass(frozen=True)
class Limits:
    """How long a result may be. Counts are of new tokens, whatever the prompt's length.

    `max_new_tokens` counts every token, the end token too; None stands for what is usual where it is asked.
    `min_new_tokens` counts those before the end token, which is impossible until then. `max_len`, the model's
    positions, holds the prompt and the new tokens.
    """

    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    max_len: int | None = None

    def __post_init__(self) -> None:
        most = self.max_new_tokens
        if most is not None and most < 1:
            raise CutawayError("max_new_tokens is {most}, expected at least 1", most=most)
        if self.min_new_tokens < 0:
            raise CutawayError("min_new_tokens is {least}, expected 0 or more", least=self.min_new_tokens)
        if most is not None and self.min_new_tokens > most:
            raise CutawayError(
                "min_new_tokens is {least}, expected at most max_new_tokens ({most})",
                least=self.min_new_tokens,
                most=most,
            )

    def within(self, max_len: int, usual: int) -> "Limits":
        """These limits in a model of `max_len` positions; where no greatest number was given it is `usual`."""
        most = max(usual, self.min_new_tokens) if self.max_new_tokens is None else self.max_new_tokens
        return replace(self, max_new_tokens=most, max_len=max_len)

    def room(self, prompt: Sequence[int]) -> int:
        """The most tokens this prompt can get. Raises CutawayError when not even one fits, or nothing limits them."""
        bounds = [] if self.max_new_tokens is None else [self.max_new_tokens]
        if self.max_len is not None:
            if len(prompt) >= self.max_len:
                raise CutawayError(
                    "the prompt has {count} tokens, but this model's limit is {max_len} positions for "
                    "prompt and continuation together; shorten the prompt",
                    count=len(prompt),
                    max_len=self.max_len,
                )
            bounds.append(self.max_len - len(prompt))
        if not bounds:
            raise CutawayError("nothing limits the result: give max_new_tokens or max_len")
        return min(bounds)


GREEDY = Search()
USUAL = Limits()
