"""The words that vectors belong to, by id: found as a reader names them, and read out of a text."""

import re
from collections.abc import Sequence
from functools import cached_property
from operator import index
from typing import SupportsIndex

from cutaway.errors import CutawayError, brief, nearest
from cutaway.text.display import SPACE, has_han, visible

# Letters with apostrophes inside, or digits.
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+")
_HINTED = 50_000  # of the most frequent words, which a word that is not there is compared with


class WordList:
    """Words by id, the most frequent first, and how often each occurred; 0 where nobody knows."""

    def __init__(self, words: Sequence[str], counts: Sequence[int] | None = None):
        self.words = list(words)
        self.counts = [0] * len(self.words) if counts is None else list(counts)

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each word, that of the first where several are spelled alike."""
        return {word: id for id, word in reversed([*enumerate(self.words)])}

    @cached_property
    def longest(self) -> int:
        """Characters of the longest word."""
        return max(map(len, self.words), default=0)

    def label(self, id: int) -> str:
        """A word as a reader sees it."""
        return visible(self.words[id]) or "␀"

    def id(self, word: str) -> int | None:
        """The id of a word: as it stands there; as a tokenizer writes it at the beginning of a text (`▁king`); with `_`
        between the words of a phrase; in lower case."""
        for spelled in (word, SPACE + word, word.replace(" ", "_"), word.lower()):
            if spelled in self.ids:
                return self.ids[spelled]
        return None

    def find(self, point: SupportsIndex | str) -> int:
        """The id of a word, or of its id. Raises CutawayError for one that is not there, with the nearest."""
        if not isinstance(point, str):
            id = index(point)
            if not 0 <= id < len(self):
                raise CutawayError(
                    "word id {id} is not in the vocabulary, expected 0 to {last}", id=id, last=len(self) - 1
                )
            return id
        id = self.id(point)
        if id is None:
            raise CutawayError(
                "{word} is not among the {count:,} words that have a vector{hint}; give one that is, or an id such as "
                "#123",
                word=brief(point),
                count=len(self),
                hint=nearest(point, self.words[:_HINTED]),
            )
        return id

    def read(self, text: str) -> tuple[list[int], list[str]]:
        """The ids of a text's words, and what has no vector: the text where it is a word, else its words; where one is
        unknown and Chinese, which has no spaces, the longest known words from its beginning on."""
        if (whole := self.id(text)) is not None:
            return [whole], []
        ids: list[int] = []
        unknown: list[str] = []
        for word in WORD.findall(text):
            id = self.id(word)
            if id is None and has_han(word):
                parts, rest = self._longest(word)
                ids += parts
                unknown += rest
            elif id is None:
                unknown.append(word)
            else:
                ids.append(id)
        return ids, unknown

    def _longest(self, text: str) -> tuple[list[int], list[str]]:
        ids, unknown, start = [], [], 0
        while start < len(text):
            ends = range(min(len(text), start + self.longest), start, -1)
            end = next((end for end in ends if text[start:end] in self.ids), None)
            if end is None:
                unknown.append(text[start])
                start += 1
            else:
                ids.append(self.ids[text[start:end]])
                start = end
        return ids, unknown
