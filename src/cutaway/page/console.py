"""A page in a terminal, made of renderables of the `rich` library.

A block becomes text, a grid or a table of rich. What depends on the room (prose, words in a row, tables broken into
blocks, drawings of characters) is worked out when rich asks for it, for as many columns as there are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from itertools import count

import numpy as np
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text as Words

from cutaway.page import blocks
from cutaway.page.blocks import Block, Page
from cutaway.page.diagram import diagram_lines
from cutaway.page.numbers import bars_told, means, nats, no_room
from cutaway.page.wrapping import folded, legible, shown, wrapped
from cutaway.text.display import clusters, pad, truncate, width
from cutaway.words import Locale, Text, say

LABEL = 13  # columns of the words at the left
BAR = 24  # columns of a bar of 1
LEAST = 4  # columns of a bar of 1 that still can be compared
WRAPPED = 20  # columns that a last column has at least where its texts are wrapped
GAP = 3  # columns between those of a table
TITLE = 6  # columns of a title over written numbers
PIECE = 14  # columns that a label of a heat map may take before it is cut
LEVELS = (0.1, 0.25, 0.5, 0.75)  # of the strongest weight, from which a cell is shaded
SHADES, ASCII_SHADES = " ░▒▓█", " .:+#"
EIGHTHS, ASCII_EIGHTHS = " ▁▂▃▄▅▆▇█", " #"
MARKS, ASCII_MARKS = "•×○+*", "ox+*."
STYLES = {"equal": "", "delete": "red strike", "insert": "green", "replace": "yellow"}
BARS_HIGH, PLANE_HIGH = 4, 18  # lines of upright bars, of points in a plane
NAMED = 12  # columns of a label in a plane

# Between two of them a line stays empty.
_FIGURES = blocks.Table | blocks.Bars | blocks.Matrix | blocks.Points | blocks.Diagram
# What the words of a page become where a terminal has no more than ASCII.
_PLAIN = str.maketrans(
    {"→": "->", "·": "-", "–": "-", "×": "x", "±": "+-", "…": ".", "−": "-", "“": '"', "”": '"'}
)
_ASCII_RULE = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


@dataclass(frozen=True)
class Fitted:
    """What depends on the columns that there are. Its lines end where their text ends."""

    parts: Callable[[int], Iterable[RenderableType]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for part in self.parts(options.max_width):
            for line in console.render_lines(part, options, pad=False):
                while line and not line[-1].text.strip():
                    line.pop()
                yield from line[:-1]
                if line:
                    yield Segment(line[-1].text.rstrip(), line[-1].style)
                yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        sizes = [Measurement.get(console, options, part).maximum for part in self.parts(options.max_width)]
        most = max(sizes, default=0)
        return Measurement(min(WRAPPED, most), most)


@dataclass(frozen=True)
class Lines:
    """Lines that fit as they are, each with its style: rich takes them as they come, however many they are."""

    lines: Sequence[tuple[str, str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style in self.lines:
            yield Segment(text, console.get_style(style))
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        most = max((width(text) for text, _ in self.lines), default=0)
        return Measurement(most, most)


def prose(text: str, style: str = "", before: str = "") -> Fitted:
    """Text that is broken at spaces and between Chinese characters, `before` at the left of each line."""

    def lines(room: int) -> Iterator[Words]:
        yield from (Words(before + line, style) for line in wrapped(text, room - len(before)))

    return Fitted(lines)


def words(parts: Sequence[tuple[str, str]]) -> Fitted:
    """Words, each with its style, that stay whole: in as many lines as they take."""

    def lines(room: int) -> Iterator[Words]:
        line = Words()
        for text, style in parts:
            if line and width(line.plain) + 1 + width(text) > room:
                yield line
                line = Words()
            line.append(" " if line else "").append(text, style)
        yield line

    return Fitted(lines)


@dataclass(frozen=True)
class Terminal:
    """What a terminal can show, and to whom."""

    columns: int = 80
    unicode: bool = True
    locale: Locale = "en"

    def print(self, what: Page | Block) -> None:
        """To standard output, with styles where that is a terminal and nobody asks for none (NO_COLOR)."""
        self._print(what, Console(width=self.columns, markup=False, highlight=False, emoji=False))

    def text(self, what: Page | Block) -> str:
        """As plain text; no line is wider than the terminal, save lines to copy."""
        file = StringIO()
        plain = Console(
            file=file, width=self.columns, color_system=None, force_terminal=False, force_jupyter=False,
            markup=False, highlight=False, emoji=False,
        )  # fmt: skip
        self._print(what, plain)
        return file.getvalue().removesuffix("\n")

    def _print(self, what: Page | Block, console: Console) -> None:
        # Lines to copy stay whole: nothing is cropped.
        console.print(self.page(what) if isinstance(what, Page) else self.block(what), crop=False)

    def page(self, page: Page) -> Group:
        """The page, from its title to its caption."""
        parts: list[RenderableType] = [prose(self._shown(page.title), "bold")]
        before: Block = blocks.Heading(page.title)
        for block in _written(page.blocks):
            if isinstance(block, blocks.Heading) or (
                isinstance(block, _FIGURES) and isinstance(before, _FIGURES)
            ):
                parts.append("")
            parts.append(self.block(block))
            before = block
        return Group(*parts, *self._caption(page.caption))

    def block(self, block: Block) -> RenderableType:
        """One block of a page."""
        match block:
            case blocks.Heading(text):
                return prose(self._shown(text), "bold")
            case blocks.Remark(text):
                return prose(self._shown(text), "dim")
            case blocks.Prose(label, text):
                return self._labelled(label, prose(self._shown(text)))
            case blocks.Line(label, texts):
                pieces = [self._cell(text) for text in texts]
                # A piece with a space in it is set apart from the next one.
                return self._labelled(
                    label, words([(f"{each} " if " " in each else each, "") for each in pieces])
                )
            case blocks.Code(about, lines):
                copied = [Words(line, no_wrap=True, overflow="ignore") for line in legible(lines).split("\n")]
                return Group(prose(self._shown(about), "dim", "# "), *copied)
            case blocks.Table():
                return Fitted(self._table(block).parts)
            case blocks.Bars():
                return Fitted(lambda room: self._bars(block, room))
            case blocks.Matrix(scale="weight"):
                return Fitted(lambda room: self._shades(block, room))
            case blocks.Matrix():
                return Fitted(self._numbers(block).parts)
            case blocks.Points():
                return Fitted(lambda room: self._plane(block, room))
            case blocks.Shaded(label, tokens, values):
                pairs = zip(tokens, values, strict=True)
                return self._labelled(
                    label, words([(f"{legible(token)} {nats(value)} ", "") for token, value in pairs])
                )
            case blocks.Edited():
                return words(list(self._edits(block)))
            case blocks.Diagram():
                return Fitted(lambda room: map(Words, diagram_lines(block, room, self.unicode, self.locale)))
            case blocks.Atlas():
                return Group()

    def _shown(self, text: Text) -> str:
        """A text, safe to show; without Unicode a page's own words go without it, what they tell about keeps it."""
        if self.unicode or isinstance(text, str):
            return shown(text, self.locale)
        return legible(text.said(self.locale, _PLAIN))

    def _cut(self, text: Text, columns: int) -> str:
        """A text within so many columns, with a mark where something was cut off."""
        return truncate(self._shown(text), columns, "…" if self.unicode else ".")

    def _cell(self, cell: Text | blocks.Tinted) -> str:
        return self._shown(cell.text if isinstance(cell, blocks.Tinted) else cell)

    def _labelled(self, label: Text, beside: Fitted) -> Fitted:
        """The label in bold with something at its right."""
        grid = Grid.grid()
        grid.add_column(min_width=LABEL, no_wrap=True, style="bold")
        grid.add_column()
        grid.add_row(self._shown(label) + " ", beside)
        return Fitted(lambda room: [grid])

    def _table(self, table: blocks.Table) -> "_Wide":
        titles = [(self._shown(column.title), column.align) for column in table.columns]
        rows = [
            [cell if isinstance(cell, blocks.Bar) else self._cell(cell) for cell in row] for row in table.rows
        ]
        return _Wide(titles, rows, table.keep, self.unicode)

    def _numbers(self, matrix: blocks.Matrix) -> "_Wide":
        """A heat map's values, written out."""
        titles = [(self._cut(title, TITLE), "right") for title in matrix.columns]
        values = zip(matrix.rows, matrix.values.tolist(), strict=True)
        rows = [[self._shown(name), *map(nats, row)] for name, row in values]
        return _Wide([(self._shown(matrix.down), "left"), *titles], rows, 1, self.unicode, gap=2)

    def _shades(self, matrix: blocks.Matrix, room: int) -> Iterator[RenderableType]:
        """A heat map of weights as shaded cells, its columns along the top, or turned where only that needs fewer
        blocks of columns; and what its shades stand for."""
        marks = SHADES if self.unicode else ASCII_SHADES
        greatest = matrix.greatest or 1.0
        shaded = (matrix.values[..., None] >= greatest * np.array(LEVELS)).sum(-1)  # (rows, columns), 0 to 4
        across, down = ([self._cut(name, PIECE) for name in names] for names in (matrix.columns, matrix.rows))
        upright, turned = self._grid(across, down, shaded, marks), self._grid(down, across, shaded.T, marks)
        names = [self._shown(matrix.down), self._shown(matrix.across)]
        if len(turned.blocks(room)) < len(upright.blocks(room)):
            upright, names = turned, names[::-1]
        yield from upright.parts(room)
        yield ""
        how = say("{down} down, {across} across;  ", down=names[0], across=names[1])
        least = say("{unit} at least", unit=self._shown(matrix.unit))
        legend = f"{self._shown(how)}{self._shown(least)} "
        steps = [f"{mark} {level * greatest:.2f} " for mark, level in zip(marks[1:], LEVELS, strict=True)]
        # In one line, or the shades together in the next one.
        lines = folded([legend, *steps], room + 1)
        yield from (
            [Words(lines[0])] if len(lines) == 1 else [prose(legend), words([(step, "") for step in steps])]
        )

    def _grid(self, across: Sequence[str], down: Sequence[str], shaded: np.ndarray, marks: str) -> "_Wide":
        sizes = [max(2, width(name)) for name in across]
        rows = [
            [name, *(marks[level] * size for level, size in zip(row, sizes, strict=True))]
            for name, row in zip(down, shaded.tolist(), strict=True)
        ]
        return _Wide(
            [("", "right"), *((name, "left") for name in across)], rows, 1, self.unicode, 1, ruled=False
        )

    def _bars(self, bars: blocks.Bars, room: int) -> Iterator[RenderableType]:
        """Upright bars, each one to six characters broad, and what they stand for."""
        values = means(bars.values, room)
        broad = max(1, min(6, room // max(1, len(values))))
        steps = EIGHTHS if self.unicode else ASCII_EIGHTHS
        fine, top = len(steps) - 1, max(values, default=0.0) or 1.0
        heights = [round(BARS_HIGH * fine * max(0.0, value) / top) for value in values]
        for row in reversed(range(BARS_HIGH)):
            yield Words("".join(steps[min(fine, max(0, height - row * fine))] * broad for height in heights))
        yield prose(self._shown(bars_told(bars)))

    def _plane(self, points: blocks.Points, room: int) -> Iterator[RenderableType]:
        """Points on a canvas of characters. A label stands at the right of its mark, or at its left where there is no
        room; what would cover another label is left out and counted."""
        if not points.points:
            return
        marks = MARKS if self.unicode else ASCII_MARKS
        canvas = [[" "] * room for _ in range(PLANE_HIGH)]
        xs, ys = [point.x for point in points.points], [point.y for point in points.points]
        # A character is about twice as high as wide: a row is two steps.
        step = max((max(xs) - min(xs)) / (room - 1), (max(ys) - min(ys)) / 2 / (PLANE_HIGH - 1)) or 1.0
        placed: dict[tuple[int, int, str], None] = {}  # the same at the same place is said once
        for point in points.points:
            row, column = round((max(ys) - point.y) / step / 2), round((point.x - min(xs)) / step)
            canvas[row][column] = marks[point.group % len(marks)]
            placed[row, column, self._cut(point.label, NAMED)] = None
        left_out = 0
        for row, column, label in placed:
            size = width(label)
            for start in (column + 1, column - size):
                if 0 <= start <= room - size and not "".join(canvas[row][start : start + size]).strip():
                    _write(canvas[row], start, label)
                    break
            else:
                left_out += bool(label)
        lines = ["".join(row).rstrip() for row in canvas]
        while lines and not lines[-1]:
            lines.pop()
        yield from map(Words, lines)
        groups = [f"{marks[n % len(marks)]} {self._shown(name)} " for n, name in enumerate(points.groups)]
        yield from (Words(line) for line in folded(groups, room) if line)
        yield prose(self._shown(say("{across} across, {down} up", across=points.across, down=points.down)))
        if left_out:
            yield prose(self._shown(no_room(left_out)))

    def _edits(self, edited: blocks.Edited) -> Iterator[tuple[str, str]]:
        """What went and what came, between what stayed, word by word with its style."""
        cut, into = ("−", "→") if self.unicode else ("-", "->")
        for kind, before, after in edited.parts:
            old, new = legible(" ".join(before)), legible(" ".join(after))
            marked = {
                "equal": old, "delete": f"[{cut} {old}]", "insert": f"[+ {new}]", "replace": f"[{old} {into} {new}]",
            }[kind]  # fmt: skip
            yield from ((word, STYLES[kind]) for word in marked.split(" "))

    def _caption(self, caption: blocks.Caption | None) -> Iterator[RenderableType]:
        """Where the page comes from, in three lines at most."""
        if caption is None:
            return
        into, beside = (" → ", " · ") if self.unicode else (" -> ", " - ")
        lines = (
            beside.join(each for each in (caption.model, caption.date) if each),
            into.join(" ".join(each.split()) for each in (caption.text, caption.output) if each),
            caption.command,
        )
        yield ""
        yield Fitted(lambda room: [Words(truncate(legible(line), room), "dim") for line in lines if line])


@dataclass(frozen=True)
class _Wide:
    """A table that may be broken into blocks of columns, each after the first `keep` ones. One whose last column has
    some room is wrapped there instead, unless `keep` says that it may be broken."""

    titles: Sequence[tuple[str, str]]  # each with its alignment
    rows: Sequence[Sequence[str | blocks.Bar]]
    keep: int
    unicode: bool
    gap: int = GAP
    ruled: bool = True

    def parts(self, room: int) -> Iterator[RenderableType]:
        fitted, bar = self._with_bars(room)
        for place, columns in enumerate(fitted.blocks(room)):
            if place:
                yield ""
            yield fitted.block(columns, bar, room)

    def blocks(self, room: int) -> list[list[int]]:
        """The columns of each block; of one kind, about as many in each."""
        sizes = [self.gap + size for size in self._sizes]
        if not self.keep and len(sizes) > 1:
            sizes[-1] = min(sizes[-1], self.gap + WRAPPED)
        keep = min(self.keep or 1, len(sizes) - 1)
        blocks = self._cut(sizes, keep, room, len(sizes))
        if self.keep and len(blocks) > 1:
            even = self._cut(sizes, keep, room, -(-(len(sizes) - keep) // len(blocks)))
            blocks = even if len(even) == len(blocks) else blocks
        return blocks

    def _cut(self, sizes: Sequence[int], keep: int, room: int, most: int) -> list[list[int]]:
        """The first `keep` columns, and of the others as many as there is room for, at least one and at most `most`."""
        blocks: list[list[int]] = []
        first = keep
        while first < len(sizes):
            used, end = sum(sizes[:keep]) + sizes[first] - self.gap, first + 1
            while end < min(len(sizes), first + most) and used + sizes[end] <= room:
                used, end = used + sizes[end], end + 1
            blocks.append([*range(keep), *range(first, end)])
            first = end
        return blocks

    @cached_property
    def _sizes(self) -> list[int]:
        """Columns of a terminal that each column takes, bars left out."""
        cells = ([cell for cell in (row[n] for row in self.rows) if isinstance(cell, str)] for n in count())
        return [
            max(map(width, [title, *texts])) for (title, _), texts in zip(self.titles, cells, strict=False)
        ]

    def _with_bars(self, room: int) -> tuple["_Wide", int]:
        """The table and the length of a bar of 1 in its last column: as long as there is room; without that column
        where there is none."""
        if not self.rows or not all(isinstance(row[-1], blocks.Bar) for row in self.rows):
            return self, BAR
        bar = min(BAR, room - sum(self.gap + size for size in self._sizes[:-1]))
        if bar >= LEAST:
            return self, bar
        return replace(self, titles=self.titles[:-1], rows=[row[:-1] for row in self.rows]), 0

    def block(self, columns: Sequence[int], bar: int, room: int) -> RenderableType:
        """A block of columns, without a frame; its last column alone is wrapped."""
        mark = "█" if self.unicode else "#"
        rows = [
            [mark * round(bar * max(0.0, min(1.0, cell.value))) if isinstance(cell, blocks.Bar) else cell
             for cell in (row[n] for n in columns)]
            for row in self.rows
        ]  # fmt: skip
        sizes = [self._sizes[n] for n in columns[:-1]]
        lasts = (self.titles[columns[-1]][0], *(row[-1] for row in rows))
        last = max(width(line) for text in lasts for line in _fitting(text, room))
        left = room - sum(size + self.gap for size in sizes)
        if left < min(last, WRAPPED) or any("\n" in cell for row in rows for cell in row[:-1]):
            return self._squeezed(columns, rows)
        return Lines(list(self._lines(columns, rows, sizes, min(last, left))))

    def _lines(
        self, columns: Sequence[int], rows: Sequence[Sequence[str]], sizes: Sequence[int], room: int
    ) -> Iterator[tuple[str, str]]:
        """The lines of a block with so many columns for the last one."""
        titles, aligns = zip(*(self.titles[n] for n in columns), strict=True)
        lasts = [list(_fitting(cells[-1], room)) for cells in (titles, *rows)]
        sizes = [*sizes, room]
        between, empty = " " * self.gap, [""] * (len(columns) - 1)

        def line(cells: Sequence[str], part: str) -> str:
            return between.join(map(pad, [*cells, part], sizes, aligns)).rstrip()

        # titles stand at the bottom of theirs
        for place, part in enumerate(lasts[0], start=1):
            yield line(titles[:-1] if place == len(lasts[0]) else empty, part), "bold" if self.ruled else ""
        if self.ruled:
            yield ("─" if self.unicode else "-") * (sum(sizes) + self.gap * (len(sizes) - 1)), ""
        for row, parts in zip(rows, lasts[1:], strict=True):
            yield from ((line(empty if place else row[:-1], part), "") for place, part in enumerate(parts))

    def _squeezed(self, columns: Sequence[int], rows: Sequence[Sequence[str]]) -> Grid:
        """The same where other columns than the last must give way too."""
        rule = box.SIMPLE_HEAD if self.unicode else _ASCII_RULE
        grid = Grid(
            box=rule if self.ruled else None,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, self.gap - 2) if self.ruled else (0, self.gap, 0, 0),
            header_style="bold" if self.ruled else "",
        )
        for place, n in enumerate(columns):
            title, align = self.titles[n]
            justify = "right" if align == "right" else "left"
            grid.add_column(Words(title), justify=justify, no_wrap=place < len(columns) - 1, overflow="fold")
        for row in rows:
            grid.add_row(*map(Words, row[:-1]), prose(row[-1]))
        return grid


def _fitting(text: str, room: int) -> Iterator[str]:
    """Prose in lines of so many columns; a word that is longer is broken."""
    if width(text) <= room and "\n" not in text:
        yield text
        return
    for line in wrapped(text, room):
        while width(line) > room and (start := truncate(line, room, "")):
            yield start
            line = line[len(start) :]
        yield line


def _write(row: list[str], start: int, label: str) -> None:
    """Put a label into a row; a wide character takes its second cell."""
    for cluster in clusters(label):
        row[start] = cluster
        if width(cluster) == 2:
            row[start + 1] = ""
        start += width(cluster)


def _written(there: Sequence[Block]) -> list[Block]:
    """The blocks that a terminal has room for, without headings that nothing is left under."""
    kept = [each for each in there if not (isinstance(each, blocks.Atlas) or getattr(each, "drawn", False))]
    return [
        block
        for block, following in zip(kept, [*kept[1:], blocks.Heading("")], strict=False)
        if not (isinstance(block, blocks.Heading) and isinstance(following, blocks.Heading))
    ]
