"""Alignments as links between words, and how far they are from those that people drew."""

# Shapes: N target words, M source words, L layers, H heads.

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from cutaway.errors import CutawayError, brief
from cutaway.inspection.pages.gold import error_page
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn

Link = tuple[int, int]  # source word, target word, both from 0

_LINK = re.compile(r"(\d+)([-?p])(\d+)")


@dataclass(frozen=True)
class Gold:
    """The links of one sentence pair that people drew: `sure`, and `possible`, which contains the sure
    ones (Och & Ney 2003, §5.1)."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True, repr=False)
class AlignmentError(Drawn):
    """Counts of links A against sure links S and possible links P ⊇ S (Och & Ney 2003, §5.1); counts of several
    sentences add up.

    precision = |A∩P| / |A|, recall = |A∩S| / |S|, AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|), each from 0 to 1 and None
    where its denominator is 0. A lower AER is better.
    """

    predicted: int  # |A|
    sure: int  # |S|
    in_sure: int  # |A∩S|
    in_possible: int  # |A∩P|

    def page(self) -> Page:
        return error_page(self)

    def __add__(self, other: "AlignmentError") -> "AlignmentError":
        return AlignmentError(
            self.predicted + other.predicted,
            self.sure + other.sure,
            self.in_sure + other.in_sure,
            self.in_possible + other.in_possible,
        )

    @property
    def precision(self) -> float | None:
        return self.in_possible / self.predicted if self.predicted else None

    @property
    def recall(self) -> float | None:
        return self.in_sure / self.sure if self.sure else None

    @property
    def aer(self) -> float | None:
        links = self.predicted + self.sure
        return 1 - (self.in_sure + self.in_possible) / links if links else None


def read_pharaoh(line: str, where: str = "the alignment", *, from_one: bool = False) -> Gold:
    """Gold links of one sentence pair: `0-0` is sure, `1?2` and `1p2` are possible; source word first.

    Words count from 0, or from 1 with `from_one`. Raises CutawayError naming `where` and what is no link.
    """
    sure: set[Link] = set()
    possible: set[Link] = set()
    first = int(from_one)
    for entry in line.split():
        match = _LINK.fullmatch(entry)
        if match is None or min(int(match[1]), int(match[3])) < first:
            raise CutawayError(
                "{where}: {entry} is no link, expected source-target counted from {first}, like 1-2 "
                "(sure) or 1?2, 1p2 (possible)",
                where=where,
                entry=brief(entry),
                first=first,
            )
        link = (int(match[1]) - first, int(match[3]) - first)
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def links(weights: Tensor, threshold: float | None = None) -> frozenset[Link]:
    """Read links off weights (N, M) between words.

    Without a threshold each target word is linked to the source word of its greatest weight (the first of equal
    ones), and to none when all its weights are 0; with one, to every source word of at least that weight.
    """
    if weights.ndim != 2:
        raise CutawayError(
            "weights have the shape {shape}, expected (target words, source words)", shape=list(weights.shape)
        )
    if threshold is None:
        if weights.shape[1] == 0:
            return frozenset()
        best = weights.argmax(dim=1).tolist()
        some = (weights > 0).any(dim=1).tolist()
        return frozenset((source, target) for target, source in enumerate(best) if some[target])
    if not 0 < threshold <= 1:
        raise CutawayError(
            "threshold is {threshold}, expected a weight above 0 and up to 1", threshold=threshold
        )
    return frozenset((source, target) for target, source in (weights >= threshold).nonzero().tolist())


def alignment_error(predicted: Iterable[Link], gold: Gold) -> AlignmentError:
    """Count one sentence's links against the gold ones."""
    found = frozenset(predicted)
    return AlignmentError(len(found), len(gold.sure), len(found & gold.sure), len(found & gold.possible))


def error_by_head(
    weights: Tensor, gold: Gold, threshold: float | None = None
) -> tuple[tuple[AlignmentError, ...], ...]:
    """Weights between words of every head (L, H, N, M) -> one count for each layer and head.

    Raises CutawayError when a gold link names a word that there is not.
    """
    if weights.ndim != 4:
        raise CutawayError(
            "weights have the shape {shape}, expected (layers, heads, target words, source words)",
            shape=list(weights.shape),
        )
    check_range(gold, n_source=weights.shape[3], n_target=weights.shape[2])
    return tuple(tuple(alignment_error(links(head, threshold), gold) for head in layer) for layer in weights)


def check_range(gold: Gold, *, n_source: int, n_target: int, where: str = "the alignment") -> None:
    """Refuse gold links beyond the words of a sentence pair: the words are then cut otherwise than in the gold text.

    Raises CutawayError naming `where`, the link and both numbers of words.
    """
    for source, target in sorted(gold.possible):
        if source >= n_source or target >= n_target:
            raise CutawayError(
                "{where}: link {source}-{target} (counted from 0) is out of range: there are "
                "{n_source} source words and {n_target} target words",
                where=where,
                source=source,
                target=target,
                n_source=n_source,
                n_target=n_target,
            )
