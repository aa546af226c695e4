"""Heat maps and atlases as figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree.ElementTree import Element

import numpy as np

from cutaway.page.blocks import Atlas, Matrix
from cutaway.page.colours import data_url, entries, palette, png, reach
from cutaway.page.elements import LINE, ROOM, SMALL, Figure, element, label, moved, text_width
from cutaway.page.numbers import number, written
from cutaway.page.wrapping import shown
from cutaway.text.display import clusters, truncate, width
from cutaway.words import Locale, Phrase, Text, say

# Pixels that a cell may take, and a map with its labels while cells are larger than LEAST: in a half of a page, and
# beside the small maps of an atlas, where it is shown large.
CELL, ENLARGED = (40.0, 560), (56.0, 660)
LEAST = 24.0
READ = (0.1, 1000.0)  # the strongest values that can be read with two places
_LONGEST = 18  # columns of a label
_ATLAS = 560  # pixels that the small maps of an atlas take together, where they can


def upright(x: float, y: float, text: str, size: float) -> Element:
    """A text that stands: its characters one under another, none of them turned, the last one on the baseline y."""
    stacked, step = _stacked(text), size + 1
    spans = [
        element("tspan", each, x=x, y=y - step * (len(stacked) - 1 - place))
        for place, each in enumerate(stacked)
    ]
    return element("text", spans, font_size=size, text_anchor="middle")


def _stacked(text: str) -> list[str]:
    return [each for each in clusters(text) if each.strip()]


def image(matrix: Matrix, x: float, y: float, across: float, down: float, greatest: float) -> Element:
    """The values as an image, one pixel a cell, stretched without blurring."""
    pixels = entries(np.asarray(matrix.values, dtype=np.float64), matrix.scale, greatest)
    return element(
        "image", x=x, y=y, width=across, height=down, preserveAspectRatio="none",
        style="image-rendering:pixelated", href=data_url(png(pixels, palette(matrix.scale))),
    )  # fmt: skip


def frame(x: float, y: float, across: float, down: float) -> Element:
    return element(
        "rect", x=x, y=y, width=across, height=down, fill="none", stroke="currentColor", stroke_opacity=0.35
    )  # fmt: skip


@dataclass(frozen=True)
class Laid:
    """Where the cells of a heat map lie, and how its columns are labelled: as they are where all of them fit above
    their columns, else standing where there is Chinese among them, else slanted."""

    left: float
    top: float
    cell: float
    titles: Literal["flat", "upright", "slanted"]
    font: float  # of the columns' labels


def laid(matrix: Matrix, locale: Locale, room: tuple[float, int] = CELL) -> Laid:
    """Cells as large as the room allows, with their labels at the left and above."""
    rows, columns = _labels(matrix.rows, locale), _labels(matrix.columns, locale)
    left = 8 + max((text_width(row, 12) for row in rows), default=0)
    most, broad = room
    fitted = (broad - left) / max(1, len(columns))
    if fitted < LEAST:
        fitted = (ROOM - left) / max(1, len(columns))
    size = max(2.0, min(most, fitted, 900 / max(1, len(rows))))
    font = _label_size(size)
    longest = max((text_width(column, font) for column in columns), default=0)
    if longest <= size - 4:
        return Laid(left, 2 * LINE + 4, size, "flat", font)
    if any(width(column) > len(column) for column in columns):
        tallest = max(_height(column, font) for column in columns)
        return Laid(left, LINE + 14 + tallest, size, "upright", font)
    slanted = max(8.0, min(font, 0.68 * size))  # lines of text at 45° are closer together than their columns
    return Laid(left, LINE + 12 + 0.71 * longest * slanted / font, size, "slanted", slanted)


def _labels(names: Sequence[Text], locale: Locale) -> list[str]:
    return [truncate(shown(name, locale), _LONGEST) for name in names]


def _stands(name: str) -> bool:
    """Whether a label stands rather than lies on its side: one with Chinese in it, or of one character."""
    return width(name) > len(name) or len(name) == 1


def _height(name: str, font: float) -> float:
    """Pixels that a label takes above its column, standing or lying on its side."""
    return (font + 1) * len(_stacked(name)) if _stands(name) else text_width(name, font)


def map_told(matrix: Matrix) -> Phrase:
    """What a heat map shows, for who does not see it."""
    down, across, unit = matrix.down, matrix.across, matrix.unit
    return say("Heat map: {down} down, {across} across; {unit}", down=down, across=across, unit=unit)


def heat_map(
    matrix: Matrix,
    locale: Locale,
    greatest: float | None = None,
    *,
    room: tuple[float, int] = CELL,
    with_scale: bool = True,
) -> Figure:
    """A heat map with the labels of its rows and columns (every nth where they would touch), what they stand for, its
    values where cells have room for them, and the scale unless another figure has it."""
    at = laid(matrix, locale, room)
    across, down = at.cell * len(matrix.columns), at.cell * len(matrix.rows)
    greatest = greatest or strongest(matrix)
    font = _label_size(at.cell)
    every = max(1, int(np.ceil((font + 1) / at.cell)))
    axes = f"↓ {shown(matrix.down, locale)}   → {shown(matrix.across, locale)}"
    parts = [
        label(0, LINE - 4, axes, opacity=0.7),
        image(matrix, at.left, at.top, across, down, greatest),
        frame(at.left, at.top, across, down),
    ]
    for row, name in list(enumerate(_labels(matrix.rows, locale)))[::every]:
        y = at.top + (row + 0.5) * at.cell + 0.35 * font
        parts.append(label(at.left - 5, y, name, size=font, anchor="end"))
    names = _labels(matrix.columns, locale)
    for column, name in list(enumerate(names))[:: 1 if at.titles == "flat" else every]:
        parts.append(_title(name, at.left + (column + 0.5) * at.cell, at.top - 6, at.font, at.titles))
    longest = max(len(written(greatest, matrix.scale)), 4)
    type_size = min(float(SMALL), (at.cell - 5) / 0.6 / longest)
    if type_size >= 9 and READ[0] <= greatest < READ[1]:
        parts.append(element("g", list(_values(matrix, at, type_size)), class_="values"))
    right = at.left + across
    if at.titles == "slanted" and names:
        right = max(right, right - at.cell / 2 + 0.71 * text_width(names[-1], at.font) + 4)
    widest = max(right, text_width(axes, 12))
    if not with_scale:
        return Figure(widest + 8, at.top + down + 6, parts)
    below = scale(matrix, greatest, locale)
    parts.append(moved(below, at.left, at.top + down + 12))
    return Figure(max(widest, at.left + below.width) + 8, at.top + down + 12 + below.height, parts)


def _title(name: str, x: float, y: float, font: float, titles: str) -> Element:
    """A column's label, its end at (x, y)."""
    if titles == "flat":
        return label(x, y, name, size=font, anchor="middle")
    if titles == "upright" and _stands(name):
        return upright(x, y, name, font)
    x += 0.35 * font if titles == "upright" else 0
    turned = 90 if titles == "upright" else 45
    return label(x, y, name, size=font, transform=f"rotate(-{turned} {x:.1f} {y:.1f})")


