"""A page as lines of a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutaway.page.bars import bar_lines
from cutaway.page.blocks import (
    Atlas,
    Bar,
    Bars,
    Block,
    Code,
    Column,
    Edited,
    Heading,
    Line,
    Matrix,
    Page,
    Points,
    Prose,
    Remark,
    Shaded,
    Table,
    Tinted,
)  # fmt: skip
from cutaway.page.numbers import nats
from cutaway.page.plotting import plot
from cutaway.page.shading import shade
from cutaway.page.wrapping import folded, wrapped
from cutaway.text.display import pad, truncate, width
from cutaway.words import Locale, Text, said

LABEL = 13  # columns of the words at the left
BAR = 24  # columns of a bar of 1
CELL = 6  # columns of a title over written numbers
GAP = 3  # columns between those of a table
WRAPPED = 20  # columns that a last column has at least where its texts are wrapped
LEAST = 4  # columns of a bar of 1 that still can be compared
STYLES = {"equal": "", "delete": "red strike", "insert": "green", "replace": "yellow"}
_FIGURES = (Table, Bars, Matrix, Points)  # between two of them a line stays empty

Styled = list[tuple[str, str]]  # texts with their styles


@dataclass(frozen=True)
class Terminal:
    """What a terminal can show, and to whom."""

    columns: int = 80
    unicode: bool = True
    locale: Locale = "en"

    def lines(self, page: Page) -> Iterator[Styled]:
        """The lines of a page, texts with the styles of the `rich` library; none longer than the terminal is wide
        where no single word is."""
        yield from self._bold(page.title)
        before: Block = Heading(page.title)
        for block in _written(page.blocks):
            if isinstance(block, _FIGURES) and isinstance(before, _FIGURES):
                yield []
            yield from self._block(block)
            before = block

    def text(self, page: Page) -> str:
        """The lines as plain text."""
        return "\n".join("".join(text for text, _ in line).rstrip() for line in self.lines(page))

    def _block(self, block: Block) -> Iterator[Styled]:
        match block:
            case Heading(text):
                yield []
                yield from self._bold(text)
            case Remark(text):
                yield from ([(line, "dim")] for line in wrapped(said(text, self.locale), self.columns))
            case Prose(label, text):
                yield from self._labelled(label, wrapped(said(text, self.locale), self.columns - LABEL))
            case Line(label, words):
                parts = [self._cell(word) for word in words]
                apart = [
                    f"{part} " if " " in part else part for part in parts
                ]  # so that they can be told apart
                yield from self._labelled(label, folded(apart, self.columns - LABEL))
            case Code(about, lines):
                above = wrapped(said(about, self.locale), self.columns - 2)
                yield from ([(f"# {line}", "dim")] for line in above)
                yield from ([(line, "")] for line in lines.splitlines())
            case Table():
                yield from ([(line, "")] for line in self.table(block))
            case Bars():
                drawn = bar_lines(block, columns=self.columns, unicode=self.unicode, locale=self.locale)
                yield from ([(line, "")] for line in drawn)
            case Matrix():
                yield from ([(line, "")] for line in self.matrix(block))
            case Points():
                yield from ([(line, "")] for line in plot(block, columns=self.columns, locale=self.locale))
            case Shaded(label, tokens, values):
                words = [f"{token} {nats(value)} " for token, value in zip(tokens, values, strict=True)]
                yield from self._labelled(label, folded(words, self.columns - LABEL))
            case Edited():
                yield from self._edited(block)
            case Atlas():
                pass

    def _bold(self, text: Text) -> Iterator[Styled]:
        yield from ([(line, "bold")] for line in wrapped(said(text, self.locale), self.columns))

    def _labelled(self, label: Text, lines: Sequence[str]) -> Iterator[Styled]:
        """The label in bold with the lines at its right."""
        for place, line in enumerate(lines):
            name = said(label, self.locale) if place == 0 else ""
            yield [(pad(name, LABEL), "bold"), (line.rstrip(), "")]

    def table(self, table: Table, gap: int = GAP) -> Iterator[str]:
        """The lines of a table, cells as they are; in blocks of columns where it is too wide. One whose last column has
        some room is wrapped there instead, unless it says that it may be broken."""
        table = self._with_bars(table)
        sizes = [gap + self._size(table, n) for n in range(len(table.columns))]
        if not table.keep and len(sizes) > 1:
            sizes[-1] = min(sizes[-1], gap + WRAPPED)
        keep = min(table.keep or 1, len(sizes) - 1)
        blocks = self._blocks(sizes, keep, gap, len(sizes))
        if table.keep and len(blocks) > 1:  # columns of one kind: about as many in each block
            even = self._blocks(sizes, keep, gap, -(-(len(sizes) - keep) // len(blocks)))
            blocks = even if len(even) == len(blocks) else blocks
        for place, shown in enumerate(blocks):
            if place:
                yield ""
            rows = [[row[n] for n in shown] for row in table.rows]
            yield from self._drawn(Table([table.columns[n] for n in shown], rows), gap)

    def _blocks(self, sizes: Sequence[int], keep: int, gap: int, most: int) -> list[list[int]]:
        """The columns of each block: the first `keep` ones, and of the others as many as there is room for, at least
        one and at most `most`."""
        blocks: list[list[int]] = []
        first = keep
        while first < len(sizes):
            used, end = sum(sizes[:keep]) + sizes[first] - gap, first + 1
            while end < min(len(sizes), first + most) and used + sizes[end] <= self.columns:
                used, end = used + sizes[end], end + 1
            blocks.append([*range(keep), *range(first, end)])
            first = end
        return blocks

    def _size(self, table: Table, n: int) -> int:
        """Columns of a terminal that a column takes."""
        texts = [said(table.columns[n].title, self.locale), *(self._cell(row[n]) for row in table.rows)]
        return max(map(width, texts))

    def _with_bars(self, table: Table) -> Table:
        """The table with its last column's bars drawn as long as there is room; without them where there is none."""
        if not table.rows or not all(isinstance(row[-1], Bar) for row in table.rows):
            return table
        others = sum(GAP + self._size(table, n) for n in range(len(table.columns) - 1))
        room = min(BAR, self.columns - others)
        if room < LEAST:
            columns, cells = table.columns[:-1], [row[:-1] for row in table.rows]
            return Table(columns, cells, table.tint, table.keep)
        drawn = [
            [*row[:-1], self._bar(row[-1].value, room)] for row in table.rows if isinstance(row[-1], Bar)
        ]
        return Table(table.columns, drawn, table.tint, table.keep)

    def _bar(self, value: float, room: int) -> str:
        return ("█" if self.unicode else "#") * round(room * max(0.0, min(1.0, value)))

    def _drawn(self, table: Table, gap: int) -> list[str]:
        """The lines of a block of columns, without a frame; the last column alone is wrapped."""
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text as RichText

        drawn = RichTable(
            box=box.SIMPLE_HEAD if self.unicode else box.ASCII2,
            pad_edge=False,
            show_edge=False,
            padding=(0, 1, 0, gap - 2),
        )
        last = len(table.columns) - 1
        for place, column in enumerate(table.columns):
            drawn.add_column(
                said(column.title, self.locale), justify=column.align, no_wrap=place < last, overflow="fold"
            )
        for row in table.rows:
            drawn.add_row(*(RichText(self._cell(cell)) for cell in row))
        console = Console(width=self.columns, markup=False, highlight=False, emoji=False)
        with console.capture() as captured:
            console.print(drawn)
        return [line.rstrip() for line in captured.get().splitlines()]

    def _cell(self, cell: Text | Bar | Tinted) -> str:
        if isinstance(cell, Bar):
            return self._bar(cell.value, BAR)
        return said(cell.text if isinstance(cell, Tinted) else cell, self.locale)

    def matrix(self, matrix: Matrix) -> Iterator[str]:
        """The lines of a heat map."""
        if matrix.scale == "weight":
            yield from shade(matrix, columns=self.columns, unicode=self.unicode, locale=self.locale)
            return
        rows = [
            (name, *map(nats, values))
            for name, values in zip(matrix.rows, matrix.values.tolist(), strict=True)
        ]
        titles = [Column(truncate(said(title, self.locale), CELL), "right") for title in matrix.columns]
        gap = GAP - 1 if self.unicode else GAP  # numbers of one kind; ASCII has a line between them
        yield from self.table(Table((Column(matrix.down), *titles), rows, keep=1), gap)

    def _edited(self, edited: Edited) -> Iterator[Styled]:
        """What went and what came, between what stayed."""
        cut, into = ("−", "→") if self.unicode else ("-", "->")
        parts: Styled = []
        for kind, before, after in edited.parts:
            old, new = " ".join(before), " ".join(after)
            text = {
                "equal": old, "delete": f"[{cut} {old}]", "insert": f"[+ {new}]", "replace": f"[{old} {into} {new}]",
            }[kind]  # fmt: skip
            parts += [(word, STYLES[kind]) for word in text.split(" ")]
        line: Styled = []
        used = 0
        for word, style in parts:
            if line and used + width(word) > self.columns:
                yield line[:-1]
                line, used = [], 0
            line += [(word, style), (" ", "")]
            used += width(word) + 1
        yield line[:-1]


def _written(blocks: Sequence[Block]) -> list[Block]:
    """The blocks that a terminal has room for, without headings that nothing is left under."""
    shown = [
        block
        for block in blocks
        if not (isinstance(block, Atlas) or (isinstance(block, Matrix | Shaded | Code) and block.drawn))
    ]
    after = [*shown[1:], Heading("")]
    return [
        block
        for block, following in zip(shown, after, strict=False)
        if not (isinstance(block, Heading) and isinstance(following, Heading))
    ]
