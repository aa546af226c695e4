"""Tokens after a prompt, by any kind of search: whole results, or one token after another as a stream."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic

import torch
from torch import Tensor

from cutaway.decode.beam import beam_search
from cutaway.decode.sampling import Draws, Sampling, draw, row_seed, shape
from cutaway.decode.search import GREEDY, Limits, Search
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
from cutaway.errors import CutawayError


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
    search: Search = GREEDY,
    limits: Limits | Sequence[Limits],
    eos_id: int | Sequence[int] | None,
    forbidden: Sequence[int] = (),
    places: Sequence[int] | None = None,
) -> list[list[Generated]]:
    """Continue every prompt: `search.n_best` results each, best first, every prompt as if it had been alone.

    `cache` comes from the model's `begin`, with one row a prompt. Prompts may differ in length (they are padded
    on the left) unless the model is an encoder-decoder. `limits` are for all prompts, or one a prompt; one of no
    token gives an empty result. `forbidden` ids are never chosen. `places` are the prompts' places in a larger request,
    which decide what they draw. Raises CutawayError where no token may be chosen.
    """
    if search.beam > 1:
        return beam_search(
            model, cache, prompts, search=search, limits=limits, eos_id=eos_id, forbidden=forbidden
        )
    written = [_Written() for _ in prompts]
    for step in stream(
        model, cache, prompts, search=search, limits=limits, eos_id=eos_id, forbidden=forbidden, places=places
    ):
        for i, row in enumerate(step.rows):
            written[row].add(step, i)
    return [[each.result(search)] for each in written]


def stream(
    model: StepModel[C],
    cache: C,
    prompts: Sequence[Sequence[int]],
    *,
    search: Search = GREEDY,
    limits: Limits | Sequence[Limits],
    eos_id: int | Sequence[int] | None,
    forbidden: Sequence[int] = (),
    places: Sequence[int] | None = None,
) -> Iterator[Step]:
    """Like `generate` with beam 1, but gives every step as soon as it is computed. Errors are raised at once."""
    if search.beam != 1:
        raise CutawayError("beam is {beam}, expected 1: a stream shows each token once", beam=search.beam)
    places = range(len(prompts)) if places is None else places
    if len(places) != len(prompts):
        raise CutawayError(
            "places: {places}, prompts: {prompts}; give one a prompt",
            places=len(places),
            prompts=len(prompts),
        )
    stepper, sampling = Stepper(model, cache, prompts, search), search.sampling
    choice = Choice(prompts, limits, eos_id, forbidden, search, stepper.device)
    rows = [row for row, most in enumerate(choice.most) if most]
    stepper.start(rows)
    choice.start(rows)
    draws = Draws([] if sampling.greedy else [row_seed(sampling.seed, places[row]) for row in rows])
    return iter(_Running(stepper, choice, sampling, draws, rows).advance, None)


@dataclass
class _Written:
    """One row's result, as far as it is written."""

    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    alternatives: list[Alternatives] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)
    finish: Finish = "length"

    def add(self, step: Step, i: int) -> None:
        self.ids.append(step.ids[i])
        self.log_probs.append(step.log_probs[i])
        self.finish = step.finish[i] or self.finish
        if step.alternatives:
            self.alternatives.append(step.alternatives[i])
        if step.cross_attention is not None:
            self.attention.append(step.cross_attention[i])

    def result(self, search: Search) -> Generated:
        score = math.fsum(self.log_probs) / search.length_penalty.divisor(len(self.ids)) if self.ids else 0.0
        attention = stack_attention(self.attention)
        return Generated(self.ids, self.log_probs, self.finish, score, self.alternatives, attention)


class _Running(Generic[C]):
    """Greedy search or sampling under way. Rows that have finished are taken out of the computation."""

    def __init__(
        self, stepper: Stepper[C], choice: Choice, sampling: Sampling, draws: Draws, rows: list[int]
    ) -> None:
        self._stepper, self._choice, self._sampling, self._draws = stepper, choice, sampling, draws
        self._rows = rows
        self._ends = set(choice.ends.tolist())
        self._last = torch.empty(0)  # (R,) the newest ids

    # Not held across a yield: the mode would leak into the code that consumes the stream.
    @torch.inference_mode()
    def advance(self) -> Step | None:
        """One step for every running row; None when all have finished."""
        if not self._rows:
            return None
        seen = self._stepper.step(self._last)
        chosen = self._choose(seen.logits)  # (R,)
        log_probs = (seen.logits.gather(1, chosen[:, None]) - seen.log_total)[:, 0].tolist()
        new = chosen.tolist()
        finish: list[Finish | None] = [self._finish(row, id) for row, id in zip(self._rows, new, strict=True)]
        alternatives = [
            with_chosen(*each)
            for each in zip(seen.alternatives, new, log_probs, strict=bool(seen.alternatives))
        ]
        step = Step(self._rows, new, log_probs, finish, alternatives, seen.attention)
        self._keep(chosen, [i for i, why in enumerate(finish) if why is None])
        return step

    def _choose(self, logits: Tensor) -> Tensor:
        logits = self._choice.penalised(logits)
        logits = self._choice.allowed(logits, self._rows, self._stepper.length)
        if bool((logits.amax(dim=-1) == -math.inf).any()):
            raise nothing_left(self._stepper.length)
        if self._sampling.greedy:
            return logits.argmax(dim=-1)
        return draw(shape(logits, self._sampling), self._draws.next().to(logits.device))

    def _finish(self, row: int, id: int) -> Finish | None:
        if id in self._ends and not self._choice.forced(row, self._stepper.length):
            return "stop"
        return "length" if self._stepper.length == self._choice.most[row] else None

    def _keep(self, chosen: Tensor, kept: list[int]) -> None:
        if len(kept) == len(self._rows):
            self._last = chosen
            self._choice.follow(None, chosen)
            return
        self._rows = [self._rows[i] for i in kept]
        if not kept:
            return
        index = torch.tensor(kept, device=chosen.device)
        self._last = chosen[index]
        self._stepper.select(index)
        self._choice.follow(index, self._last)
        if not self._sampling.greedy:
            self._draws.select(index)
