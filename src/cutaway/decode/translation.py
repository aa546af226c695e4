"""What became of a text: its sentences, each with its translations, and those of the whole text put together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from cutaway.decode.route import Language
from cutaway.decode.text_model import Hypothesis
from cutaway.text.sentence_ends import joined
from cutaway.text.tokens.encoding import Spans
from cutaway.words import Phrase, say


@dataclass(frozen=True)
class Source:
    """A text made ready for the encoder. Of a blank text there are no ids, else the language token if the model has
    one, the text's, and the end token."""

    text: str  # as it was given
    to: Language | None  # None for a model of one direction
    ids: list[int]
    pieces: list[str]  # as a reader sees them
    offsets: Spans  # of each piece in `text`; control tokens have no width
    notes: tuple[Phrase, ...]  # what was done to the text on the way
    cut: bool  # whether its end was left out


@dataclass(frozen=True)
class Sentence:
    """A sentence, from `start` to `end` of its text, and what became of it, the best first. What was not translated has
    no ids, and stands as it was in the text's translation."""

    start: int
    end: int
    source: Source
    hypotheses: list[Hypothesis]
    notes: tuple[Phrase, ...]  # what is to be said of its translation

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]


@dataclass(frozen=True)
class Translation:
    """A text and what became of it, the best first: its sentences, one after another.

    `source` has the pieces of all sentences in one list, and a hypothesis those of their translations; its `text` has
    between them what stood between the sentences, its `score` is the sum of theirs, and its alignment looks from each
    sentence to its own source alone. The n-th hypothesis is made of the n-th of each sentence, or its last.
    """

    source: Source
    hypotheses: list[Hypothesis]
    sentences: list[Sentence]

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]

    @property
    def notes(self) -> tuple[Phrase, ...]:
        """What was done to the text on the way, and what is to be said of its translation."""
        if len(self.sentences) == 1:
            return (*self.source.notes, *self.sentences[0].notes)
        of_sentences = (
            say("sentence {number}: {remark}", number=number, remark=remark)
            for number, sentence in enumerate(self.sentences, start=1)
            for remark in sentence.notes
        )
        return (*self.source.notes, *of_sentences)


def put_together(text: str, to: Language | None, sentences: Sequence[Sentence]) -> Translation:
    """The translation of `text`, whose sentences they are; an empty one where there are none."""
    sources = [each.source for each in sentences]
    source = Source(
        text,
        to,
        [id for each in sources for id in each.ids],
        [piece for each in sources for piece in each.pieces],
        [(each.start + start, each.start + end) for each in sentences for start, end in each.source.offsets],
        tuple(dict.fromkeys(note for each in sources for note in each.notes)),
        any(each.cut for each in sources),
    )
    ranks = max((len(each.hypotheses) for each in sentences), default=1)
    return Translation(source, [_whole(text, sentences, rank) for rank in range(ranks)], list(sentences))


def _whole(text: str, sentences: Sequence[Sentence], rank: int) -> Hypothesis:
    """The hypothesis of the text that is made of one of each sentence."""
    chosen = [each.hypotheses[min(rank, len(each.hypotheses) - 1)] for each in sentences]
    whole = joined(text, [(each.start, each.end) for each in sentences], [each.text for each in chosen])
    if len(chosen) == 1:
        return replace(chosen[0], text=whole)
    return Hypothesis(
        whole,
        [id for each in chosen for id in each.ids],
        [piece for each in chosen for piece in each.pieces],
        [log_prob for each in chosen for log_prob in each.log_probs],
        math.fsum(each.score for each in chosen),
        "length" if any(each.finish == "length" for each in chosen) else "stop",
        [step for each in chosen for step in each.alternatives],
        _diagonal([each.alignment for each in chosen if each.alignment is not None]),
        _diagonal([each.cross_attention for each in chosen if each.cross_attention is not None]),
    )


def _diagonal(blocks: Sequence[Tensor]) -> Tensor | None:
    """Blocks (..., T, S) of one stack, along the diagonal of a matrix that is 0 elsewhere."""
    if not blocks:
        return None
    whole = blocks[0].new_zeros(
        *blocks[0].shape[:-2], sum(each.shape[-2] for each in blocks), sum(each.shape[-1] for each in blocks)
    )
    row = column = 0
    for each in blocks:
        rows, columns = each.shape[-2:]
        whole[..., row : row + rows, column : column + columns] = each
        row, column = row + rows, column + columns
    return whole
