"""How good word vectors are by the field's own tests: analogies, and similarities that people judged."""

# Shapes: V words, Q questions, D width.

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import normalize

from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.errors import CutawayError, brief
from cutaway.text.corpus import Report, numbered_lines

_AT_ONCE = 256  # questions compared with the whole table
_SCORE = "simlex999"  # the column of SimLex-999's own file that has its score


@dataclass(frozen=True)
class Analogies:
    """The answers of one section: how many questions have vectors for all four words, and how many of those are right.

    a : b as c : d is right where d is the nearest of all words to b̂ - â + ĉ by the cosine, a, b and c left out
    (3CosAdd: Mikolov et al. 2013a, §4.1).
    """

    name: str
    right: int
    asked: int
    unknown: int  # questions with a word that has no vector

    @property
    def accuracy(self) -> float:
        return self.right / self.asked if self.asked else 0.0


@dataclass(frozen=True)
class Judged:
    """Spearman's rank correlation of the cosines with what people said, over the pairs that have vectors."""

    name: str
    correlation: float
    pairs: int
    unknown: int


def score_analogies(opened: WordVectors, path: Path) -> list[Analogies]:
    """Ask the questions of a file such as questions-words.txt: four words a line, sections begin with `:`. The last
    entry is the total.

    Raises CutawayError for a line that is neither, and for a file without a question.
    """
    vectors = normalize(opened.vectors.float(), dim=1)
    sections: list[tuple[str, list[list[int]], int]] = []
    for number, line in numbered_lines(path, "strict", Report()):
        words = (line or "").split()
        if words[:1] and words[0].startswith(":"):
            sections.append((" ".join([words[0][1:], *words[1:]]).strip(), [], 0))
        elif words:
            if len(words) != 4:
                raise CutawayError(
                    "{path}:{line}: {text} are {count} words, expected four: a b c d, a to b as c to d",
                    path=path, line=number, text=brief(line), count=len(words),
                )  # fmt: skip
            if not sections:
                sections.append((path.stem, [], 0))
            name, known, unknown = sections[-1]
            ids = [id for word in words if (id := opened.words.id(word)) is not None]
            if len(ids) == 4:
                known.append(ids)
            sections[-1] = (name, known, unknown + (len(ids) < 4))
    if not sections:
        raise CutawayError("{path}: no question there; expected lines of four words", path=path)
    found = []
    for name, known, unknown in sections:
        right = 0
        for questions in torch.tensor(known).split(_AT_ONCE) if known else ():
            a, b, c, d = questions.unbind(dim=1)
            near = (vectors[b] - vectors[a] + vectors[c]) @ vectors.T
            near.scatter_(1, questions[:, :3], -torch.inf)
            right += int((near.argmax(dim=1) == d).sum())
        found.append(Analogies(name, right, len(known), unknown))
    sums = [sum(getattr(each, field) for each in found) for field in ("right", "asked", "unknown")]
    return [*found, Analogies("", sums[0], sums[1], sums[2])]


def score_judged(opened: WordVectors, path: Path) -> Judged:
    """Compare with a file such as WordSim353 or SimLex999: two words and a number a line, tabs or commas between; lines
    that begin with # and a line of titles are left out. Raises CutawayError for another line, and for fewer than three
    pairs with vectors."""
    cosines, judged, unknown, column = [], [], 0, 2
    vectors = normalize(opened.vectors.double(), dim=1)
    for number, line in numbered_lines(path, "strict", Report()):
        fields = [field.strip() for field in (line or "").replace(",", "\t").split("\t")]
        if not any(fields) or fields[0].startswith("#"):
            continue
        try:
            score = float(fields[column])
        except (ValueError, IndexError):
            titles = [field.lower() for field in fields]
            if judged or unknown or len(fields) < 3:
                raise CutawayError(
                    "{path}:{line}: {text}, expected two words and a number with tabs between",
                    path=path, line=number, text=brief(line),
                ) from None  # fmt: skip
            column = titles.index(_SCORE) if _SCORE in titles else 2
            continue
        ids = [id for word in fields[:2] if (id := opened.words.id(word)) is not None]
        if len(ids) == 2:
            judged.append(score)
            cosines.append(float(vectors[ids[0]] @ vectors[ids[1]]))
        else:
            unknown += 1
    if len(judged) < 3:
        raise CutawayError(
            "{path}: pairs of which both words have a vector: {count}, expected at least 3",
            path=path, count=len(judged),
        )  # fmt: skip
    return Judged(path.stem, _spearman(cosines, judged), len(judged), unknown)


def _spearman(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks, equal values sharing the mean of theirs."""
    _, place, times = np.unique(np.array(values), return_inverse=True, return_counts=True)
    return (np.cumsum(times) - (times - 1) / 2)[place]
