"""Upright bars side by side, in a terminal and as pieces of SVG."""

from collections.abc import Sequence
from itertools import pairwise

from cutaway.page.blocks import Bars
from cutaway.page.colours import WEIGHT, opaque
from cutaway.page.figures import ROOM, Figure, label, text_width
from cutaway.page.numbers import number
from cutaway.page.wrapping import wrapped
from cutaway.words import Locale, said, say

ROWS = 4  # lines of a terminal

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_HEIGHT, _LINE = 110.0, 18.0  # pixels


def bar_lines(bars: Bars, *, columns: int, unicode: bool, locale: Locale) -> list[str]:
    """The lines of a terminal: each bar one to six characters broad, and what the bars stand for."""
    values = _means(bars.values, columns)
    broad = max(1, min(6, columns // max(1, len(values))))
    steps = _EIGHTHS if unicode else " #"
    fine = len(steps) - 1
    top = max(values, default=0.0) or 1.0
    heights = [round(ROWS * fine * max(0.0, value) / top) for value in values]
    rows = [
        "".join(steps[min(fine, max(0, height - row * fine))] * broad for height in heights).rstrip()
        for row in reversed(range(ROWS))
    ]
    return [*rows, *wrapped(bars_told(bars, locale), columns)]


def bar_figure(bars: Bars, locale: Locale) -> Figure:
    """From left to right, as broad as the room allows, up to 16 pixels each."""
    values = _means(bars.values, ROOM // 2)
    top = max(values, default=0.0) or 1.0
    broad = min(16.0, (ROOM - 10) / max(1, len(values)))
    gap = min(2.0, broad / 4)
    path = "".join(
        f"M{n * broad:.2f} {_HEIGHT:g}v{-_HEIGHT * max(0.0, value) / top:.2f}h{broad - gap:.2f}V{_HEIGHT:g}z"
        for n, value in enumerate(values)
    )
    across, told = broad * len(values), bars_told(bars, locale)
    below = label(0, _HEIGHT + _LINE, told, more=' opacity="0.7"')
    body = (
        f'<path d="{path}" fill="{opaque(WEIGHT)}"/>'
        f'<path d="M0 {_HEIGHT:g}h{across:.1f}" stroke="currentColor" stroke-opacity="0.35"/>{below}'
    )
    return Figure(max(across, text_width(told, 12)) + 8, _HEIGHT + _LINE + 10, body)


def _means(values: Sequence[float], most: int) -> list[float]:
    """At most so many values; in the place of more, the means of neighbours."""
    if len(values) <= most:
        return list(values)
    borders = [len(values) * n // most for n in range(most + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(borders)]


def bars_told(bars: Bars, locale: Locale) -> str:
    """What the bars stand for, and the highest of them."""
    across, unit = said(bars.across, locale), said(bars.unit, locale)
    last, most = len(bars.values) - 1, number(max(bars.values, default=0.0))
    return said(
        say(
            "{across} 0 to {last} across, {unit} up to {most}", across=across, last=last, unit=unit, most=most
        ),
        locale,
    )
