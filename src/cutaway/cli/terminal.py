"""What commands share at the terminal: models opened, texts in, lines and tables out, the reader's language."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.errors import CutawayError
from cutaway.text.display import harmless, pad
from cutaway.words import Locale, Phrase, Text, phrase, reader_locale, said, say, told
from cutaway.zoo import find

if TYPE_CHECKING:
    from cutaway.checkpoint.folder import Loaded
    from cutaway.page.blocks import Matrix, Page
    from cutaway.page.console import Terminal


def write(text: str = "", end: str = "\n") -> None:
    """Text to standard output, at once: output may be read as a stream. A terminal gets it without what it would obey,
    for models and their files come from others; elsewhere it is data, and stays as it is."""
    sys.stdout.write((harmless(text) if sys.stdout.isatty() else text) + end)
    sys.stdout.flush()


def tell(template: str, **values: object) -> None:
    """A message to standard output, in the reader's language."""
    write(said(phrase(template, **values)))


def note(template: Phrase | str, **values: object) -> None:
    """A remark for the person, on standard error, so that standard output stays data."""
    before = told("note: ")
    sys.stderr.write(f"{before}{harmless(said(phrase(template, **values)))}\n")


def one_line(text: str) -> str:
    """The text without line breaks, so that line k of an output belongs to line k of its input."""
    return " ".join(text.splitlines())


def columns() -> int:
    """The width that drawings and tables may take: the terminal's, else 80."""
    from shutil import get_terminal_size

    return max(40, get_terminal_size((80, 24)).columns)


def terminal(locale: Locale | None = None) -> "Terminal":
    """What standard output can show, in the reader's language unless another is given."""
    from cutaway.page.console import Terminal

    return Terminal(columns(), shows_unicode(), locale or reader_locale())


def write_page(page: "Page | Matrix", locale: Locale | None = None) -> None:
    """A page, or a heat map alone, with styles where standard output is a terminal."""
    terminal(locale).print(page)


def write_table(headers: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> None:
    """A table without a frame; the columns at the places in `right` are aligned to the right, the last column alone is
    wrapped."""
    from cutaway.page.blocks import Column, Table

    titles = [Column(header, "right" if place in right else "left") for place, header in enumerate(headers)]
    terminal().print(Table(titles, list(rows)))


def progress(what: Text, done: int, total: int) -> None:
    """How far long work is, on standard error and in one line; nothing where that is not a terminal."""
    if sys.stderr.isatty():
        line = told("{what}: {done} of {total}", what=what, done=done, total=total)
        end = "" if done < total else "\n"
        # over what a longer number left
        sys.stderr.write(f"\r{pad(line, 40)}{end}")
        sys.stderr.flush()


def shows_unicode() -> bool:
    """Whether block characters can be expected to appear: a UTF-8 stream that is not a dumb terminal."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding == "utf8" and os.environ.get("TERM") != "dumb"


def open_model(name: str) -> "Loaded":
    """The model of a bundled name, a folder or a GGUF file; nothing heavy is imported before it is found."""
    path = find(name)

    from cutaway.checkpoint.folder import load

    loaded = load(path)
    for remark in loaded.tokenizer.notes if loaded.tokenizer is not None else ():
        note(remark)
    return loaded


def texts_from(text: str | None, file: Path | None = None) -> list[str]:
    """The texts a command works on: its argument, the lines of `--file`, or those of standard input."""
    if text is not None and file is not None:
        raise CutawayError("a text and --file were given; give one of them")
    if text is not None:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise CutawayError(
                "the text is not valid UTF-8; set the terminal to UTF-8, or give the text in a file"
            )
        return [text]
    if file is not None:
        from cutaway.text.corpus import read_lines

        return list(read_lines(file))
    if sys.stdin.isatty():
        raise CutawayError('no text: give it as an argument ("好久不见"), with --file, or on standard input')
    return standard_input()


def standard_input() -> list[str]:
    """The lines of standard input, as `text.corpus.read_lines` reads a file's: LF ends a line, CR LF is tolerated,
    a byte order mark is skipped. Raises CutawayError with the line where one is not UTF-8 text."""
    return list(standard_lines())


def standard_lines() -> Iterator[str]:
    """The same lines, each as soon as it is there."""
    from cutaway.text.corpus import stream_lines

    return stream_lines(sys.stdin.buffer, say("standard input"))
