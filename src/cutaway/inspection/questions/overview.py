"""A text at a glance: its tokens, what the model makes of them, and the heads that this depends on most."""

# Shapes: T tokens, D width, V vocabulary.

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.decode.sentence_settings import Pooling
from cutaway.inspection.changes.sweep import HeadEffect, HeadSweep, sweep
from cutaway.inspection.layers.memory import Word
from cutaway.inspection.outcome import forced_tokens, masked_positions
from cutaway.inspection.pages.overview import overview_page
from cutaway.inspection.runs import Run, Tokens, piece_of
from cutaway.inspection.sentences import sentence_settings, sentence_vectors
from cutaway.inspection.wiring import at_least_one
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.head import Head
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn

EXPECTED = 5  # tokens listed at a place


@dataclass(frozen=True)
class Expected:
    """The most probable tokens at a position of the output, best first, with their log-probabilities."""

    position: int
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Vector:
    """A text's vector (D,), made as `cutaway.embed` makes it."""

    values: Tensor
    pooling: Pooling
    normalised: bool


@dataclass(frozen=True, repr=False)
class Overview(Drawn):
    """What a run comes to. Logarithms are natural.

    `source` and `target` are the tokens of both sides: of a translation what was read and what was written, else what
    the model reads on the side that it has. `text` is what was written; empty but for a translation. `outcome` are the
    tokens that the output is judged by (see `forced.Forced`), `log_probs` (T,) their log-probabilities. `expected`
    holds the most probable tokens where they tell most: of a translation at its least probable token, of a decoder-only
    model after the text, of a masked one in each gap. `sweep` is what the output loses without each head, and `heads`
    are the first `top` of its ranking (Michel et al. 2019, §3.2).

    A model without output head gives no words: `log_probs` and `expected` are empty, and `vector` is what it makes of
    the text, which is None for every other model.
    """

    model: str  # the name of its folder
    source: Tokens | None
    target: Tokens | None
    text: str
    outcome: Tokens
    log_probs: Tensor
    expected: tuple[Expected, ...]
    sweep: HeadSweep
    top: int
    vector: Vector | None = None

    @property
    def heads(self) -> tuple[HeadEffect, ...]:
        return self.sweep.ranking[: self.top]

    def page(self) -> Page:
        return overview_page(self)


def overview(run: Run, top: int = 5, *, observe: Callable[[int, int], None] | None = None) -> Overview:
    """Look at a run as a whole; `observe` is `sweep`'s. Raises CutawayError for a `top` below 1."""
    at_least_one(top=top)
    translating = isinstance(run.model, EncoderDecoder)
    name, target = run.loaded.name, run.outcome if translating else run.target
    effects = sweep(run, observe=observe)
    if not isinstance(run.model.head, Head):
        nothing = torch.empty(0)
        return Overview(name, run.source, target, "", Tokens([], []), nothing, (), effects, top, _vector(run))
    logits, _ = run.forward()
    scores = logits.float().log_softmax(dim=-1)
    forced = forced_tokens(run, logits)
    ids = torch.tensor(forced.ids, device=scores.device)
    log_probs = scores.gather(1, ids[:, None])[:, 0].cpu()
    if translating:
        places = [int(log_probs.argmin())]
    else:
        places = [len(scores) - 1] if isinstance(run.model, DecoderOnly) else masked_positions(run)
    return Overview(
        model=name,
        source=run.source,
        target=target,
        text=run.loaded.require_tokenizer().decode(run.outcome.ids) if translating else "",
        outcome=Tokens(forced.ids, [piece_of(run, id) for id in forced.ids]),
        log_probs=log_probs,
        expected=tuple(_expected(run, scores[place], place) for place in places),
        sweep=effects,
        top=top,
    )


def _expected(run: Run, scores: Tensor, place: int) -> Expected:
    best = scores.topk(min(EXPECTED, len(scores)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return Expected(place, tuple(Word(id, piece_of(run, id), value) for id, value in pairs))


def _vector(run: Run) -> Vector:
    states, _ = run.hidden()
    settings = sentence_settings(run.loaded)
    (values,) = sentence_vectors(run.loaded, states[None])
    return Vector(values.cpu(), settings.pooling, settings.normalise)
