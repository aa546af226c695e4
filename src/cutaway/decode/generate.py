"""Left to right, one token at a time: greedy search and sampling, for whole results or as a stream."""

# Shapes: R rows still being decoded, V vocabulary, T new tokens, S source tokens, L layers, H heads.

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal

import torch
from torch import Tensor

from cutaway.decode.padding import pad_left
from cutaway.decode.sampling import Draws, Sampling, draw, penalise_repetition, row_seed, shape
from cutaway.decode.stepping import Attention, C, StepModel, Stepper, stack_attention
from cutaway.errors import CutawayError

Finish = Literal["stop", "length"]  # the model ended the text, or a limit did
Alternatives = list[tuple[int, float]]  # ids with their log-probabilities, best first
MAX_ALTERNATIVES = 20


@dataclass(frozen=True)
class Limits:
    """How long a result may be, for one row. Both counts are of new tokens, whatever the prompt's length.

    `max_new_tokens` counts every token, the end token too; `min_new_tokens` counts those before the end token,
    which is impossible until then. `max_len`, the model's positions, holds the prompt and the new tokens.
    """

    max_new_tokens: int
    min_new_tokens: int = 0
    max_len: int | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise CutawayError(
                "max_new_tokens is {max_new_tokens}, expected at least 1", max_new_tokens=self.max_new_tokens
            )
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise CutawayError(
                "min_new_tokens is {min_new_tokens}, expected a count from 0 to max_new_tokens "
                "({max_new_tokens})",
                min_new_tokens=self.min_new_tokens,
                max_new_tokens=self.max_new_tokens,
            )

    def room(self, prompt: Sequence[int]) -> int:
        """The most tokens this prompt can get. Raises CutawayError when not even one fits."""
        if self.max_len is None:
            return self.max_new_tokens
        if len(prompt) >= self.max_len:
            raise CutawayError(
                "the prompt has {count} tokens, but this model's limit is {max_len} positions for "
                "prompt and continuation together; shorten the prompt",
                count=len(prompt),
                max_len=self.max_len,
            )
        return min(self.max_new_tokens, self.max_len - len(prompt))


@dataclass(frozen=True)
class Generated:
    """One row's new tokens, the end token included when there is one (`finish` "stop")."""

    ids: list[int]
    log_probs: list[float]  # of each id, under the model itself: before penalties, temperature and filters
    finish: Finish
    score: float  # what it is ranked by; without a search the sum of log_probs
    alternatives: list[Alternatives] = field(default_factory=list)  # per token, when asked for
    cross_attention: Tensor | None = None  # (T, S) or (L, H, T, S): where it looked when it chose each token


@dataclass(frozen=True)
class Step:
    """What one step added, for the rows that were still running: parallel lists, and their cross-attention."""

    rows: list[int]  # which prompts, by their place in the request
    ids: list[int]
    log_probs: list[float]
    finish: list[Finish | None]
    alternatives: list[Alternatives]
    cross_attention: Tensor | None  # (R, S) or (R, L, H, S)


def generate(
    model: StepModel[C],
    cache: C,
    prompts: Sequence[Sequence[int]],
    *,
    limits: Limits | Sequence[Limits],
    eos_id: int | Sequence[int] | None,
    sampling: Sampling | None = None,
    seeds: Sequence[int] | None = None,
    forbidden: Sequence[int] = (),
    alternatives: int = 0,
    attention: Attention = None,
) -> list[Generated]:
    """Continue every prompt; one result a prompt, in order, each as if it had been alone.

    `cache` comes from the model's `begin`, with one row a prompt. Prompts may differ in length (they are padded
    on the left) unless the model is an encoder-decoder. `limits` are for all rows, or one a row. `seeds`, one a
    row, replace those derived from `sampling.seed` and the row's place. `forbidden` ids are never chosen.
    """
    rows = [_Row() for _ in prompts]
    for step in stream(
        model,
        cache,
        prompts,
        limits=limits,
        eos_id=eos_id,
        sampling=sampling,
        seeds=seeds,
        forbidden=forbidden,
        alternatives=alternatives,
        attention=attention,
    ):
        for i, row in enumerate(step.rows):
            rows[row].add(step, i)
    return [row.result() for row in rows]


