"""What commands share at the terminal: texts in, lines and tables out, the reader's language."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cutaway.errors import CutawayError


def write(text: str = "", end: str = "\n") -> None:
    """Text to standard output, at once: output may be read as a stream."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def note(text: str) -> None:
    """A remark for the person, on standard error, so that standard output stays data."""
    sys.stderr.write(f"note: {text}\n")


def columns() -> int:
    """The width that drawings and tables may take: the terminal's, else 80."""
    from shutil import get_terminal_size

    return max(40, get_terminal_size((80, 24)).columns)


def write_table(headers: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()) -> None:
    """A table without a frame; the columns named in `right` are aligned to the right. Cells are printed as they
    are, the last column alone is wrapped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if shows_unicode() else box.ASCII2, pad_edge=False, show_edge=False)
    for header in headers:
        table.add_column(
            header,
            justify="right" if header in set(right) else "left",
            no_wrap=header != headers[-1],
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(width=columns(), markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    write("\n".join(line.rstrip() for line in captured.get().splitlines()))


def shows_unicode() -> bool:
    """Whether block characters can be expected to appear: a UTF-8 stream that is not a dumb terminal."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding == "utf8" and os.environ.get("TERM") != "dumb"


def reads_chinese() -> bool:
    """Whether the locale asks for Chinese (LC_ALL, LC_MESSAGES, LANG, in that order)."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return value.lower().startswith("zh")
    return False


def texts_from(text: str | None, file: Path | None = None) -> list[str]:
    """The texts a command works on: its argument, the lines of `--file`, or those of standard input."""
    if text is not None and file is not None:
        raise CutawayError("a text and --file were given; give one of them")
    if text is not None:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise CutawayError("the text is not valid UTF-8")
        return [text]
    if file is not None:
        from cutaway.text.corpus import read_lines

        return list(read_lines(file))
    if sys.stdin.isatty():
        raise CutawayError('no text: give it as an argument ("好久不见"), with --file, or on standard input')
    return standard_input()


def standard_input() -> list[str]:
    """The lines of standard input, as `text.corpus.read_lines` reads a file's: LF ends a line, CR LF is tolerated,
    a byte order mark is skipped. Raises CutawayError with the line where one is not UTF-8."""
    lines = sys.stdin.buffer.read().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(line.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError as error:
            raise CutawayError(
                f"standard input:{number}: not UTF-8 at byte {error.start + 1} of the line "
                f"(0x{line[error.start]:02X})"
            ) from error
    return texts
