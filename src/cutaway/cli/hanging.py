"""Texts whose continued lines are set in."""

from collections.abc import Iterator

from cutaway.text.display import truncate, width
from cutaway.words import Locale


def hanging(text: str, columns: int) -> Iterator[str]:
    """Lines of at most `columns` terminal columns, all but the first set in by two. They break as
    `page.wrapping.wrapped` does; a word that is too long is cut, after a comma where it has one."""
    from cutaway.page.wrapping import wrapped

    start = ""
    while text:
        room = columns - len(start)
        line = wrapped(text, room)[0]
        if width(line) > room:
            line = truncate(line, room, "")
            line = line[: line.rfind(",") + 1] or line
        yield start + line
        text = text[len(line) :].lstrip(" ")
        start = "  "


def either(en: str, zh: str, locale: Locale) -> str:
    return zh if locale == "zh" else en
