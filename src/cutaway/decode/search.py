"""What decoding is asked for: how results are searched for and ranked, and how long they may be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from cutaway.decode.sampling import Sampling
from cutaway.errors import CutawayError
from cutaway.words import Phrase, say

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
    parents of the next step. `attention` is the cross-attention of each parent, with which its continuations were
    chosen: (K, S), or (K, L, H, S) of every layer and head; None where the search keeps none."""

    row: int
    length: int
    candidates: list[Candidate]
    attention: Tensor | None = None


@dataclass(frozen=True)
class Rules:
    """What may not be written, and how a text at its limit ends: settings that belong to a model, as transformers'
    keys of these names have them (`no_repeat_ngram_size`, `suppress_tokens`, `begin_suppress_tokens`, `bad_words_ids`,
    `forced_eos_token_id`). What stands in a row counts with its prompt: that of the decoder, where there are two sides.
    """

    no_repeat_ngram: int = 0  # no n tokens in a row come twice; 0: they may
    suppressed: tuple[int, ...] = ()  # never written
    suppressed_first: tuple[int, ...] = ()  # never the first new token
    bad_words: tuple[tuple[int, ...], ...] = ()  # never written in this order
    end_at_limit: tuple[int, ...] = ()  # one of them is the last token of a result that reaches its limit

    def __post_init__(self) -> None:
        if self.no_repeat_ngram < 0:
            raise CutawayError(
                "no_repeat_ngram is {size}, expected 0 (off) or a count of tokens", size=self.no_repeat_ngram
            )
        if not all(self.bad_words):
            raise CutawayError("bad_words has an empty one, expected ids in each")


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
    rules: Rules | None = None  # None: the model's own, where a checkpoint is asked; else none
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
    """How long a result may be.

    `max_new_tokens` and `min_new_tokens` count new tokens, whatever the prompt's length: the one every token, the end
    token too; the other those before the end token, which is impossible until then. `max_len` and `min_len` count the
    prompt as well: the model's positions hold both. None stands for what is usual where it is asked. `min_len` gives
    way to `max_new_tokens`; a minimum that the positions cannot hold is an error.
    """

    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    max_len: int | None = None
    min_len: int = 0

    def __post_init__(self) -> None:
        most = self.max_new_tokens
        if most is not None and most < 0:
            raise CutawayError("max_new_tokens is {most}, expected 0 or more", most=most)
        if self.min_new_tokens < 0:
            raise CutawayError("min_new_tokens is {least}, expected 0 or more", least=self.min_new_tokens)
        if most is not None and self.min_new_tokens > most:
            raise CutawayError(
                "min_new_tokens is {least}, expected at most max_new_tokens ({most})",
                least=self.min_new_tokens,
                most=most,
            )

    def within(self, max_len: int, usual: int) -> "Limits":
        """These limits in a model of `max_len` positions; where nothing else limits a result it has at most `usual`
        new tokens."""
        if self.max_len is not None:
            return replace(self, max_len=min(max_len, self.max_len))
        most = self.max_new_tokens
        if most is None:
            most = max(usual, self.min_new_tokens, self.min_len)
        return replace(self, max_new_tokens=most, max_len=max_len)

    def after(self, read: int) -> "Limits":
        """These limits where the first `read` tokens of the prompt are not counted, since a cache has them."""
        most = None if self.max_len is None else self.max_len - read
        return replace(self, max_len=most, min_len=max(0, self.min_len - read))

    def room(self, prompt: Sequence[int]) -> int:
        """The most tokens this prompt can get. Raises CutawayError when not even one fits, or nothing limits them."""
        bounds = [] if self.max_new_tokens is None else [self.max_new_tokens]
        if self.max_len is not None:
            left = self.max_len - len(prompt)
            if left < min([1, *bounds]):
                raise CutawayError(
                    "the prompt has {count} tokens, but this model's limit is {max_len} positions for "
                    "prompt and continuation together; shorten the prompt",
                    count=len(prompt),
                    max_len=self.max_len,
                )
            bounds.append(left)
        if not bounds:
            raise CutawayError("nothing limits the result: give max_new_tokens or max_len")
        return min(bounds)

    def least(self, prompt: Sequence[int]) -> int:
        """The fewest tokens this prompt gets before the end token. Raises CutawayError when they do not fit."""
        room = self.room(prompt)
        least = max(self.min_new_tokens, self.min_len - len(prompt))
        if room < least and room != self.max_new_tokens:
            raise CutawayError(
                "at least {least} new tokens were asked for, but after the {count} of the prompt only {room} fit into "
                "{max_len} positions; ask for fewer, or shorten the prompt",
                least=least,
                count=len(prompt),
                room=room,
                max_len=self.max_len,
            )
        return min(least, room)

    def shortened(self, prompt: Sequence[int], max_len: int) -> tuple[Phrase, ...]:
        """What a reader should know: that a model of `max_len` positions has less room than was asked for."""
        room = max_len - len(prompt)
        if self.max_new_tokens is None or self.max_new_tokens <= room:
            return ()
        return (
            say(
                "max_new_tokens is {most}, but only {room} of this model's {max_len} positions are left after what "
                "stands there first",
                most=self.max_new_tokens,
                room=room,
                max_len=max_len,
            ),
        )


GREEDY = Search()
