"""Beam search: the best-scoring whole sequences that a fixed number of beginnings, kept side by side, leads to."""

# Shapes: N sentences under way, K live hypotheses of each, R = N·K rows, C candidates, V vocabulary.

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal

import torch
from torch import Tensor

from cutaway.decode.generate import (
    MAX_ALTERNATIVES,
    Alternatives,
    Finish,
    Generated,
    Limits,
    RowLimits,
    check_finite,
    choosable,
    end_ids,
    most_probable,
    seen_in,
)
from cutaway.decode.length_penalty import LengthPenalty
from cutaway.decode.padding import pad_left
from cutaway.decode.sampling import Sampling, penalise_repetition
from cutaway.decode.stepping import Attention, C, StepModel, Stepper, stack_attention
from cutaway.errors import CutawayError

MAX_BEAM = 32


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


def beam_search(
    model: StepModel[C],
    cache: C,
    prompts: Sequence[Sequence[int]],
    *,
    beam: int,
    n_best: int = 1,
    limits: Limits | Sequence[Limits],
    eos_id: int | Sequence[int] | None,
    length_penalty: LengthPenalty | None = None,
    repetition_penalty: float = 1.0,
    forbidden: Sequence[int] = (),
    alternatives: int = 0,
    attention: Attention = None,
    observe: Callable[[BeamStep], None] | None = None,
) -> list[list[Generated]]:
    """The `n_best` results of every prompt, best score first, all distinct.

    Each step weighs all continuations of a prompt's `beam` live hypotheses. Those among the best `beam` that end
    are finished and frozen; the best `beam` of the others live on. A prompt is done when no live hypothesis can
    enter its n best any more, so the first result does not depend on `n_best`, and with a wide enough beam it is
    the best of all sequences. Hypotheses at their limit compete as they are, with `finish` "length".

    There are fewer results than n only where fewer sequences exist. A repetition penalty changes what the search
    ranks by, hence `score`, but not `log_probs`. `observe` is called with every step of every prompt.
    Other arguments as in `generate`.
    """
    if not 1 <= beam <= MAX_BEAM:
        raise CutawayError("beam is {beam}, expected 1 to {max_beam}", beam=beam, max_beam=MAX_BEAM)
    if not 1 <= n_best <= beam:
        raise CutawayError(
            "n_best is {n_best}, expected 1 to the beam's width ({beam})", n_best=n_best, beam=beam
        )
    if not 0 <= alternatives <= MAX_ALTERNATIVES:
        raise CutawayError(
            "alternatives is {alternatives}, expected 0 to {max_alternatives}",
            alternatives=alternatives,
            max_alternatives=MAX_ALTERNATIVES,
        )
    search = _Search(
        Stepper(model, cache, attention),
        prompts,
        beam,
        n_best,
        RowLimits(limits, prompts),
        end_ids(eos_id),
        length_penalty or LengthPenalty(),
        Sampling(repetition_penalty=repetition_penalty).repetition_penalty,
        torch.tensor(list(forbidden), dtype=torch.long),
        alternatives,
        observe,
    )
    return search.run()


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


