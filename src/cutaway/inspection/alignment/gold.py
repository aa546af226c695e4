"""How far attention, and what a translation depends on, are from the links that people drew."""

# Shapes: L layers, H heads, N target words, M source words.

from collections.abc import Sequence
from dataclasses import dataclass

from cutaway.inspection.alignment.error_rate import (
    AlignmentError,
    Gold,
    alignment_error,
    error_by_head,
    links,
)
from cutaway.inspection.alignment.source_effect import source_effect
from cutaway.inspection.alignment.words import split_words, word_pieces, word_weights
from cutaway.inspection.attention.patterns import patterns
from cutaway.inspection.pages.gold import gold_page
from cutaway.inspection.runs import Run, tokenizer_of
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn


@dataclass(frozen=True, repr=False)
class GoldComparison(Drawn):
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

    def page(self) -> Page:
        return gold_page(self)


def compare_with_gold(
    run: Run,
    gold: Gold,
    *,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
) -> GoldComparison:
    """Hold a run's cross-attention and measured effects against `gold`, whose numbers count the words of `source` and
    `target`; None: Chinese characters one by one, other words at spaces and punctuation (`split_words`).

    Raises CutawayError for a model without cross-attention, words that are not those of the texts, and links of words
    that there are not.
    """
    values = patterns(run, "cross").values
    assert run.source is not None
    cut, written = tokenizer_of(run, "encoder"), tokenizer_of(run, "decoder")
    sources = split_words(cut.decode(run.source.ids)) if source is None else list(source)
    targets = split_words(written.decode(run.outcome.ids)) if target is None else list(target)
    source_groups = word_pieces(cut, run.source.ids, sources)
    target_groups = word_pieces(written, run.outcome.ids, targets)
    by_head = word_weights(values, target_groups, source_groups)
    heads = error_by_head(by_head, gold)
    effect = word_weights(source_effect(run).effect, target_groups, source_groups)
    return GoldComparison(
        source=tuple(sources),
        target=tuple(targets),
        gold=gold,
        heads=heads,
        mean=alignment_error(links(by_head.mean(dim=(0, 1))), gold),
        effect=alignment_error(links(effect), gold),
    )
