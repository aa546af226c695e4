"""What the sub-views of `cutaway inspect` print alike: headings, remarks, rows of pieces, numbers."""

import sys
from collections.abc import Sequence

from cutaway.cli.terminal import columns, write
from cutaway.text.display import pad, width

LABEL = 13  # columns of the words at the left


def title(text: str) -> None:
    """The first line of a view, bold at a terminal."""
    styled([(text, "bold")])


def heading(text: str) -> None:
    """A title after an empty line."""
    write()
    title(text)


def remark(text: str) -> None:
    """What is shown and what it is not; broken at spaces, dim at a terminal."""
    for line in folded(text.split(" "), columns()):
        styled([(line, "dim")])


def styled(parts: Sequence[tuple[str, str]]) -> None:
    """One line of texts with their styles, which only a terminal shows."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=columns(), markup=False, highlight=False, emoji=False)
    console.print(Text.assemble(*parts), soft_wrap=True)


def labelled(label: str, words: Sequence[str]) -> None:
    """A label in bold with words at its right, in as many lines as they take."""
    for line in folded(words, columns() - LABEL):
        styled([(pad(label, LABEL), "bold"), (line.rstrip(), "")])
        label = ""


def paragraph(label: str, text: str) -> None:
    """A label with a text at its right, its own line ends kept."""
    for line in text.splitlines() or [""]:
        labelled(label, line.split(" "))
        label = ""


def styled_words(parts: Sequence[tuple[str, str]]) -> None:
    """Texts with their styles, a space between words, in as many lines as they take."""
    line: list[tuple[str, str]] = []
    used = 0
    for text, style in parts:
        for word in text.split(" "):
            if line and used + width(word) > columns():
                styled(line[:-1])
                line, used = [], 0
            line += [(word, style), (" ", "")]
            used += width(word) + 1
    styled(line[:-1])


def folded(words: Sequence[str], room: int) -> list[str]:
    """Words with a space between them, in lines of at most `room` terminal columns where no word is longer."""
    lines = [""]
    for word in words:
        if lines[-1] and width(lines[-1]) + 1 + width(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def progress(what: str, done: int, total: int) -> None:
    """How far long work is, on standard error and in one line; nothing where that is not a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{what}: {done} of {total}{'' if done < total else chr(10)}")
        sys.stderr.flush()


def number(value: float) -> str:
    """Four digits, with a sign where it is negative: `0.1235`, `-12.35`, `1.234e-07`."""
    return f"{value:.4g}"


def nats(value: float) -> str:
    """A difference of log-probabilities: two places, and a sign where it is not 0 by them."""
    return "0.00" if abs(value) < 0.005 else f"{value:+.2f}"


def share(value: float) -> str:
    """A probability or weight; what is not 0 but below the last place is `<.001`."""
    return "<.001" if 0 < value < 0.0005 else f"{value:.3f}"