class _Search(Generic[C]):
    def __init__(
        self,
        stepper: Stepper[C],
        prompts: Sequence[Sequence[int]],
        beam: int,
        n_best: int,
        limits: RowLimits,
        ends: Tensor,
        length_penalty: LengthPenalty,
        repetition_penalty: float,
        forbidden: Tensor,
        alternatives: int,
        observe: Callable[[BeamStep], None] | None,
    ):
        self._stepper, self._prompts, self._limits = stepper, prompts, limits
        self._beam, self._n_best = beam, n_best
        self._ends, self._forbidden = ends.to(stepper.device), forbidden.to(stepper.device)
        self._length_penalty, self._repetition_penalty = length_penalty, repetition_penalty
        self._alternatives, self._observe = alternatives, observe
        self._sentences = list(range(len(prompts)))
        self._totals = torch.zeros(len(prompts), 1, dtype=torch.float64, device=stepper.device)  # (N, K)
        self._written: list[_Written] = []
        self._finished: list[list[_End]] = [[] for _ in prompts]  # each at most n best, sorted
        self._seen: Tensor | None = None  # (R, V) bool, only kept for the repetition penalty

    @torch.inference_mode()
    def run(self) -> list[list[Generated]]:
        if self._sentences:
            ids, mask = pad_left(self._prompts, self._stepper.device)
            while self._sentences:
                ids, mask = self._advance(ids, mask), None
        return [[self._result(end) for end in ends] for ends in self._finished]

    def _advance(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """One step of all sentences: ids (R, T) -> the next step's ids (R', 1)."""
        logits, attention = self._stepper.step(ids, mask)  # (R, V)
        log_total = logits.logsumexp(dim=-1, keepdim=True)
        check_finite(log_total, f"at new token {len(self._written) + 1}")
        totals, rows, ids = self._candidates(logits, log_total)  # (N, C) each
        log_probs = logits[rows, ids] - log_total[rows, 0]
        length = len(self._written) + 1
        possible = totals > -math.inf
        ended = torch.isin(ids, self._ends) & possible
        at_limit = torch.tensor([self._limits.most[s] == length for s in self._sentences], device=ids.device)
        self._finish(totals, rows, ids, log_probs, ended, ended | (at_limit[:, None] & possible))
        # A stable sort brings those that go on to the front, still best first.
        live = ended.byte().sort(dim=1, stable=True).indices[:, : self._beam]  # (N, K)
        live_totals = totals.masked_fill(ended, -math.inf).gather(1, live)
        open_ = [
            i
            for i, (limit, total) in enumerate(
                zip(at_limit.tolist(), live_totals[:, 0].tolist(), strict=True)
            )
            if not limit and self._can_improve(self._sentences[i], total)
        ]
        if self._observe is not None:
            self._report(totals, rows, ids, ended, at_limit, live)
        kept = torch.tensor(open_, dtype=torch.long, device=ids.device)
        live = live[kept]
        parents, next_ids = (values[kept].gather(1, live).flatten() for values in (rows, ids))
        self._written.append(
            _Written(
                next_ids.tolist(),
                log_probs[kept].gather(1, live).flatten().tolist(),
                parents.tolist(),
                most_probable(logits, log_total, self._alternatives),
                attention,
            )
        )
        same_source = len(open_) == len(self._sentences) and live.shape[1] == self._totals.shape[1]
        self._sentences = [self._sentences[i] for i in open_]
        self._totals = live_totals[kept]
        if open_:
            self._select(parents, next_ids, same_source)
        return next_ids[:, None]

    def _candidates(self, logits: Tensor, log_total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of every sentence, best first: sums of log-probabilities, rows, ids (N, C).

        C is such that `beam` of them do not end, however many do."""
        if self._repetition_penalty != 1:
            if self._seen is None:
                self._seen = seen_in(self._prompts, logits.shape[-1]).to(logits.device)
            logits = penalise_repetition(logits, self._seen, self._repetition_penalty)
            log_total = logits.logsumexp(dim=-1, keepdim=True)
        slots = self._totals.shape[1]
        each_row = [sentence for sentence in self._sentences for _ in range(slots)]
        too_early = self._limits.too_early(each_row, len(self._written))
        logits = choosable(logits, self._forbidden, self._ends, too_early)
        count = self._beam * (1 + max(1, len(self._ends)))
        values, ids = logits.topk(min(count, logits.shape[-1]), dim=-1)  # (R, c)
        totals = self._totals.view(-1, 1) + (values - log_total).double()
        sentences, per_row = len(self._sentences), values.shape[1]
        totals, index = totals.view(sentences, -1).topk(min(count, slots * per_row), dim=1)  # (N, C)
        first = torch.arange(sentences, device=ids.device)[:, None] * slots
        return totals, first + index // per_row, ids.view(sentences, -1).gather(1, index)

    def _finish(
        self, totals: Tensor, rows: Tensor, ids: Tensor, log_probs: Tensor, ended: Tensor, over: Tensor
    ) -> None:
        """Freeze those of the best `beam` candidates that are over."""
        length = len(self._written) + 1
        divisor = self._length_penalty.divisor(length)
        n, c = over[:, : self._beam].nonzero(as_tuple=True)
        values = zip(
            n.tolist(),
            totals[n, c].tolist(),
            rows[n, c].tolist(),
            ids[n, c].tolist(),
            log_probs[n, c].tolist(),
            ended[n, c].tolist(),
            strict=True,
        )
        for i, total, row, id, log_prob, stop in values:
            best = self._finished[self._sentences[i]]
            best.append(_End(total / divisor, length, row, id, log_prob, "stop" if stop else "length"))
            best.sort(key=lambda end: -end.score)
            del best[self._n_best :]

    def _can_improve(self, sentence: int, total: float) -> bool:
        """Whether the best live hypothesis may still enter the sentence's n best."""
        finished = self._finished[sentence]
        if total == -math.inf:
            return False
        if len(finished) < self._n_best:
            return True
        most = self._limits.most[sentence]
        return self._length_penalty.best_attainable(total, len(self._written) + 1, most) > finished[-1].score

    def _select(self, parents: Tensor, next_ids: Tensor, same_source: bool) -> None:
        """Let the cache's rows follow the hypotheses that live on."""
        if not (same_source and torch.equal(parents, torch.arange(len(parents), device=parents.device))):
            self._stepper.select(parents, same_source)
        if self._seen is not None:
            self._seen = self._seen[parents].scatter_(1, next_ids[:, None], True)

    def _report(
        self, totals: Tensor, rows: Tensor, ids: Tensor, ended: Tensor, at_limit: Tensor, live: Tensor
    ) -> None:
        assert self._observe is not None
        slots = self._totals.shape[1]
        for i, sentence in enumerate(self._sentences):
            alive = set() if at_limit[i] else set(live[i].tolist())
            parts = (totals[i].tolist(), (rows[i] - i * slots).tolist(), ids[i].tolist(), ended[i].tolist())
            candidates: list[Candidate] = []
            for rank, (total, parent, id, stop) in enumerate(zip(*parts, strict=True)):
                if total == -math.inf:
                    continue
                over = rank < self._beam and (stop or bool(at_limit[i]))
                fate = ("stop" if stop else "length") if over else "live" if rank in alive else "dropped"
                candidates.append(
                    Candidate(parent, id, total, "dropped" if stop and fate == "live" else fate)
                )
            self._observe(BeamStep(sentence, len(self._written) + 1, candidates))

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
        return Generated(
            ids[::-1],
            log_probs[::-1],
            end.finish,
            end.score,
            [written.alternatives[row] for written, row in seen] if self._alternatives else [],
            stack_attention([w.attention[row] for w, row in seen if w.attention is not None]),
        )
