"""Heat maps, atlases and plots as pieces of SVG. Colours of text and lines are the surroundings' own (currentColor)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from cutaway.page.blocks import Atlas, Matrix
from cutaway.page.colours import entries, palette, reach
from cutaway.page.numbers import number
from cutaway.page.png import data_url, png
from cutaway.text.display import truncate, width
from cutaway.words import Locale, Text, said, say

MONO = (
    "ui-monospace, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', 'Noto Sans CJK SC', 'PingFang SC', monospace"
)
ROOM = 900  # pixels that a figure may be wide
_LONGEST = 16  # columns of a label
_LINE = 16  # pixels of a line of text


@dataclass(frozen=True)
class Figure:
    """SVG elements and the size that they take, in pixels."""

    width: float
    height: float
    body: str


def text_width(text: str, size: float) -> float:
    """Pixels that a text takes: wide characters an em, others 0.6 of it, as monospaced fonts have them."""
    wide = max(0, width(text) - len(text))
    return size * (wide + 0.6 * (len(text) - wide))


def label(x: float, y: float, text: str, *, size: float = 12, anchor: str = "start", more: str = "") -> str:
    """A line of text at (x, y), its baseline."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="currentColor" '
        f'xml:space="preserve"{more}>'
        f"{escaped(text)}</text>"
    )


def escaped(text: str) -> str:
    """A text as XML writes it; characters that XML cannot hold are left out."""
    return escape("".join(character for character in text if _in_xml(character)))


def _in_xml(character: str) -> bool:
    """Char of XML 1.0, §2.2."""
    code = ord(character)
    return character in "\t\n\r" or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def image(matrix: Matrix, x: float, y: float, across: float, down: float, greatest: float) -> str:
    """The values as an image, one pixel a cell, stretched without blurring."""
    pixels = entries(np.asarray(matrix.values, dtype=np.float64), matrix.scale, greatest)
    url = data_url(png(pixels, palette(matrix.scale)))
    return (
        f'<image x="{x:.1f}" y="{y:.1f}" width="{across:.1f}" height="{down:.1f}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="{url}"/>'
    )


def frame(x: float, y: float, across: float, down: float) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{across:.1f}" height="{down:.1f}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.35"/>'
    )


@dataclass(frozen=True)
class Laid:
    """Where the cells of a heat map lie."""

    left: float
    top: float
    cell: float
    upright: bool  # whether each label of a column fits above its column as it is


def laid(matrix: Matrix, locale: Locale) -> Laid:
    """Cells as large as the room allows, up to 26 pixels; where rows are labelled at all, at the left."""
    rows, columns = _labels(matrix.rows, locale), _labels(matrix.columns, locale)
    left = 8 + max((text_width(row, _label_size(26)) for row in rows), default=0)
    cell = max(2.0, min(26.0, (ROOM - left) / max(1, len(columns)), 900 / max(1, len(rows))))
    widest = max((text_width(column, _label_size(cell)) for column in columns), default=0)
    upright = widest <= cell - 2
    return Laid(left, 2 * _LINE + (4 if upright else widest), cell, upright)


def _labels(names: Sequence[Text], locale: Locale) -> list[str]:
    return [truncate(said(name, locale), _LONGEST) for name in names]


def told(matrix: Matrix, locale: Locale) -> str:
    """What a heat map shows, for who does not see it."""
    down, across, unit = (said(text, locale) for text in (matrix.down, matrix.across, matrix.unit))
    return said(
        say("Heat map: {down} down, {across} across; {unit}", down=down, across=across, unit=unit),
        locale,
    )


