"""What people type, brought to what a tokenizer was taught, with the place of every character in what they typed."""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cutaway.text import display
from cutaway.text.tokens.encoding import Spans, traced

_EMPTY_CATEGORIES = frozenset(("Zs", "Zl", "Zp", "Cc", "Cf"))
# letters, marks and symbols that show nothing: fillers of Hangul, the blank of Braille, the joiner of marks
_FILLERS = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0")
_STRAIGHT = str.maketrans("‘’‛“”„‟", '\'\'\'""""')


@dataclass(frozen=True)
class Folded:
    """A text as a tokenizer is to read it; each character stands for one of `spans` of the text of `length` characters
    that was typed."""

    text: str
    spans: Spans
    length: int

    def traced(self, offsets: Sequence[tuple[int, int]]) -> Spans:
        """Offsets in `text` as offsets in what was typed."""
        return traced(offsets, self.spans, self.length)


def is_blank(text: str) -> bool:
    """Whether a reader sees nothing: white space of any kind, control and format characters, fillers."""
    return all(map(_is_unseen, text))


def edges(text: str) -> tuple[int, int]:
    """Where what a reader sees begins and ends; (0, 0) of a blank text."""
    start = next((at for at, each in enumerate(text) if not _is_unseen(each)), None)
    if start is None:
        return 0, 0
    return start, next(at for at in range(len(text), 0, -1) if not _is_unseen(text[at - 1]))


def trimmed(text: str) -> Folded:
    """The text without what cannot be seen at its edges."""
    start, stop = edges(text)
    return Folded(text[start:stop], [(at, at + 1) for at in range(start, stop)], len(text))


def folded(text: str, known: Callable[[str], bool]) -> Folded:
    """The text trimmed, a run of white space in it as one space, format characters left out, and combining marks
    composed. A character that is not `known` to the vocabulary is taken for those that it is a form of (a full-width
    letter, by NFKC) where they are; quotation marks are straight in a text without Han characters."""
    start, stop = edges(text)
    straight = not display.has_han(text)
    parts: list[str] = []
    spans: Spans = []
    at = start
    for cluster in display.clusters(text[start:stop]):
        span = at, at + len(cluster)
        at = span[1]
        if is_blank(cluster):
            if all(unicodedata.category(each) == "Cf" for each in cluster):
                continue
            if parts and parts[-1] == " ":
                spans[-1] = (spans[-1][0], span[1])
                continue
            new = " "
        else:
            new = "".join(map(_known_form(known), unicodedata.normalize("NFC", _shown(cluster))))
            new = new.translate(_STRAIGHT) if straight else new
        parts.append(new)
        if new == cluster:
            spans += [(place, place + 1) for place in range(*span)]
        else:
            spans += [span] * len(new)
    return Folded("".join(parts), spans, len(text))


def _is_unseen(character: str) -> bool:
    # tags end the flags of parts of a country
    if display.is_tag(character):
        return False
    return character in _FILLERS or unicodedata.category(character) in _EMPTY_CATEGORIES


def _shown(cluster: str) -> str:
    """The cluster without format characters; those of an emoji hold it together."""
    if any(map(display.is_pictograph, cluster)):
        return cluster
    return "".join(each for each in cluster if unicodedata.category(each) != "Cf")


def _known_form(known: Callable[[str], bool]) -> Callable[[str], str]:
    def form(character: str) -> str:
        if character.isascii() or known(character):
            return character
        plain = unicodedata.normalize("NFKC", character)
        return plain if all(each.isascii() or known(each) for each in plain) else character

    return form
