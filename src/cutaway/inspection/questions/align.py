"""Where each word of a translation looked, what it depends on, and what else the search found."""

# Shapes: L layers, H heads, T written tokens, S source tokens, N target words, M source words.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.route import Language
from cutaway.decode.search import BeamStep
from cutaway.decode.text_model import Hypothesis
from cutaway.decode.translator import BEAM, Translator
from cutaway.errors import CutawayError
from cutaway.inspection.asked import OneHead, OneLayer
from cutaway.inspection.options import Option
from cutaway.inspection.page_parts import array, greatest, numbers_to
from cutaway.inspection.patterns import head_maps, patterns, row_labels
from cutaway.inspection.question import TRANSLATOR, Translating, question
from cutaway.inspection.runs import Beam, GivenTarget, Run, Tokens, ToLanguage, run, tokenizer_of
from cutaway.inspection.source_effect import Agreement, SourceEffect, agreement, source_effect
from cutaway.inspection.terms import HEAD, LAYER, READS_WRITES, SOURCE, TARGET, WEIGHT, left, right
from cutaway.inspection.wiring import chosen
from cutaway.inspection.word_alignment import (
    AlignmentError,
    Gold,
    alignment_error,
    error_by_head,
    links,
    read_pharaoh,
    split_words,
    word_pieces,
    word_weights,
)
from cutaway.page.blocks import Block, Heading, Line, Matrix, Page, Table, page
from cutaway.page.numbers import nats, share
from cutaway.text.display import truncate
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Text, say


@dataclass(frozen=True, repr=False)
class Alignment(Translating):
    """A source and its translation, with the attention of decoding (Bahdanau et al. 2015, §5.2.1; of a Transformer:
    Vaswani et al. 2017, §3.2.3) beside the measured effect of each source token.

    `cross_attention` (L, H, T, S) holds in row t the weights over the source with which outcome t was chosen; rows sum
    to 1. `weights` (T, S) is their mean over the heads that were asked for. They say where the decoder read, not what
    the word depends on: `effect` measures that, and `agreement` how far the two put the source tokens in the same
    order. `greedy` and `hypotheses`, best first, are what the search wrote, `dropped` what it gave up on the way; None
    and empty where the translation was given. `gold` compares with links that people drew.
    """

    loaded: Loaded
    source: Tokens
    start: Tokens  # what the decoder read before it wrote
    outcome: Tokens
    rows: tuple[str, ...]
    cross_attention: Tensor
    weights: Tensor
    layer: int | None
    head: int | None
    effect: SourceEffect
    agreement: Agreement
    greedy: Hypothesis | None
    hypotheses: tuple[Hypothesis, ...]
    dropped: "tuple[Dropped, ...]"
    gold: "GoldComparison | None"

    def page(self) -> Page:
        return _page(self)

    @property
    def output(self) -> str:
        return self.loaded.require_tokenizer().decode(self.outcome.ids)

    def run(self, hypothesis: Hypothesis) -> Run:
        """A forward pass that reads the source and writes this hypothesis: what every other question is asked of.

        Its first `len(start) - 1` outcomes are what was forced on the decoder, the others the hypothesis' tokens.
        Raises CutawayError for a hypothesis without a token.
        """
        return _run_of(self.loaded, self.source, self.start, hypothesis)


@dataclass(frozen=True)
class Dropped:
    """The best hypothesis that a step of the search gave up: after `step` tokens (the last of `pieces` the newest) its
    log-probability `total` was below `kept`, that of the last one for which the beam had a place, or it ended without
    being among the best of all, as many as the beam is wide."""

    step: int
    pieces: tuple[str, ...]
    total: float  # nats
    kept: float


@dataclass(frozen=True)
class GoldComparison:
    """Alignment error rates (Och & Ney 2003, §5.1; see `AlignmentError`) of one translation against gold links: of
    every head's cross-attention, of their mean, and of the measured effect of hiding a source token.

    Weights between pieces become weights between words (`word_weights`: Garg et al. 2019, §5), and each target word is
    linked to the source word of its greatest weight. A weight is that of the step which chose the token.
    """

    source: tuple[str, ...]  # words
    target: tuple[str, ...]
    gold: Gold
    heads: tuple[tuple[AlignmentError, ...], ...]  # (L, H)
    mean: AlignmentError
    effect: AlignmentError


