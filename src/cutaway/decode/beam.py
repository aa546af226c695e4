"""Beam search: the best-scoring whole sequences that a fixed number of beginnings, kept side by side, leads to."""

# Shapes: N sentences under way, K live hypotheses of each, R = N·K rows, C candidates, V vocabulary.

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from cutaway.decode.search import BeamStep, Candidate, Limits, Search
from cutaway.decode.stepping import (
    Alternatives,
    C,
    Choice,
    Finish,
    Generated,
    StepModel,
    Stepper,
    nothing_left,
    stack_attention,
    with_chosen,
)


def beam_search(
    model: StepModel[C],
    cache: C,
    prompts: Sequence[Sequence[int]],
    *,
    search: Search,
    limits: Limits | Sequence[Limits],
    eos_id: int | Sequence[int] | None,
    forbidden: Sequence[int] = (),
) -> list[list[Generated]]:
    """The `search.n_best` results of every prompt, best score first, all distinct.

    Each step weighs all continuations of a prompt's `beam` live hypotheses. Those among the best `beam` that end
    are finished and frozen; the best `beam` of the others live on. A prompt is done when no live hypothesis can
    enter its n best any more, so the first result does not depend on `n_best`, and with a wide enough beam it is
    the best of all sequences. Hypotheses at their limit compete as they are, with `finish` "length".

    There are fewer results than n only where fewer sequences exist. A repetition penalty, and an end that a limit
    forces, change what the search ranks by, hence `score`, but not `log_probs`. `search.observe` is called with every
    step of every prompt. Other arguments and errors as in `generation.generate`.
    """
    stepper = Stepper(model, cache, prompts, search)
    choice = Choice(prompts, limits, eos_id, forbidden, search, stepper.device)
    return _Beams(stepper, choice, search).run()


@dataclass(frozen=True)
class _Written:
    """What one step wrote for each row (hypothesis) it kept, and what it saw for each row it continued."""

    ids: list[int]
    log_probs: list[float]
    parents: list[int]  # the row of the step before that each row continues
    alternatives: list[Alternatives]  # of the rows continued
    attention: Tensor | None


@dataclass(frozen=True)
class _End:
    """A finished hypothesis: its last token, and the row of step `length` - 1 it continued."""

    score: float
    length: int
    parent: int
    id: int
    log_prob: float
    finish: Finish


@dataclass(frozen=True)
class _Candidates:
    """The best continuations of every sentence, best first: (N, C) each. C is such that `beam` of them do not end,
    however many do."""

    totals: Tensor  # sums of log-probabilities, float64; -inf where there is no such candidate
    rows: Tensor  # the rows they continue
    ids: Tensor
    log_probs: Tensor  # of the ids, under the model itself
    ended: Tensor  # bool: the id ends the text


