"""Word vectors of two languages in one space: a rotation learned from a dictionary, and how well it finds translations
of words that it was not learned from."""

# Shapes: N pairs, S and T words of the two languages, Q queries, D width.

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.errors import CutawayError, brief
from cutaway.text.corpus import Report, numbered_lines

NEAREST = 10  # neighbours whose mean cosine CSLS takes off
HELD_OUT = 5  # every so many-th word of the dictionary is asked and not learned from
_AT_ONCE = 512  # rows compared with a whole table
# traditional simplified [pinyin] /gloss/gloss/, as CC-CEDICT has its entries
_ENTRY = re.compile(r"\S+ (\S+) \[[^\]]*\] /(.+)/")
_ASIDE = re.compile(r"\([^)]*\)")


@dataclass(frozen=True)
class Retrieval:
    """How often a right translation is among the nearest of all words of the other language, by CSLS."""

    learned: int  # words that the rotation was learned from
    asked: int  # words that it was not learned from
    first: float  # precision@1
    fifth: float  # precision@5


def procrustes(x: Tensor, y: Tensor) -> Tensor:
    """The orthogonal matrix W (D, D) of the least ‖x W - y‖ for pairs of rows x, y (N, D): U Vᵀ of xᵀ y = U Σ Vᵀ
    (Schönemann 1966; for word vectors Xing et al. 2015)."""
    u, _, vt = torch.linalg.svd(x.double().T @ y.double())
    return u @ vt


def crowding(rows: Tensor, table: Tensor) -> Tensor:
    """The mean cosine (N,) of each row with the nearest `NEAREST` of a table; both of length 1. High for hubs, words
    that are near to everything."""
    most = min(NEAREST, len(table))
    return torch.cat([(part @ table.T).topk(most).values.mean(dim=1) for part in rows.split(_AT_ONCE)])


def csls(queries: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    """Cross-domain similarity local scaling (Conneau et al. 2018, equation 3): 2 cos(q, t) less the crowding of q among
    the targets and of t among the sources. (Q, D), (S, D), (T, D), all of length 1 -> (Q, T)."""
    around = crowding(targets, sources)
    return 2 * queries @ targets.T - crowding(queries, targets)[:, None] - around


def read_dictionary(path: Path, source: WordVectors, target: WordVectors) -> dict[int, list[int]]:
    """For each word of `source` its translations of `target`, by ids, the frequent words first.

    The file is CC-CEDICT's (Chinese to English; glosses of one word count, `to` before a verb left out) or has two
    words a line with a tab between; either language may be first in it. Raises CutawayError for another line, and for
    a file that has fewer than ten words.
    """
    found: dict[int, set[int]] = {}
    for number, line in numbered_lines(path, "strict", Report()):
        text = (line or "").strip()
        if not text or text.startswith("#"):
            continue
        for one, other in _pairs(text, path, number):
            for a, b in ((one, other), (other, one)):
                if a in source.words.ids and b in target.words.ids:
                    found.setdefault(source.words.ids[a], set()).add(target.words.ids[b])
    if len(found) < 2 * HELD_OUT:
        raise CutawayError(
            "{path}: words of it that have a vector, and a translation that has one: {count}, expected at least "
            "{least}",
            path=path, count=len(found), least=2 * HELD_OUT,
        )  # fmt: skip
    return {word: sorted(found[word]) for word in sorted(found)}


def _pairs(text: str, path: Path, number: int) -> list[tuple[str, str]]:
    entry, words = _ENTRY.fullmatch(text), text.split("\t")
    if entry is not None:
        glosses = (_ASIDE.sub("", gloss).strip().lower() for gloss in entry[2].split("/"))
        return [(entry[1], gloss.removeprefix("to ")) for gloss in glosses]
    if len(words) != 2:
        raise CutawayError(
            "{path}:{line}: {text}, expected an entry of CC-CEDICT, or two words with a tab between",
            path=path, line=number, text=brief(text),
        )  # fmt: skip
    return [(words[0].strip(), words[1].strip())]


def rotation(source: WordVectors, target: WordVectors, pairs: Mapping[int, list[int]]) -> Tensor:
    """The rotation (D, D) that brings words of `source` to their translations, the most frequent of each."""
    if source.config.d_model != target.config.d_model:
        raise CutawayError(
            "vectors of {one} and of {other} numbers; a rotation needs as many in both languages",
            one=source.config.d_model,
            other=target.config.d_model,
        )
    x = normalize(source.vectors[list(pairs)].double(), dim=1)
    y = normalize(target.vectors[[words[0] for words in pairs.values()]].double(), dim=1)
    return procrustes(x, y)


def score_translations(source: WordVectors, target: WordVectors, path: Path) -> Retrieval:
    """Learn a rotation from a dictionary without every `HELD_OUT`-th of its words, and ask for those."""
    pairs = read_dictionary(path, source, target)
    asked = dict([*pairs.items()][HELD_OUT - 1 :: HELD_OUT])
    learned = {word: words for word, words in pairs.items() if word not in asked}
    turned = source.vectors @ rotation(source, target, learned).float()
    sources, targets = normalize(turned, dim=1), normalize(target.vectors.float(), dim=1)
    best = csls(sources[list(asked)], sources, targets).topk(5).indices.tolist()
    hits = [[id in right for id in ids] for ids, right in zip(best, asked.values(), strict=True)]
    first, fifth = (sum(any(hit[:k]) for hit in hits) / len(hits) for k in (1, 5))
    return Retrieval(len(learned), len(asked), first, fifth)
