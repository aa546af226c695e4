"""One step of decoding, which every kind of search is made of: what the model says of each row's next token, and which
tokens may be chosen."""

# Shapes: R rows under way, T tokens, V vocabulary, L layers, H heads, S source tokens.

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from cutaway.decode.sampling import penalise_repetition
from cutaway.decode.search import Limits, Rules, Search
from cutaway.errors import CutawayError
from cutaway.tap import Trace
from cutaway.words import Phrase, say

Finish = Literal["stop", "length"]  # the model ended the text, or a limit did
Alternatives = list[tuple[int, float]]  # ids with their log-probabilities, best first

# Where a row of what was written has no token, a shorter prompt beside a longer one.
NOTHING = -1
CROSS_ATTENTION = "decoder.layers.*.cross_attn.pattern"


class RowCache(Protocol):
    """The part of a cache that decoding touches: its rows."""

    def select(self, rows: Tensor, same_source: bool = False) -> None: ...


C = TypeVar("C", bound=RowCache)
C_contra = TypeVar("C_contra", bound=RowCache, contravariant=True)


class StepModel(Protocol[C_contra]):
    """Anything that continues rows of ids (R, T) with logits (R, V) fp32, advancing its cache."""

    def step(self, ids: Tensor, cache: C_contra, mask: Tensor | None = None) -> Tensor: ...


@dataclass(frozen=True)
class Generated:
    """One result: its new tokens, the end token included when there is one."""

    ids: list[int]
    log_probs: list[float]  # of each id, under the model itself: before penalties, temperature and filters
    finish: Finish
    score: float  # what it is ranked by: the sum of log-probabilities, divided by the length penalty
    # per token, when asked for: the most probable ones, and the chosen one
    alternatives: list[Alternatives] = field(default_factory=list)
    cross_attention: Tensor | None = None  # (T, S) or (L, H, T, S): where it looked when it chose each token


@dataclass(frozen=True)
class Outlook:
    """What the model says of the next token of each row."""

    logits: Tensor  # (R, V)
    log_total: Tensor  # (R, 1): what turns logits into log-probabilities when subtracted
    alternatives: list[Alternatives]  # of each row; empty unless asked for
    attention: Tensor | None  # of the newest token: (R, S) or (R, L, H, S)