def stream(
    model: StepModel[C],
    cache: C,
    prompts: Sequence[Sequence[int]],
    *,
    limits: Limits | Sequence[Limits],
    eos_id: int | Sequence[int] | None,
    sampling: Sampling | None = None,
    seeds: Sequence[int] | None = None,
    forbidden: Sequence[int] = (),
    alternatives: int = 0,
    attention: Attention = None,
) -> Iterator[Step]:
    """Like `generate`, but gives every step as soon as it is computed. Errors are raised at once."""
    sampling = sampling or Sampling()
    if not 0 <= alternatives <= MAX_ALTERNATIVES:
        raise CutawayError(
            "alternatives is {alternatives}, expected 0 to {max_alternatives}",
            alternatives=alternatives,
            max_alternatives=MAX_ALTERNATIVES,
        )
    seeds = [row_seed(sampling.seed, row) for row in range(len(prompts))] if seeds is None else seeds
    if len(seeds) != len(prompts):
        raise CutawayError(
            "{count} seeds for {count2} prompts; give one a prompt", count=len(seeds), count2=len(prompts)
        )
    stepper = Stepper(model, cache, attention)
    run = _Run(
        stepper,
        prompts,
        RowLimits(limits, prompts),
        sampling,
        Draws([] if sampling.greedy else seeds),
        end_ids(eos_id).to(stepper.device),
        torch.tensor(list(forbidden), dtype=torch.long, device=stepper.device),
        alternatives,
    )
    return iter(run.advance, None)


class RowLimits:
    """Each row's least and greatest number of new tokens, checked against its prompt."""

    def __init__(self, limits: Limits | Sequence[Limits], prompts: Sequence[Sequence[int]]):
        each = [limits] * len(prompts) if isinstance(limits, Limits) else list(limits)
        if len(each) != len(prompts):
            raise CutawayError(
                "{count} limits for {count2} prompts; give one, or one a prompt",
                count=len(each),
                count2=len(prompts),
            )
        self.most = [limit.room(prompt) for limit, prompt in zip(each, prompts, strict=True)]
        self.least = [limit.min_new_tokens for limit in each]
        self._greatest_least = max(self.least, default=0)

    def too_early(self, rows: Sequence[int], length: int) -> Tensor | None:
        """(R, 1) bool: which rows may not end after `length` tokens; None when all may."""
        if length >= self._greatest_least:
            return None
        return torch.tensor([length < self.least[row] for row in rows])[:, None]


def end_ids(eos_id: int | Sequence[int] | None) -> Tensor:
    """The ids that end a text: (number,) int64."""
    ids = [] if eos_id is None else [eos_id] if isinstance(eos_id, int) else list(eos_id)
    return torch.tensor(ids, dtype=torch.long)


def choosable(logits: Tensor, forbidden: Tensor, ends: Tensor, too_early: Tensor | None) -> Tensor:
    """logits (R, V) with the forbidden ids, and the end ids of rows that are too short, at -inf."""
    if len(forbidden):
        logits = logits.index_fill(1, forbidden, -math.inf)
    if too_early is not None and len(ends):
        early = too_early.to(logits.device)
        logits = logits.index_copy(1, ends, logits[:, ends].masked_fill(early, -math.inf))
    return logits


def most_probable(logits: Tensor, log_total: Tensor, count: int) -> list[Alternatives]:
    """The `count` best ids of each row with their log-probabilities; log_total (R, 1) is logits' logsumexp."""
    if not count:
        return []
    values, ids = logits.topk(min(count, logits.shape[-1]), dim=-1)
    log_probs = (values - log_total).tolist()
    return [list(zip(*row, strict=True)) for row in zip(ids.tolist(), log_probs, strict=True)]


def check_finite(log_total: Tensor, where: str) -> None:
    """Raises CutawayError when logits, given their logsumexp, are no distribution; `where` stands in its message."""
    if not bool(log_total.isfinite().all()):
        raise CutawayError(
            "the model's output {where} is not a number: its weights are damaged, or too large for "
            "their type",
            where=where,
        )