def _values(matrix: Matrix, at: Laid, size: float) -> Iterator[Element]:
    """What is written into the cells, an element for each, in the order of their rows."""
    values = np.asarray(matrix.values, dtype=np.float64)
    for (row, column), value in np.ndenumerate(values):
        x, y = at.left + (column + 0.5) * at.cell, at.top + (row + 0.5) * at.cell + 4
        yield label(x, y, written(float(value), matrix.scale), size=size, anchor="middle")


def scale(matrix: Matrix, greatest: float, locale: Locale) -> Figure:
    """The colours in order, with the values that they stand for and what a value is."""
    weights = matrix.scale == "weight"
    steps = greatest * np.linspace(0.0, 1.0, 64) ** 2 if weights else np.linspace(-greatest, greatest, 127)
    ramp = Matrix(steps[None], [""], [], matrix.down, matrix.across, matrix.unit, matrix.scale)
    unit = shown(square_root(matrix.unit) if weights else matrix.unit, locale)
    marks = ["0", number(greatest / 4)] if weights else [number(-greatest), "0"]
    parts = [image(ramp, 0, 0, 200, 10, greatest), frame(0, 0, 200, 10), label(0, 39, unit)]
    for place, (mark, anchor) in enumerate(
        zip([*marks, number(greatest)], ("start", "middle", "end"), strict=True)
    ):
        parts.append(label(100 * place, 24, mark, size=SMALL, anchor=anchor))
    return Figure(max(200.0, text_width(unit, 12)), 45, parts)


def square_root(unit: Text) -> Phrase:
    """What the colours of weights stand for: small weights can be told from none."""
    return say("{unit} (square-root scale)", unit=unit)


def strongest(matrix: Matrix) -> float:
    """The value of the strongest colour of a map."""
    return matrix.greatest or reach(np.asarray(matrix.values, dtype=np.float64), matrix.scale)


def strongest_of(block: Atlas) -> float:
    """The value of the strongest colour of all its maps."""
    return max(map(strongest, block.maps), default=1.0)


def atlas(block: Atlas, locale: Locale) -> Figure:
    """Small heat maps in rows, each under its name, with one scale for all."""
    if not block.maps:
        return Figure(0, 0, ())
    columns = max(1, block.per_row)
    side = max(30.0, min(110.0, _ATLAS / columns - 8))
    names = [shown(name, locale) for name in block.names]
    step = max(side, *(text_width(name, SMALL) for name in names)) + 8
    greatest = strongest_of(block)
    longest = max(1, *(max(len(each.rows), len(each.columns)) for each in block.maps))
    tallest = max(side * len(each.rows) / longest for each in block.maps)
    parts: list[Element] = []
    for place, (name, each) in enumerate(zip(names, block.maps, strict=True)):
        row, column = divmod(place, columns)
        x, y = column * step, row * (tallest + 20) + 14
        across, down = side * len(each.columns) / longest, side * len(each.rows) / longest
        small = (
            label(x, y - 3, name, size=SMALL),
            image(each, x, y, across, down, greatest),
            frame(x, y, across, down),
        )
        parts.append(element("g", small, data_place=place))
    height = -(-len(block.maps) // columns) * (tallest + 20) + 14
    below = scale(block.maps[0], greatest, locale)
    parts.append(moved(below, 0, height))
    return Figure(max(min(columns, len(names)) * step, below.width + 8), height + below.height, parts)


def _label_size(size: float) -> float:
    return max(8.0, min(12.0, size * 0.9))
