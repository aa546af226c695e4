"""Texts, or any sequences of things that have names, as word ids one after the other: cut, counted, joined to phrases.

Where words come from decides what a vector means: words of a language that is written with spaces, words that jieba
finds in Chinese, the pieces of a tokenizer, or whatever stands between spaces: baskets of goods, lists of songs.
"""

import logging
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.text.word_list import WORD, WordList

Cut = Literal["words", "spaces", "jieba", "tokenizer"]
LONGEST = 10_000  # words of a sequence; a longer one is divided, and nothing of it is left out
JOINED = "_"  # between the words of a phrase


@dataclass(frozen=True)
class Sequences:
    """`ids` are the words of all sequences, sequence s from starts[s] up to starts[s + 1]."""

    words: WordList
    ids: np.ndarray  # int32
    starts: np.ndarray  # (sequences + 1,) int64

    @property
    def counts(self) -> np.ndarray:
        return np.array(self.words.counts, dtype=np.int64)


def cutter(cut: Cut, lowercase: bool, tokenizer: Tokenizer | None = None) -> Callable[[str], Sequence[str]]:
    """What makes words of a text. Raises CutawayError where jieba is wanted and not there."""

    def lowered(text: str) -> str:
        return text.lower() if lowercase else text

    if cut == "tokenizer":
        assert tokenizer is not None
        return _pieces(tokenizer, lowered)
    if cut == "jieba":
        try:
            import jieba
        except ImportError as error:
            raise CutawayError(
                "words.cut is jieba, which is not installed; pip install 'cutaway[jieba]'"
            ) from error
        jieba.setLogLevel(logging.WARNING)
        return lambda text: [word for word in jieba.cut(lowered(text)) if WORD.fullmatch(word)]
    if cut == "spaces":
        return lambda text: lowered(text).split()
    return lambda text: WORD.findall(lowered(text))


def _pieces(tokenizer: Tokenizer, lowered: Callable[[str], str]) -> Callable[[str], Sequence[str]]:
    names: dict[int, str] = {}
    taken: set[str] = set()

    def name(id: int) -> str:
        if id not in names:
            shown = tokenizer.readable(id)
            # bytes of different characters may look alike
            names[id] = f"{shown}#{id}" if shown in taken else shown
            taken.add(names[id])
        return names[id]

    return lambda text: [name(id) for id in tokenizer.encode_ids([lowered(text)])[0]]


def gather(
    sequences: Iterable[Sequence[str]],
    *,
    min_count: int = 5,
    phrases: int = 0,
    threshold: float = 100.0,
) -> Sequences:
    """The words that occur at least `min_count` times, the frequent ones first, and the
    sequences of their ids; rarer words are taken out before windows are laid.

    With `phrases` pairs of neighbours that occur together much more often than apart are made into one word, as many
    times over, so that 2 also finds phrases of three and four. Raises CutawayError where no word is left.
    """
    known: defaultdict[str, int] = defaultdict()
    known.default_factory = known.__len__
    flat, lengths = array("i"), array("q")
    for sequence in sequences:
        flat.extend(map(known.__getitem__, sequence))
        lengths.append(len(sequence))
    names, ids = list(known), np.frombuffer(flat, dtype=np.int32) if flat else np.empty(0, np.int32)
    starts = np.cumsum([0, *lengths])
    for _ in range(phrases):
        names, ids, starts = _join(names, ids, starts, min_count, threshold)
    counts = np.bincount(ids, minlength=len(names))
    ranked = sorted(np.flatnonzero(counts >= min_count).tolist(), key=lambda id: (-counts[id], names[id]))
    if len(ranked) < 2:
        raise CutawayError(
            "words that occur at least {min_count} times: {count}, expected two or more; give more text, or a smaller "
            "words.min_count",
            min_count=min_count,
            count=len(ranked),
        )
    new = np.full(len(names), -1, dtype=np.int32)
    new[ranked] = np.arange(len(ranked), dtype=np.int32)
    ids = new[ids]
    kept = ids >= 0
    starts = np.concatenate([[0], np.cumsum(kept)])[starts]
    words = WordList([names[id] for id in ranked], counts[ranked].tolist())
    return Sequences(words, ids[kept], _divided(starts))


def _divided(starts: np.ndarray) -> np.ndarray:
    """The same sequences, empty ones left out, and long ones in parts."""
    starts = np.unique(starts)
    parts = -(-np.diff(starts) // LONGEST)
    if (parts <= 1).all():
        return starts
    stretches = zip(starts[:-1], starts[1:], parts, strict=True)
    cut = [np.linspace(a, b, n, endpoint=False).astype(np.int64) for a, b, n in stretches]
    return np.concatenate([*cut, starts[-1:]])


def _join(
    names: list[str], ids: np.ndarray, starts: np.ndarray, min_count: int, threshold: float
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Pairs ab with (count(ab) - min_count) · words / (count(a) · count(b)) above the threshold become one word
    (Mikolov et al. 2013b, equation 6), from left to right."""
    counts = np.bincount(ids, minlength=len(names)).astype(np.float64)
    pairs = ids[:-1].astype(np.int64) * len(names) + ids[1:]
    # no pair across the end of a sequence
    within = np.ones(len(pairs), dtype=bool)
    within[starts[(starts > 0) & (starts < len(ids))] - 1] = False
    found, times = np.unique(pairs[within], return_counts=True)
    left, right = np.divmod(found, len(names))
    scores = (times - min_count) * len(ids) / (counts[left] * counts[right])
    chosen = (scores > threshold) & (counts[left] >= min_count) & (counts[right] >= min_count)
    joined = within & np.isin(pairs, found[chosen])
    # in a run of overlapping pairs every second one
    runs = np.flatnonzero(joined & ~np.concatenate([[False], joined[:-1]]))
    at = np.flatnonzero(joined)
    firsts = at[(at - runs[np.searchsorted(runs, at, side="right") - 1]) % 2 == 0] if len(at) else at
    # a pair may be spelled as a word that is there already
    known = {name: id for id, name in enumerate(names)}
    new: dict[int, int] = {}
    for a, b, pair in zip(left[chosen], right[chosen], found[chosen].tolist(), strict=True):
        new[pair] = known.setdefault(f"{names[a]}{JOINED}{names[b]}", len(known))
    ids = ids.copy()
    ids[firsts] = [new[pair] for pair in pairs[firsts].tolist()]
    kept = np.ones(len(ids), dtype=bool)
    kept[firsts + 1] = False
    return list(known), ids[kept], np.concatenate([[0], np.cumsum(kept)])[starts]