@question(say("Where each word of a translation looked, and what it depends on."), "attention", TRANSLATOR)
def align(
    loaded: Loaded,
    text: Annotated[str, Option(say("The text to translate."), positional=True)],
    *,
    target: GivenTarget = None,
    to: ToLanguage = None,
    beam: Beam = None,
    top: Annotated[
        int | None, Option(say("Hypotheses of the search that are listed, at most its width."), at_least=1)
    ] = None,
    layer: OneLayer = None,
    head: OneHead = None,
    gold: Annotated[
        str | None,
        Option(say("Links between words that people drew, source-target from 0, such as '0-0 1-2 2?1'.")),
    ] = None,
) -> Alignment:
    """Translate greedily and by a search, or look at a given translation, and measure what each token depends on.

    Raises CutawayError for a model that does not translate, an empty text, and values out of range.
    """
    links_drawn = None if gold is None else _links(gold)
    greedy, hypotheses, dropped = None, (), ()
    if target is None:
        greedy, hypotheses, dropped, looked = _searched(loaded, text, to, beam, top)
        cross = hypotheses[0].cross_attention
        assert cross is not None, "asked of the search"
        forced = len(looked.outcome) - len(hypotheses[0].ids)
        # what is forced on a decoder is chosen by no step of the search
        if forced:
            cross = patterns(looked, "cross").values
    else:
        looked = run(loaded, text, target=target, to=to)
        cross = patterns(looked, "cross").values
    assert looked.source is not None and looked.target is not None
    layers = chosen(say("layer"), layer, cross.shape[0])
    heads = chosen(say("head"), head, cross.shape[1])
    weights = cross[list(layers)][:, list(heads)].mean(dim=(0, 1))
    effect = source_effect(looked)
    start = len(looked.outcome) - len(hypotheses[0].ids) + 1 if hypotheses else 1
    return Alignment(
        loaded=loaded,
        source=looked.source,
        start=Tokens(looked.target.ids[:start], looked.target.pieces[:start]),
        outcome=looked.outcome,
        rows=row_labels(looked, "cross"),
        cross_attention=cross,
        weights=weights,
        layer=None if layer is None else layers[0],
        head=None if head is None else heads[0],
        effect=effect,
        agreement=agreement(weights, effect.effect),
        greedy=greedy,
        hypotheses=hypotheses,
        dropped=dropped,
        gold=None if links_drawn is None else compare_with_gold(looked, links_drawn, cross, effect.effect),
    )


def _searched(
    loaded: Loaded, text: str, to: Language | None, beam: int | None, top: int | None
) -> tuple[Hypothesis, tuple[Hypothesis, ...], tuple[Dropped, ...], Run]:
    translator = Translator(loaded)
    source = translator.prepare(text, to=to)
    if not source.ids:
        raise CutawayError("the text is empty: there is nothing to align; give a sentence")
    steps: list[BeamStep] = []
    search = translator.own.search(BEAM, beam=beam, temperature=0.0, attention="full", observe=steps.append)
    if top is not None and top > search.beam:
        raise CutawayError(
            "top is {top}, but the search is only {beam} wide: make beam {top}", top=top, beam=search.beam
        )
    greedy = replace(search, beam=1, attention=None, observe=None)
    greedy = translator.write([source], search=greedy)[0][0]
    search = replace(search, n_best=search.beam if top is None else top)
    [found] = translator.write([source], search=search)
    tokenizer, begun = loaded.require_tokenizer(), translator.start(source)
    start = Tokens(begun, [tokenizer.readable(id) for id in begun])
    looked = _run_of(loaded, Tokens(source.ids, source.pieces), start, found[0])
    return greedy, tuple(found), tuple(_given_up(steps, tokenizer.target)), looked


