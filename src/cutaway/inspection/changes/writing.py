"""What a run's model writes while it is changed: decoding in a cache, greedy or by beam search, under edits."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp

import torch
from torch import Tensor

from cutaway.decode.generation import generate
from cutaway.decode.own_settings import own_settings
from cutaway.decode.search import GREEDY
from cutaway.decode.text_model import end_ids_of, readable
from cutaway.decode.translation import Source
from cutaway.decode.translator import BEAM, Translator
from cutaway.errors import CutawayError
from cutaway.inspection.changes.lists import Changes, edits
from cutaway.inspection.outcome import filled_gaps, masked_positions, never_written
from cutaway.inspection.runs import Run
from cutaway.inspection.terms import PROBABILITY, TOKENS
from cutaway.inspection.wiring import output_head
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.page.blocks import Line, Page, Prose, Tinted, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import share
from cutaway.tap import Trace
from cutaway.words import say

NEW_TOKENS = 20  # of a decoder-only model, unless given


@dataclass(frozen=True, repr=False)
class Output(Drawn):
    """What was written: ids with, for each, its piece as a reader sees it and its log-probability (natural logarithm)
    under the model as it ran, changes included. `score` is what a search ranks it by: their sum, normalised by the
    usual length penalty (Wu et al. 2016, §7); of an encoder-only model the plain sum over the gaps."""

    text: str
    ids: list[int]
    pieces: list[str]
    log_probs: list[float]
    score: float

    def page(self) -> Page:
        words = [
            Tinted(piece, exp(log_prob), hint=share(exp(log_prob)))
            for piece, log_prob in zip(self.pieces, self.log_probs, strict=True)
        ]
        return page(
            say("What the model writes"),
            [
                Prose(say("text"), self.text),
                Line(TOKENS, words, tint=PROBABILITY),
                Line(say("score"), [f"{self.score:.3f}"]),
            ],
        )


def write(
    run: Run,
    changes: Changes = (),
    *,
    runs: Mapping[str, Run] | None = None,
    beam: int | None = None,
    max_new_tokens: int | None = None,
) -> Output:
    """The text that the run's model writes under `changes` (see `lists.edits`).

    An encoder-decoder writes its translation of the run's source, with a search of width `beam` and within
    limits that are the model's own unless given, as `Translator` does. A decoder-only model goes on writing after the
    run's text, greedily unless `beam` is given, `max_new_tokens` tokens at most (20 unless given). An encoder-only
    model puts its most probable token in the place of every `[MASK]`, each independently of the others.
    Raises CutawayError for changes or settings that are out of range, and for a model without output head.
    """
    output_head(run.model)
    if isinstance(run.model, EncoderDecoder | DecoderOnly):
        return _decoded(run, run.model, changes, runs, beam, max_new_tokens)
    if beam is not None or max_new_tokens is not None:
        raise CutawayError(
            "an encoder-only model fills gaps and does not write on: leave beam and max_new_tokens out"
        )
    logits, _ = run.forward(edit=edits(changes, run, runs))
    return filled(run, logits)


def filled(run: Run, logits: Tensor) -> Output:
    """What an encoder-only model writes by its logits (T, V): the text with its gaps filled."""
    tokenizer, ids = run.loaded.require_tokenizer(), filled_gaps(run, logits)
    chosen = logits.float().log_softmax(dim=-1).gather(1, torch.tensor(ids, device=logits.device)[:, None])
    log_probs: list[float] = chosen[:, 0].tolist()
    score = sum(log_probs[position] for position in masked_positions(run))
    return Output(tokenizer.decode(ids), ids, [tokenizer.readable(id) for id in ids], log_probs, score)


def _decoded(
    run: Run,
    model: EncoderDecoder | DecoderOnly,
    changes: Changes,
    runs: Mapping[str, Run] | None,
    beam: int | None,
    max_new_tokens: int | None,
) -> Output:
    loaded, tokenizer = run.loaded, run.loaded.require_tokenizer()
    own = own_settings(loaded)
    assert run.target is not None
    if isinstance(model, EncoderDecoder):
        assert run.source is not None
        translator = Translator(loaded)
        prompt, limits = (
            decoder_start(run, translator),
            translator.limits(run.source.ids, own.limits(max_new_tokens)),
        )
        search = own.search(BEAM, beam=beam, temperature=0.0)
    else:
        prompt = [*run.target.ids, *run.outcome.ids[-1:]]
        search = own.search(GREEDY, beam=1 if beam is None else beam, temperature=0.0)
        limits = own.limits(NEW_TOKENS if max_new_tokens is None else max_new_tokens)
        limits = limits.within(loaded.config.max_len, NEW_TOKENS)
    with torch.inference_mode(), Trace(model, edit=edits(changes, run, runs)):
        cache = model.begin(run.inputs["source"]) if isinstance(model, EncoderDecoder) else model.begin(1)
        ((found, *_),) = generate(
            model,
            cache,
            [prompt],
            search=search,
            limits=limits,
            eos_id=end_ids_of(loaded),
            forbidden=never_written(run),
        )
    best = readable(tokenizer, found)
    return Output(best.text, best.ids, best.pieces, best.log_probs, best.score)


def decoder_start(run: Run, translator: Translator) -> list[int]:
    """The tokens that the decoder of this run read before it wrote: its start token, and what is forced after it."""
    assert run.target is not None
    starts = [translator.start(Source("", to, [], [], [], (), False)) for to in (None, *translator.languages)]
    fitting = [start for start in starts if run.target.ids[: len(start)] == start]
    if not fitting:
        raise CutawayError(
            "the run's target begins with id {id}, expected the decoder's start {start}",
            id=run.target.ids[0],
            start=starts[0],
        )
    return max(fitting, key=len)