class _Beams(Generic[C]):
    def __init__(self, stepper: Stepper[C], choice: Choice, search: Search) -> None:
        self._stepper, self._choice, self._search = stepper, choice, search
        self._sentences = [sentence for sentence, most in enumerate(choice.most) if most]
        self._totals = torch.zeros(
            len(self._sentences), 1, dtype=torch.float64, device=stepper.device
        )  # (N, K)
        self._last = torch.empty(0)  # (R,) the newest ids
        self._written: list[_Written] = []
        self._finished: list[list[_End]] = [[] for _ in choice.most]  # each at most n best, sorted

    @torch.inference_mode()
    def run(self) -> list[list[Generated]]:
        self._stepper.start(self._sentences)
        self._choice.start(self._sentences)
        while self._sentences:
            self._advance()
        nothing = [Generated([], [], "length", 0.0)]
        return [
            [self._result(end) for end in ends] if most else nothing
            for ends, most in zip(self._finished, self._choice.most, strict=True)
        ]

    def _advance(self) -> None:
        """One step of all sentences."""
        seen = self._stepper.step(self._last)
        found = self._candidates(seen.logits, seen.log_total)
        length = self._stepper.length
        limits = [self._choice.most[sentence] == length for sentence in self._sentences]
        at_limit = torch.tensor(limits, device=found.ids.device)
        self._finish(found, found.ended | (at_limit[:, None] & (found.totals > -math.inf)))
        # A stable sort brings those that go on to the front, still best first.
        live = found.ended.byte().sort(dim=1, stable=True).indices[:, : self._search.beam]  # (N, K)
        live_totals = found.totals.masked_fill(found.ended, -math.inf).gather(1, live)
        best = live_totals[:, 0].tolist()
        going_on = [
            i
            for i, sentence in enumerate(self._sentences)
            if not limits[i] and self._can_improve(sentence, best[i])
        ]
        left = {self._sentences[i] for i in going_on}
        if any(sentence not in left and not self._finished[sentence] for sentence in self._sentences):
            raise nothing_left(length)
        if self._search.observe is not None:
            self._report(self._search.observe, found, limits, live, seen.attention)
        kept = torch.tensor(going_on, dtype=torch.long, device=live.device)
        live = live[kept]
        parents, self._last, log_probs = (
            values[kept].gather(1, live).flatten() for values in (found.rows, found.ids, found.log_probs)
        )
        self._written.append(
            _Written(
                self._last.tolist(), log_probs.tolist(), parents.tolist(), seen.alternatives, seen.attention
            )
        )
        same_source = len(going_on) == len(self._sentences) and live.shape[1] == self._totals.shape[1]
        self._sentences = [self._sentences[i] for i in going_on]
        self._totals = live_totals[kept]
        if going_on:
            if not (same_source and torch.equal(parents, torch.arange(len(parents), device=parents.device))):
                self._stepper.select(parents, same_source)
            self._choice.follow(parents, self._last)

    def _candidates(self, logits: Tensor, log_total: Tensor) -> _Candidates:
        ranked = self._choice.penalised(logits - log_total)
        sentences, slots = self._totals.shape
        prompts = [sentence for sentence in self._sentences for _ in range(slots)]
        ranked = self._choice.allowed(ranked, prompts, self._stepper.length)
        count = self._search.beam * (1 + max(1, len(self._choice.ends)))
        values, ids = ranked.topk(min(count, ranked.shape[-1]), dim=-1)  # (R, c)
        per_row = values.shape[1]
        totals = (self._totals.view(-1, 1) + values.double()).view(sentences, -1)
        totals, index = totals.topk(min(count, slots * per_row), dim=1)  # (N, C)
        first = torch.arange(sentences, device=ids.device)[:, None] * slots
        rows, ids = first + index // per_row, ids.view(sentences, -1).gather(1, index)
        ended = torch.isin(ids, self._choice.ends) & (totals > -math.inf)
        return _Candidates(totals, rows, ids, logits[rows, ids] - log_total[rows, 0], ended)

    def _finish(self, found: _Candidates, over: Tensor) -> None:
        """Freeze those of the best `beam` candidates that are over."""
        length = self._stepper.length
        divisor = self._search.length_penalty.divisor(length)
        n, c = over[:, : self._search.beam].nonzero(as_tuple=True)
        columns = (
            n,
            *(each[n, c] for each in (found.totals, found.rows, found.ids, found.log_probs, found.ended)),
        )
        for i, total, row, id, log_prob, stop in zip(*(each.tolist() for each in columns), strict=True):
            sentence = self._sentences[i]
            best = self._finished[sentence]
            stop = stop and not self._choice.forced(sentence, length)
            best.append(_End(total / divisor, length, row, id, log_prob, "stop" if stop else "length"))
            best.sort(key=lambda end: -end.score)
            del best[self._search.n_best :]

    def _can_improve(self, sentence: int, total: float) -> bool:
        """Whether the best live hypothesis may still enter the sentence's n best."""
        finished = self._finished[sentence]
        if total == -math.inf:
            return False
        if len(finished) < self._search.n_best:
            return True
        most, penalty = self._choice.most[sentence], self._search.length_penalty
        return penalty.best_attainable(total, self._stepper.length, most) > finished[-1].score

    def _report(
        self,
        observe: Callable[[BeamStep], None],
        found: _Candidates,
        limits: list[bool],
        live: Tensor,
        attention: Tensor | None,
    ) -> None:
        slots = self._totals.shape[1]
        for i, sentence in enumerate(self._sentences):
            alive = set() if limits[i] else set(live[i].tolist())
            parts = (found.totals[i], found.rows[i] - i * slots, found.ids[i], found.ended[i])
            candidates: list[Candidate] = []
            for rank, (total, parent, id, stop) in enumerate(
                zip(*(part.tolist() for part in parts), strict=True)
            ):
                if total == -math.inf:
                    continue
                over = rank < self._search.beam and (stop or limits[i])
                fate = ("stop" if stop else "length") if over else "live" if rank in alive else "dropped"
                candidates.append(
                    Candidate(parent, id, total, "dropped" if stop and fate == "live" else fate)
                )
            own = None if attention is None else attention[i * slots : (i + 1) * slots]
            observe(BeamStep(sentence, self._stepper.length, candidates, own))

    def _result(self, end: _End) -> Generated:
        """Walk back from the last token to the first."""
        ids, log_probs, row = [end.id], [end.log_prob], end.parent
        seen = [(self._written[end.length - 1], row)]
        for step in range(end.length - 2, -1, -1):
            written = self._written[step]
            ids.append(written.ids[row])
            log_probs.append(written.log_probs[row])
            row = written.parents[row]
            seen.append((written, row))
        seen.reverse()
        ids.reverse()
        log_probs.reverse()
        alternatives: list[Alternatives] = []
        if self._search.alternatives:
            weighed = [written.alternatives[row] for written, row in seen]
            alternatives = [with_chosen(*each) for each in zip(weighed, ids, log_probs, strict=True)]
        return Generated(
            ids,
            log_probs,
            end.finish,
            end.score,
            alternatives,
            stack_attention([w.attention[row] for w, row in seen if w.attention is not None]),
        )