def _given_up(steps: Sequence[BeamStep], tokenizer: Tokenizer) -> Iterator[Dropped]:
    """The best hypothesis that was dropped at each step."""
    live: list[tuple[str, ...]] = [()]
    for n, step in enumerate(steps, start=1):
        grown = [(*live[each.parent], tokenizer.readable(each.id)) for each in step.candidates]
        kept = [each.total for each in step.candidates if each.fate != "dropped"]
        dropped = (place for place, each in enumerate(step.candidates) if each.fate == "dropped")
        best = next(dropped, None)
        if kept and best is not None:
            yield Dropped(n, grown[best], step.candidates[best].total, min(kept))
        live = [pieces for each, pieces in zip(step.candidates, grown, strict=True) if each.fate == "live"]


def _run_of(loaded: Loaded, source: Tokens, start: Tokens, hypothesis: Hypothesis) -> Run:
    if not hypothesis.ids:
        raise CutawayError("the hypothesis has no token: there is nothing to look into; give another text")
    ids, pieces = [*start.ids, *hypothesis.ids], [*start.pieces, *hypothesis.pieces]
    return Run(loaded, source, Tokens(ids[:-1], pieces[:-1]), Tokens(ids[1:], pieces[1:]))


def compare_with_gold(
    looked: Run,
    gold: Gold,
    cross_attention: Tensor,
    effect: Tensor,
    *,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
) -> GoldComparison:
    """Hold cross-attention (L, H, T, S) and measured effects (T, S) of a run against `gold`, whose numbers count the
    words of `source` and `target`; None: Chinese characters one by one, other words at spaces and punctuation
    (`split_words`).

    Raises CutawayError for words that are not those of the texts, and links of words that there are not.
    """
    assert looked.source is not None
    cut, written = tokenizer_of(looked, "encoder"), tokenizer_of(looked, "decoder")
    sources = split_words(cut.decode(looked.source.ids)) if source is None else list(source)
    targets = split_words(written.decode(looked.outcome.ids)) if target is None else list(target)
    source_groups = word_pieces(cut, looked.source.ids, sources)
    target_groups = word_pieces(written, looked.outcome.ids, targets)
    by_head = word_weights(cross_attention, target_groups, source_groups)
    return GoldComparison(
        source=tuple(sources),
        target=tuple(targets),
        gold=gold,
        heads=error_by_head(by_head, gold),
        mean=alignment_error(links(by_head.mean(dim=(0, 1))), gold),
        effect=alignment_error(links(word_weights(effect, target_groups, source_groups)), gold),
    )


def _links(text: str) -> Gold:
    gold = read_pharaoh(text, "gold")
    if not gold.possible:
        raise CutawayError("gold is empty, expected links between words, source-target from 0: '0-0 1-2 2?1'")
    return gold


# Its page.


def _page(found: Alignment) -> Page:
    source, effect, mean = found.source.pieces, found.effect, found.agreement.mean
    columns = (
        left(READS_WRITES),
        right(say("prob.")),
        left(say("looked at")),
        left(say("depends on (nats)")),
    )
    per_token = zip(found.rows, effect.log_probs.exp().tolist(), found.weights, effect.effect, strict=True)
    rows = [
        (
            truncate(label, 22),
            share(probability),
            "  ".join(greatest(source, weights, 2)),
            "  ".join(greatest(source, falls, 2, nats)),
        )
        for label, probability, weights, falls in per_token
    ]
    correlation = say(
        "The two put the source tokens in the same order by ρ = {mean:.2f} (Spearman, mean of rows).",
        mean=mean,
    )
    fall, hidden = say("fall of log-probability, nats"), say("source token hidden")
    layers, heads = map(range, found.cross_attention.shape[:2])
    where = say("all layers") if found.layer is None else say("layer {layer}", layer=found.layer)
    which = say("mean of all heads") if found.head is None else say("head {head}", head=found.head)
    looked_page = page(
        say("Where the decoder looked ({where}, {which})", where=where, which=which),
        [
            Matrix(array(found.weights), found.rows, source, READS_WRITES, SOURCE, WEIGHT),
            Heading(say("What each token depends on")),
            Table(columns, rows),
            say(
                "looked at: the source tokens with most cross-attention. depends on: how far the token's "
                "log-probability falls when a source token is hidden by the mask, in nats (natural logarithms); "
                "dependence, not purpose."
            ),
            None if mean is None else correlation,
            Matrix(
                array(effect.effect), found.rows, source, READS_WRITES, hidden, fall, "signed", drawn=True
            ),
            Heading(say("Every head")),
            head_maps(found.cross_attention, layers, heads, found.rows, source, across=SOURCE),
        ],
    )
    others = [] if found.greedy is None else [_search_page(found.greedy, found)]
    others += [] if found.gold is None else [_gold_page(found.gold)]
    return looked_page.then(*others)


