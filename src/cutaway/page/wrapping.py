"""Texts as a page shows them: what cannot be seen is spelled out, in lines of a given width."""

import re
from collections.abc import Iterable, Iterator

from cutaway.text.display import visible, width
from cutaway.words import Locale, Text, said

_SPACES = re.compile("([ \n\u00a0\u2000-\u200a\u202f\u3000]+)")
_CLOSING = frozenset("，。；：、！？）」』”’》〉】…—,.;:!?)%")
_OPENING = frozenset("（「『“‘《〈【(")


def shown(text: Text, locale: Locale) -> str:
    """A text in one language, safe to show. Every page, drawing and terminal says its texts through this function, for
    names and pieces come from other people's files."""
    return legible(said(text, locale))


def legible(text: str) -> str:
    """The text with control characters, escape sequences and other invisible characters spelled out (`⟨U+001B⟩`),
    spaces and line ends left as they are."""
    if text.isascii() and text.isprintable():
        return text
    parts = _SPACES.split(text)
    return "".join(part if place % 2 else visible(part) for place, part in enumerate(parts))


def folded(words: Iterable[str], room: int) -> list[str]:
    """Words with a space between them, in lines of at most `room` terminal columns where no word is longer."""
    lines = [""]
    for word in words:
        if lines[-1] and width(lines[-1]) + 1 + width(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def wrapped(text: str, room: int) -> list[str]:
    """Prose in lines of at most `room` terminal columns, broken at spaces and between Chinese characters; the text's
    own line ends are kept."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines.append("")
        for piece, spaced in _pieces(paragraph):
            gap = " " if spaced else ""
            if lines[-1] and width(lines[-1]) + len(gap) + width(piece) > room:
                lines[-1] = lines[-1].rstrip()
                lines.append(piece)
            else:
                lines[-1] += (gap if lines[-1] else "") + piece
    return lines


def _pieces(paragraph: str) -> Iterator[tuple[str, bool]]:
    """What a line may not be broken in, and whether a space stands before it."""
    for word in paragraph.split(" "):
        # between two spaces
        if not word:
            yield "", True
        start, spaced = 0, True
        for place in range(1, len(word) + 1):
            if place == len(word) or _breaks(word[place - 1], word[place]):
                yield word[start:place], spaced
                start, spaced = place, False


def _breaks(before: str, after: str) -> bool:
    """Whether a line of Chinese may end between two characters: not before a closing mark, not after an opening one."""
    return width(before + after) > 2 and after not in _CLOSING and before not in _OPENING
