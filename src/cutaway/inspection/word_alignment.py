"""Alignments between words: from pieces to words, links read off weights, and how far they are from those that people
drew."""

# Shapes: T target pieces, S source pieces, N target words, M source words, L layers, H heads.

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import takewhile
from operator import add

import torch
from torch import Tensor

from cutaway.errors import CutawayError, brief
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Text, say

Groups = tuple[tuple[int, ...], ...]  # for each word, the places of its pieces

_HAN = r"\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003347f"
WORD = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+(?:['’-][^\W_{_HAN}]+)*|\S")
_CUT_BYTE = re.compile(r"⟨[0-9A-F]{2}⟩")

_ALIGNMENT = say("the alignment")


def split_words(text: str) -> list[str]:
    """Words where nobody has cut them: each Chinese character by itself, runs of other letters and digits (with an
    apostrophe or hyphen inside), and each other character that is no space."""
    return WORD.findall(text)


def word_pieces(tokenizer: Tokenizer, ids: Sequence[int], words: Sequence[str]) -> Groups:
    """For each word, the places of the pieces that spell some of it; control tokens belong to none.

    A piece that reaches over two words belongs to both, and all bytes of a character to its word. Spaces, and forms of
    letters that Unicode holds compatible (NFKC), make no difference, nor does case.
    Raises CutawayError when the words are not what the ids spell, naming where they part.
    """
    text, owners = characters(tokenizer, ids)
    spelled = [(each, pieces) for letter, pieces in zip(text, owners, strict=True) for each in _fold(letter)]
    asked = [(each, at) for at, word in enumerate(words) for letter in word for each in _fold(letter)]
    for place, ((found, _), (expected, at)) in enumerate(zip(spelled, asked, strict=False)):
        if found != expected:
            raise CutawayError(
                "word {place} is {word!r}, but the pieces spell {spelled!r} there; the words must be those of the "
                "text as the model reads it",
                place=at + 1,
                word=words[at],
                spelled=_from(spelled, place),
            )
    if rest := _from(spelled, len(asked)):
        raise CutawayError(
            "the words end, but the pieces go on with {rest!r}; the words must spell the text", rest=rest
        )
    if rest := _from(asked, len(spelled)):
        raise CutawayError(
            "the pieces end, but the words go on with {rest!r}; the words must spell the text", rest=rest
        )
    groups: list[dict[int, None]] = [{} for _ in words]
    for (_, pieces), (_, at) in zip(spelled, asked, strict=True):
        groups[at].update(dict.fromkeys(pieces))
    return tuple(tuple(sorted(group)) for group in groups)


def word_weights(weights: Tensor, target: Groups, source: Groups) -> Tensor:
    """Weights between pieces (..., T, S) -> between words (..., N, M).

    Summed over the pieces of a source word, since a word gets what its pieces get, and averaged over the pieces of a
    target word (Garg et al. 2019, §5). A source piece in k words gives each 1/k, so that no weight is
    counted twice; what control tokens got stays out, so that rows sum to 1 or less.
    """
    n_target, n_source = weights.shape[-2:]
    shares = torch.zeros(n_source, len(source), dtype=weights.dtype, device=weights.device)
    for word, pieces in enumerate(source):
        shares[list(pieces), word] = 1
    shares /= shares.sum(dim=1, keepdim=True).clamp(min=1)
    means = torch.zeros(len(target), n_target, dtype=weights.dtype, device=weights.device)
    for word, pieces in enumerate(target):
        means[word, list(pieces)] = 1 / max(len(pieces), 1)
    return means @ weights @ shares


def characters(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[tuple[int, ...]]]:
    """The text of the ids, and for each of its characters the places of the pieces that spell it."""
    text = tokenizer.decode(ids)
    owners: list[tuple[int, ...]] = []
    open_pieces: list[int] = []  # bytes of a character that is not complete
    for place, id in enumerate(ids):
        if tokenizer.is_silent(id):
            continue
        so_far = tokenizer.decode(ids[: place + 1])
        same = takewhile(lambda both: both[0] == both[1], zip(so_far, text, strict=False))
        settled = len(list(same))
        if settled > len(owners):
            owners.append((*open_pieces, place))
            owners += [(place,)] * (settled - len(owners))
            open_pieces = []
        if _CUT_BYTE.search(tokenizer.readable(id)) and len(so_far) > settled:
            open_pieces.append(place)
    owners += [tuple(open_pieces)] * (len(text) - len(owners))  # bytes that never became a character
    return text, owners


def _fold(character: str) -> str:
    return "".join(unicodedata.normalize("NFKC", character).casefold().split())


def _from(characters: Sequence[tuple[str, object]], place: int) -> str:
    return "".join(character for character, _ in characters[place : place + 12])


# Links, and those that people drew.

Link = tuple[int, int]  # source word, target word, both from 0

_LINK = re.compile(r"(\d+)([-?p])(\d+)")


@dataclass(frozen=True)
class Gold:
    """The links of one sentence pair that people drew: `sure`, and `possible`, which contains the sure
    ones (Och & Ney 2003, §5.1)."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentError:
    """Counts of links A against sure links S and possible links P ⊇ S (Och & Ney 2003, §5.1); counts of several
    sentences add up.

    precision = |A∩P| / |A|, recall = |A∩S| / |S|, AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|), each from 0 to 1 and None
    where its denominator is 0. A lower AER is better.
    """

    predicted: int  # |A|
    sure: int  # |S|
    in_sure: int  # |A∩S|
    in_possible: int  # |A∩P|

    def __add__(self, other: "AlignmentError") -> "AlignmentError":
        return AlignmentError(*map(add, astuple(self), astuple(other)))

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


def read_pharaoh(line: str, where: Text = _ALIGNMENT, *, from_one: bool = False) -> Gold:
    """Gold links of one sentence pair: `0-0` is sure, `1?2` and `1p2` are possible; source word first.

    Words count from 0, or from 1 with `from_one`. Raises CutawayError naming `where` and what is no link.
    """
    sure, possible, first = set[Link](), set[Link](), int(from_one)
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
        some = (weights > 0).any(dim=1).nonzero().flatten().tolist()
        return frozenset((int(weights[target].argmax()), target) for target in some)
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
    """Weights between words of every head (L, H, N, M) -> one count for each layer and head. CutawayError as
    `check_range`."""
    if weights.ndim != 4:
        raise CutawayError(
            "weights have the shape {shape}, expected (layers, heads, target words, source words)",
            shape=list(weights.shape),
        )
    check_range(gold, n_source=weights.shape[3], n_target=weights.shape[2])
    return tuple(tuple(alignment_error(links(head, threshold), gold) for head in layer) for layer in weights)


def check_range(gold: Gold, *, n_source: int, n_target: int, where: Text = _ALIGNMENT) -> None:
    """CutawayError, naming `where`, for gold links beyond the words of a sentence pair, which are then cut otherwise
    than those of the gold text."""
    for source, target in sorted(gold.possible):
        if source >= n_source or target >= n_target:
            raise CutawayError(
                "{where}: link {source}-{target} (counted from 0) is out of range: there are "
                "{n_source} source words and {n_target} target words; name words that are there",
                where=where,
                source=source,
                target=target,
                n_source=n_source,
                n_target=n_target,
            )