class _Row:
    """Collects one row's result."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.log_probs: list[float] = []
        self.alternatives: list[Alternatives] = []
        self.attention: list[Tensor] = []
        self.finish: Finish = "length"

    def add(self, step: Step, i: int) -> None:
        self.ids.append(step.ids[i])
        self.log_probs.append(step.log_probs[i])
        self.finish = step.finish[i] or self.finish
        if step.alternatives:
            self.alternatives.append(step.alternatives[i])
        if step.cross_attention is not None:
            self.attention.append(step.cross_attention[i])

    def result(self) -> Generated:
        score, attention = math.fsum(self.log_probs), stack_attention(self.attention)
        return Generated(self.ids, self.log_probs, self.finish, score, self.alternatives, attention)


class _Run(Generic[C]):
    """Greedy search or sampling under way. Rows that have finished are taken out of the computation."""

    def __init__(
        self,
        stepper: Stepper[C],
        prompts: Sequence[Sequence[int]],
        limits: RowLimits,
        sampling: Sampling,
        draws: Draws,
        ends: Tensor,
        forbidden: Tensor,
        alternatives: int,
    ):
        self._stepper, self._prompts, self._limits = stepper, prompts, limits
        self._sampling, self._draws = sampling, draws
        self._ends, self._end_set = ends, set(ends.tolist())
        self._forbidden, self._alternatives = forbidden, alternatives
        self._rows = list(range(len(prompts)))
        self._length = 0  # new tokens of every running row
        self._last = torch.empty(0)  # (R, 1) the newest ids
        self._seen: Tensor | None = None  # (R, V) bool, only kept for the repetition penalty

    # Not held across a yield: the mode would leak into the code that consumes the stream.
    @torch.inference_mode()
    def advance(self) -> Step | None:
        """One step for every running row; None when all have finished."""
        if not self._rows:
            return None
        ids, mask = (self._last, None) if self._length else pad_left(self._prompts, self._stepper.device)
        logits, attention = self._stepper.step(ids, mask)  # (R, V)
        log_total = logits.logsumexp(dim=-1, keepdim=True)
        check_finite(log_total, f"at new token {self._length + 1}")
        chosen = self._choose(logits)  # (R, 1)
        log_probs = (logits.gather(1, chosen) - log_total)[:, 0].tolist()
        self._length += 1
        new = chosen[:, 0].tolist()
        finish: list[Finish | None] = [self._finish(row, id) for row, id in zip(self._rows, new, strict=True)]
        step = Step(
            self._rows,
            new,
            log_probs,
            finish,
            most_probable(logits, log_total, self._alternatives),
            attention,
        )
        self._keep(chosen, [i for i, why in enumerate(finish) if why is None])
        return step

    def _choose(self, logits: Tensor) -> Tensor:
        if self._sampling.repetition_penalty != 1:
            if self._seen is None:
                self._seen = seen_in(self._prompts, logits.shape[-1]).to(logits.device)
            logits = penalise_repetition(logits, self._seen, self._sampling.repetition_penalty)
        too_early = self._limits.too_early(self._rows, self._length)
        logits = choosable(logits, self._forbidden, self._ends, too_early)
        if self._sampling.greedy:
            return logits.argmax(dim=-1, keepdim=True)
        return draw(shape(logits, self._sampling), self._draws.next().to(logits.device))[:, None]

    def _finish(self, row: int, id: int) -> Finish | None:
        if id in self._end_set:
            return "stop"
        return "length" if self._length == self._limits.most[row] else None

    def _keep(self, chosen: Tensor, kept: list[int]) -> None:
        self._last = chosen
        if self._seen is not None:
            self._seen.scatter_(1, chosen, True)
        if len(kept) == len(self._rows):
            return
        self._rows = [self._rows[i] for i in kept]
        if not kept:
            return
        index = torch.tensor(kept, device=chosen.device)
        self._stepper.select(index)
        self._last = chosen[index]
        if not self._sampling.greedy:
            self._draws.select(index)
        if self._seen is not None:
            self._seen = self._seen[index]


def seen_in(prompts: Sequence[Sequence[int]], vocab_size: int) -> Tensor:
    """(R, V) bool: which tokens stand in each prompt."""
    seen = torch.zeros(len(prompts), vocab_size, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        seen[row, list(prompt)] = True
    return seen
