"""Texts in lines of a given width."""

from collections.abc import Iterable, Iterator

from cutaway.text.display import width


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
        if not word:  # between two spaces
            yield "", True
        start, spaced = 0, True
        for place in range(1, len(word) + 1):
            if place == len(word) or _breaks(word[place - 1], word[place]):
                yield word[start:place], spaced
                start, spaced = place, False


_CLOSING = frozenset("，。；：、！？）」』”’》〉】…—,.;:!?)%")
_OPENING = frozenset("（「『“‘《〈【(")


def _breaks(before: str, after: str) -> bool:
    """Whether a line of Chinese may end between two characters: not before a closing mark, not after an opening one."""
    return width(before + after) > 2 and after not in _CLOSING and before not in _OPENING