def alignment_map(weights: Tensor, target: Sequence[str], source: Sequence[str]) -> Matrix:
    """A heat map of weights (T, S) with which the pieces of a translation were chosen."""
    return Matrix(array(weights), target, source, TARGET, SOURCE, WEIGHT)


def _search_page(greedy: Hypothesis, found: Alignment) -> Page:
    """What greedy and beam search wrote, and what was given up on the way."""
    rows: list[tuple[Text, str, str]] = [
        (say("rank {n}", n=rank), f"{each.score:.3f}", each.text)
        for rank, each in enumerate(found.hypotheses, start=1)
    ]
    rows.append((say("greedy"), f"{greedy.score:.3f}", greedy.text))
    columns = (left(say("beam search")), right(say("score")), left(say("translation")))
    about = say("score: the sum of the tokens' log-probabilities, divided by the length penalty.")
    return page(say("What the search found"), [Table(columns, rows), about, *_dropped_table(found.dropped)])


def _dropped_table(dropped: Sequence[Dropped]) -> Iterator[Block | Text]:
    columns = (right(say("tokens")), right(say("log-prob.")), right(say("last kept")), left(say("given up")))
    rows = [
        (str(each.step), f"{each.total:.2f}", f"{each.kept:.2f}", " ".join(each.pieces)) for each in dropped
    ]
    if rows:
        yield Heading(say("What the search gave up"))
        yield Table(columns, rows)
        yield say(
            "At each step the best hypothesis that was dropped: its log-probability was below that of the last "
            "one for which the beam had a place. One that ends must be among the best of all, as many as the "
            "beam is wide."
        )


LISTED = 5  # heads, against gold links


def _gold_page(found: GoldComparison) -> Page:
    def row(name: Text, error: AlignmentError) -> list[Text]:
        measured = (error.aer, error.precision, error.recall)
        return [name, *("–" if each is None else f"{each:.2f}" for each in measured), str(error.predicted)]

    # No rate, where there is no link at all, counts as the worst.
    rates = np.array([[1.0 if each.aer is None else each.aer for each in heads] for heads in found.heads])
    n_layers, n_heads = rates.shape
    rows = [row(say("what it depends on"), found.effect), row(say("mean of all heads"), found.mean)]
    for place in rates.flatten().argsort(kind="stable")[:LISTED].tolist():
        layer, head = divmod(place, n_heads)
        rows.append(row(say("head {layer}.{head}", layer=layer, head=head), found.heads[layer][head]))
    columns = (
        left(say("links read from")), right("AER"), right(say("precision")), right(say("recall")), right(say("links")),
    )  # fmt: skip
    unit = say("alignment error rate")
    blocks = [
        Line(SOURCE, found.source),
        Line(say("translation"), found.target),
        Table(columns, rows),
        Matrix(rates, numbers_to(n_layers), numbers_to(n_heads), LAYER, HEAD, unit, drawn=True),
        say(
            "AER: alignment error rate (Och & Ney 2003), 0 where all links agree. Each target word is linked to "
            "the source word of its greatest weight, or of the token whose hiding costs it most."
        ),
    ]
    return page(say("Against the links that people drew"), blocks)
