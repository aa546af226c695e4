"""A model as boxes on one another, after Figure 1 of Vaswani et al. 2017, as lines of a terminal and as a figure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from xml.etree.ElementTree import Element

from cutaway.page.blocks import Box, Diagram, Tower
from cutaway.page.elements import Figure, element, label, text_width
from cutaway.page.wrapping import shown, wrapped
from cutaway.text.display import pad, truncate, width
from cutaway.words import Locale

TEXT = 28  # columns of text in a box
FRAME = TEXT + 4
MARGIN = 6  # room for "24 ×" beside a stack
GAP = 4  # between encoder and decoder, where the memory runs
BOTH = MARGIN + FRAME + GAP + FRAME + MARGIN
_ASCII = str.maketrans("┌┐└┘├┤─│╞╡═▲►×→·–±", "++++++-|++=^>x>*-~")


def diagram_lines(diagram: Diagram, columns: int, unicode: bool, locale: Locale) -> list[str]:
    """The lines of a terminal; two towers stand side by side where so many columns allow."""
    columned = [_Column.of(tower, locale) for tower in diagram.towers]
    if len(columned) == 1:
        lines = columned[0].alone()
    elif columns >= BOTH:
        lines = _side_by_side(columned[0], columned[1], shown(diagram.memory, locale), diagram.enters)
    else:
        memory = shown(diagram.memory, locale)
        lines = [*columned[1].alone(), "", *replace(columned[0], top=memory).alone()]
    return lines if unicode else [line.translate(_ASCII) for line in lines]


@dataclass(frozen=True)
class _Column:
    """A tower's texts in the reader's language, each box as its lines."""

    top: str
    above: list[str]
    repeated: list[list[str]]
    times: int
    below: list[str]
    bottom: str

    @classmethod
    def of(cls, tower: Tower, locale: Locale) -> "_Column":
        above, repeated, below = (
            [_lines(box, TEXT, locale) for box in boxes]
            for boxes in (tower.above, tower.repeated, tower.below)
        )
        top, bottom = shown(tower.top, locale), shown(tower.bottom, locale)
        return cls(top, [*chain(*above)], repeated, tower.times, [*chain(*below)], bottom)

    def lines(self) -> list[str]:
        rule, double = "─" * (FRAME - 2), "═" * (FRAME - 2)
        arrow = rule[: len(rule) // 2] + "▲" + rule[len(rule) // 2 + 1 :]
        drawn = [f"┌{arrow}┐", *_framed(self.above), *([f"╞{double}╡"] if self.above else [])]
        for number, box in enumerate(self.repeated):
            drawn += [*([f"├{rule}┤"] if number else []), *_framed(box)]
        return [*drawn, f"╞{double}╡", *_framed(self.below), f"└{arrow}┘"]

    def alone(self) -> list[str]:
        lines = self.lines()
        lines[self.middle()] += f" {self.times} ×"
        return [_centre(self.top), *lines, _centre(self.bottom)]

    def middle(self) -> int:
        """The line beside which the number of repetitions stands."""
        return self.first() + (sum(map(len, self.repeated)) + len(self.repeated) - 1) // 2

    def first(self) -> int:
        """The line where the repeated boxes begin."""
        return 1 + (len(self.above) + 1 if self.above else 0)

    def title_of(self, number: int) -> int:
        """The line of the box of that number that its middle is in."""
        before = sum(len(box) + 1 for box in self.repeated[:number])
        return self.first() + before + len(self.repeated[number]) // 2


def _side_by_side(encoder: _Column, decoder: _Column, memory: str, enters: int) -> list[str]:
    """The encoder on the left, standing on the same ground; the memory goes over its top into the decoder's box."""
    right, left = decoder.lines(), encoder.lines()
    lift = len(right) - len(left)  # the decoder has a box more, so this is at least 1
    into = decoder.title_of(enters)
    drawn = [" " * (MARGIN + FRAME + GAP) + _centre(decoder.top)]
    for row, line in enumerate(right):
        times = ""
        if row < lift - 1:
            start, way = "", " " * GAP
        elif row == lift - 1:
            name = pad(memory, FRAME // 2, "right")
            start, way = f"{name} {'─' * (FRAME - width(name) - 1)}", "─┐  "
        else:
            start, way = left[row - lift], " │  " if row < into else " └─►" if row == into else " " * GAP
            times = f"{encoder.times} ×" if row - lift == encoder.middle() else ""
        after = f" {decoder.times} ×" if row == decoder.middle() else ""
        drawn.append(f"{pad(times, MARGIN - 1, 'right')} {pad(start, FRAME)}{way}{line}{after}")
    return [*drawn, " " * MARGIN + pad(_centre(encoder.bottom), FRAME + GAP) + _centre(decoder.bottom)]


def _framed(lines: Sequence[str]) -> list[str]:
    return [f"│ {pad(line, TEXT)} │" for line in lines]


def _centre(text: str) -> str:
    return pad(text, FRAME, "center").rstrip()


def _lines(box: Box, columns: int, locale: Locale) -> list[str]:
    return [line for text in box.lines for line in hanging(shown(text, locale), columns)]


def hanging(text: str, columns: int) -> Iterator[str]:
    """Lines of at most `columns` terminal columns, all but the first set in by two; a word that is too long is cut,
    after a comma where it has one."""
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


# As a figure.

BROAD, HIGH, PAD, APART, BESIDE = 250.0, 18.0, 7.0, 12.0, 56.0  # pixels: a box, a line of it, its edges, gaps
COLOURS = {
    "attention": "rgba(217,102,11,0.16)",
    "feed-forward": "rgba(26,112,224,0.16)",
    "norm": "rgba(128,128,128,0.14)",
    "embedding": "rgba(117,85,208,0.16)",
    "head": "rgba(46,139,87,0.16)",
}


def diagram_figure(diagram: Diagram, locale: Locale) -> Figure:
    """The towers side by side on the same ground, the memory as a line between them."""
    drawn = [_Tower(tower, locale) for tower in diagram.towers]
    high = max(tower.height for tower in drawn)
    parts, x = list(drawn[0].parts(BESIDE, high)), BESIDE
    if len(drawn) == 2:
        second = BESIDE + BROAD + 2 * BESIDE
        parts += drawn[1].parts(second, high, times_at_right=True)
        parts += _memory(diagram, drawn, high, second, locale)
        x = second
    return Figure(x + BROAD + BESIDE, high + 2, parts)


class _Tower:
    """Where the boxes of a tower stand, from its top."""

    def __init__(self, tower: Tower, locale: Locale):
        self._tower = tower
        self._locale: Locale = locale
        self._boxes: list[tuple[float, list[str], str]] = []  # top, lines, kind
        y = HIGH + APART
        marks = []
        for boxes in (tower.above, tower.repeated, tower.below):
            marks.append(y - APART / 2)
            for box in boxes:
                lines = _lines(box, 38, locale)
                self._boxes.append((y, lines, box.kind))
                y += HIGH * len(lines) + PAD + APART
        self.repeats, self.ends = marks[1], marks[2]
        self.height = y + HIGH

    def centre_of(self, number: int) -> float:
        """The middle of a repeated box, from the tower's top."""
        y, lines, _ = self._boxes[len(self._tower.above) + number]
        return y + (HIGH * len(lines) + PAD) / 2

    def parts(self, x: float, ground: float, times_at_right: bool = False) -> Iterator[Element]:
        lift, middle = ground - self.height, x + BROAD / 2
        yield element(
            "line", x1=middle, x2=middle, y1=lift + HIGH, y2=ground - HIGH - 2, stroke="currentColor",
            stroke_opacity=0.4,
        )  # fmt: skip
        yield label(middle, lift + HIGH - 5, shown(self._tower.top, self._locale), anchor="middle")
        yield label(middle, ground - 4, shown(self._tower.bottom, self._locale), anchor="middle")
        yield element(
            "rect", x=x - 8, y=lift + self.repeats, width=BROAD + 16, height=self.ends - self.repeats, rx=8,
            fill="none", stroke="currentColor", stroke_opacity=0.5, stroke_dasharray="4 3",
        )  # fmt: skip
        centre = lift + (self.repeats + self.ends) / 2
        beside = x + BROAD + 14 if times_at_right else x - 14
        yield label(beside, centre, f"{self._tower.times} ×", anchor="start" if times_at_right else "end")
        for y, lines, kind in self._boxes:
            high = HIGH * len(lines) + PAD
            # White below the tint, so that the line behind does not show through.
            for fill in ("var(--paper, Canvas)", COLOURS[kind]):
                yield element("rect", x=x, y=lift + y, width=BROAD, height=high, rx=5, style=f"fill:{fill}")
            yield element(
                "rect", x=x, y=lift + y, width=BROAD, height=high, rx=5, fill="none", stroke="currentColor",
                stroke_opacity=0.45,
            )  # fmt: skip
            for place, line in enumerate(lines):
                size = min(12.0, 12.0 * (BROAD - 12) / max(1.0, text_width(line, 12)))
                yield label(middle, lift + y + HIGH * (place + 1) - 2, line, size=size, anchor="middle")


def _memory(
    diagram: Diagram, towers: Sequence[_Tower], ground: float, second: float, locale: Locale
) -> Iterator[Element]:
    """From the top of the first tower into a box of the second."""
    start = ground - towers[0].height + HIGH
    into = ground - towers[1].height + towers[1].centre_of(diagram.enters)
    x, turn = BESIDE + BROAD / 2, BESIDE + BROAD + BESIDE
    path = f"M{x:.0f} {start:.0f}H{turn:.0f}V{into:.0f}H{second - 6:.0f}"
    yield element("path", d=path, fill="none", stroke="currentColor", stroke_opacity=0.7)
    yield element("path", d=f"M{second:.0f} {into:.0f}l-8 -4v8z", fill="currentColor", fill_opacity=0.7)
    yield label(turn, start - 5, shown(diagram.memory, locale), size=11, anchor="end")