class Stepper(Generic[C]):
    """Runs a model's steps for rows that all have the same number of new tokens."""

    def __init__(
        self, model: StepModel[C], cache: C, prompts: Sequence[Sequence[int]], search: Search
    ) -> None:
        self._model, self._cache, self._prompts, self._search = model, cache, prompts, search
        parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        self.device = torch.device("cpu") if parameter is None else parameter.device
        self.length = 0  # new tokens of each row, the one that the newest step is about included
        if search.attention is None:
            self._trace = None
        elif isinstance(model, nn.Module):
            newest = _newest_mean if search.attention == "mean" else _newest
            self._trace = Trace(model, {CROSS_ATTENTION: newest})
        else:
            raise CutawayError(
                "{name} is no torch module: its attention cannot be seen", name=type(model).__name__
            )

    def start(self, rows: Sequence[int]) -> None:
        """Begin with these of the prompts only."""
        if len(rows) < len(self._prompts):
            self._prompts = [self._prompts[row] for row in rows]
            if rows:
                self.select(torch.tensor(rows, device=self.device))

    def step(self, last: Tensor) -> Outlook:
        """`last` (R,) are the ids that were chosen at the step before; the first step reads the prompts."""
        if self.length:
            ids, mask = last[:, None], None
        else:
            ids, mask = pad_left(self._prompts, self.device)
        self.length += 1
        logits, attention = self._run(ids, mask)
        log_total = logits.logsumexp(dim=-1, keepdim=True)
        check_finite(log_total, say("at new token {number}", number=self.length))
        return Outlook(
            logits, log_total, _most_probable(logits, log_total, self._search.alternatives), attention
        )

    def select(self, rows: Tensor, same_source: bool = False) -> None:
        """Go on with these rows of the cache, in this order; a row may come several times."""
        self._cache.select(rows, same_source)

    def _run(self, ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self._trace is None:
            return self._model.step(ids, self._cache, mask), None
        try:
            with self._trace:
                logits = self._model.step(ids, self._cache, mask)
        except LookupError as error:
            raise CutawayError(
                "this model has no cross-attention: it reads no source text; ask of self-attention"
            ) from error
        layers = torch.stack([calls.pop() for calls in self._trace.calls.values()], dim=1)
        return logits, layers.mean(dim=1) if self._search.attention == "mean" else layers


def looks_back(search: Search) -> bool:
    """Whether what may be written depends on what stands there already."""
    rules = search.rules or Rules()
    longer = any(len(word) > 1 for word in rules.bad_words)
    return search.sampling.repetition_penalty != 1 or bool(rules.no_repeat_ngram) or longer


class Choice:
    """Which tokens may be chosen: ids that are never written, ends that come too early, the search's rules and its
    repetition penalty. It knows how long each prompt's result may become."""

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        limits: Limits | Sequence[Limits],
        eos_id: int | Sequence[int] | None,
        forbidden: Sequence[int],
        search: Search,
        device: torch.device,
    ) -> None:
        each = [limits] * len(prompts) if isinstance(limits, Limits) else list(limits)
        if len(each) != len(prompts):
            raise CutawayError(
                "limits: {limits}, prompts: {prompts}; give one for all, or one a prompt",
                limits=len(each),
                prompts=len(prompts),
            )
        self._penalty, self._rules, self._device = (
            search.sampling.repetition_penalty,
            search.rules or Rules(),
            device,
        )
        ends = [] if eos_id is None else [eos_id] if isinstance(eos_id, int) else list(eos_id)
        self.ends = self._ids(ends)
        self.most = [limit.room(prompt) for limit, prompt in zip(each, prompts, strict=True)]
        self._least = [limit.least(prompt) for limit, prompt in zip(each, prompts, strict=True)]
        words = set(self._rules.bad_words) - {(end,) for end in ends}
        single = [word[0] for word in words if len(word) == 1]
        self._never = self._ids([*forbidden, *self._rules.suppressed, *single])
        self._bad_words = [(self._ids(word[:-1]), word[-1]) for word in words if len(word) > 1]
        # what stands in each row, for what depends on it
        self._written: Tensor | None = None
        if looks_back(search):
            longest = max(map(len, prompts), default=0)
            rows = [[NOTHING] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
            self._written = torch.tensor(rows, dtype=torch.long, device=device).view(len(rows), longest)

    def start(self, rows: Sequence[int]) -> None:
        """Begin with these of the prompts only."""
        if self._written is not None:
            self._written = self._written[list(rows)]

    def penalised(self, scores: Tensor) -> Tensor:
        """scores (R, V) with tokens that stand in their row already made less likely."""
        if self._penalty == 1 or self._written is None:
            return scores
        # one column more, for where a row has no token
        seen = torch.zeros(len(scores), scores.shape[1] + 1, dtype=torch.bool, device=scores.device)
        seen.scatter_(1, self._written % seen.shape[1], True)
        return penalise_repetition(scores, seen[:, :-1], self._penalty)

    def allowed(self, scores: Tensor, prompts: Sequence[int], length: int) -> Tensor:
        """scores (R, V) with what cannot be token `length` (from 1) of a row at -inf; `prompts` are the rows' own."""
        scores = self._not_repeated(scores)
        early = [length <= self._least[prompt] for prompt in prompts]
        if len(self.ends) and any(early):
            rows = torch.tensor(early, device=scores.device)[:, None]
            ends = scores[:, self.ends].masked_fill(rows, -math.inf)
            scores = scores.index_copy(1, self.ends, ends)
        if len(self._never):
            scores = scores.index_fill(1, self._never, -math.inf)
        if length == 1 and self._rules.suppressed_first:
            scores = scores.index_fill(1, self._ids(self._rules.suppressed_first), -math.inf)
        if forced := [row for row, prompt in enumerate(prompts) if self.forced(prompt, length)]:
            rows = torch.tensor(forced, device=scores.device)
            only = scores.new_full((len(forced), scores.shape[1]), -math.inf)
            only[:, list(self._rules.end_at_limit)] = 0.0
            scores = scores.index_copy(0, rows, only)
        return scores

    def forced(self, prompt: int, length: int) -> bool:
        """Whether token `length` of a prompt's result is an end that its limit forces."""
        return bool(self._rules.end_at_limit) and length == self.most[prompt]

    def follow(self, rows: Tensor | None, ids: Tensor) -> None:
        """Let what stands in each row follow the rows (R',) that go on, None for all, and their new ids (R',)."""
        if self._written is not None:
            written = self._written if rows is None else self._written[rows]
            self._written = torch.cat([written, ids[:, None]], dim=1)

    def _not_repeated(self, scores: Tensor) -> Tensor:
        """scores (R, V) with what would repeat an n-gram, or complete a bad word, at -inf."""
        written, n = self._written, self._rules.no_repeat_ngram
        if written is None:
            return scores
        length = written.shape[1]
        if 0 < n <= length:
            grams = written.unfold(1, n, 1)  # (R, length - n + 1, n)
            same = (grams[..., :-1] == written[:, None, length - n + 1 :]).all(dim=-1)
            row, place = (same & (grams != NOTHING).all(dim=-1)).nonzero(as_tuple=True)
            scores = scores.index_put((row, grams[row, place, -1]), scores.new_tensor(-math.inf))
        for begun, last in self._bad_words:
            if len(begun) <= length:
                (row,) = (written[:, -len(begun) :] == begun).all(dim=-1).nonzero(as_tuple=True)
                scores = scores.index_put((row, torch.full_like(row, last)), scores.new_tensor(-math.inf))
        return scores

    def _ids(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(list(ids), dtype=torch.long, device=self._device)


def nothing_left(length: int) -> CutawayError:
    """What to say where no token may be chosen."""
    return CutawayError(
        "at new token {number} no token may be written: all are forbidden, or ruled out by what the search was "
        "given; allow some",
        number=length,
    )


def with_chosen(alternatives: Alternatives, id: int, log_prob: float) -> Alternatives:
    """The most probable tokens of a place, and after them the one that was chosen where it is none of them."""
    return alternatives if any(other == id for other, _ in alternatives) else [*alternatives, (id, log_prob)]


def check_finite(log_total: Tensor, where: Phrase) -> None:
    """Raises CutawayError when logits, given their logsumexp, are no distribution; `where` stands in its message."""
    if not bool(log_total.isfinite().all()):
        raise CutawayError(
            "the model's output {where} is not a number: its weights are damaged, or too large for "
            "their type; fetch the weights again, or load them as float32",
            where=where,
        )


def stack_attention(steps: Sequence[Tensor]) -> Tensor | None:
    """Each new token's cross-attention (S,) or (L, H, S), T of them -> (T, S) or (L, H, T, S)."""
    return torch.stack(list(steps), dim=-2) if steps else None


def pad_left(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Prompts as one block (R, T), and its mask (R, T), False at the padding, unless all are equally long.

    Raises CutawayError for a prompt without a token: there is nothing to continue.
    """
    lengths = [len(prompt) for prompt in prompts]
    if not all(lengths):
        raise CutawayError(
            "prompt {number} has no token; begin it with the start token", number=lengths.index(0) + 1
        )
    longest = max(lengths)
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    if min(lengths) == longest:
        return ids, None
    padding = longest - torch.tensor(lengths, device=device)
    return ids, torch.arange(longest, device=device) >= padding[:, None]


def pad_right(
    rows: Sequence[Sequence[int]], value: int, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Rows as one block (R, T), and its mask (R, T), False at the padding, unless all are equally long."""
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    block = torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], device=device)
    if min(lengths) == longest:
        return block, None
    return block, torch.arange(longest, device=device) < torch.tensor(lengths, device=device)[:, None]


def batches(rows: Sequence[Sequence[int]], size: int) -> list[list[int]]:
    """Places of rows that are computed together, at most `size` at a time, of similar length, the shortest first."""
    if size < 1:
        raise CutawayError("batch_size is {size}, expected at least 1", size=size)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    return [order[first : first + size] for first in range(0, len(order), size)]


def _newest(pattern: Tensor) -> Tensor:
    return pattern[:, :, -1]  # (R, H, S)


def _newest_mean(pattern: Tensor) -> Tensor:
    return pattern[:, :, -1].mean(dim=1)  # (R, S)


def _most_probable(logits: Tensor, log_total: Tensor, count: int) -> list[Alternatives]:
    if not count:
        return []
    values, ids = logits.topk(min(count, logits.shape[-1]), dim=-1)
    log_probs = (values - log_total).tolist()
    return [list(zip(*row, strict=True)) for row in zip(ids.tolist(), log_probs, strict=True)]