def heat_map(
    matrix: Matrix, locale: Locale, greatest: float | None = None, *, with_scale: bool = True
) -> Figure:
    """A heat map with the labels of its rows and columns (every nth where they would touch), what they stand for, and
    the scale unless another figure has it."""
    at = laid(matrix, locale)
    n_rows, n_columns = len(matrix.rows), len(matrix.columns)
    across, down = at.cell * n_columns, at.cell * n_rows
    greatest = greatest or strongest(matrix)
    size = _label_size(at.cell)
    every = max(1, int(np.ceil((size + 1) / at.cell)))
    axes = f"↓ {said(matrix.down, locale)}   → {said(matrix.across, locale)}"
    parts = [
        label(0, _LINE - 4, axes, more=' opacity="0.7"'),
        image(matrix, at.left, at.top, across, down, greatest),
        frame(at.left, at.top, across, down),
    ]
    for row, name in list(enumerate(_labels(matrix.rows, locale)))[::every]:
        y = at.top + (row + 0.5) * at.cell + 0.35 * size
        parts.append(label(at.left - 5, y, name, size=size, anchor="end"))
    for column, name in list(enumerate(_labels(matrix.columns, locale)))[:: 1 if at.upright else every]:
        x, y = at.left + (column + 0.5) * at.cell, at.top - 5
        if at.upright:
            parts.append(label(x, y, name, size=size, anchor="middle"))
            continue
        x += 0.35 * size
        turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"'
        parts.append(label(x, y, name, size=size, more=turned))
    if not with_scale:
        return Figure(max(at.left + across, text_width(axes, 12)) + 8, at.top + down + 6, "".join(parts))
    parts += scale(matrix, at.left, at.top + down + 10, greatest, locale)
    shown = max(across, text_width(said(matrix.unit, locale), 12) + 260)
    widest = max(at.left + shown, text_width(axes, 12))
    return Figure(widest + 8, at.top + down + 14 + 2 * _LINE, "".join(parts))


def scale(matrix: Matrix, x: float, y: float, greatest: float, locale: Locale) -> Iterator[str]:
    """The colours in order with the values that they stand for."""
    steps = (
        greatest * np.linspace(0.0, 1.0, 64) ** 2
        if matrix.scale == "weight"
        else np.linspace(-greatest, greatest, 127)
    )
    ramp = Matrix(steps[None], [""], [], matrix.down, matrix.across, matrix.unit, matrix.scale)
    middle = ("0", number(greatest / 4)) if matrix.scale == "weight" else (number(-greatest), "0")
    marks = (*middle, number(greatest))
    yield image(ramp, x, y, 200, 10, greatest)
    yield frame(x, y, 200, 10)
    for place, (written, anchor) in enumerate(zip(marks, ("start", "middle", "end"), strict=True)):
        yield label(x + 100 * place, y + 24, written, size=11, anchor=anchor)
    yield label(x + 210, y + 9, said(matrix.unit, locale), size=12)


def strongest(matrix: Matrix) -> float:
    """The value of the strongest colour of a map."""
    return matrix.greatest or reach(np.asarray(matrix.values, dtype=np.float64), matrix.scale)


def greatest_of(block: Atlas) -> float:
    """The value of the strongest colour of all its maps."""
    return max(map(strongest, block.maps), default=1.0)


def atlas(block: Atlas, locale: Locale) -> Figure:
    """Small heat maps in rows, each under its name, with one scale for all."""
    columns = max(1, block.per_row)
    cell = max(24.0, min(110.0, ROOM / columns - 8))
    named = max((text_width(said(name, locale), 11) for name in block.names), default=0.0)
    step = max(cell, named) + 8
    greatest = greatest_of(block)
    longest = max((max(len(each.rows), len(each.columns)) for each in block.maps), default=1)
    tallest = max((cell * len(each.rows) / longest for each in block.maps), default=0)
    parts = []
    for place, (name, each) in enumerate(zip(block.names, block.maps, strict=True)):
        row, column = divmod(place, columns)
        x, y = column * step, row * (tallest + 20) + 14
        across, down = cell * len(each.columns) / longest, cell * len(each.rows) / longest
        parts.append(f'<g data-place="{place}">{label(x, y - 3, said(name, locale), size=11)}')
        parts.append(f"{image(each, x, y, across, down, greatest)}{frame(x, y, across, down)}</g>")
    rows = -(-len(block.maps) // columns)
    height, widest = rows * (tallest + 20) + 14, columns * step
    if block.maps:
        widest = max(widest, 218 + text_width(said(block.maps[0].unit, locale), 12))
        parts += scale(block.maps[0], 0, height, greatest, locale)
        height += 2 * _LINE + 6
    return Figure(widest, height, "".join(parts))


def _label_size(cell: float) -> float:
    return max(8.0, min(12.0, cell * 0.9))
