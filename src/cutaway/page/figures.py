"""The figures of a page: each as a part of HTML, and as an SVG picture of its own with a caption."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

import numpy as np

from cutaway.errors import CutawayError
from cutaway.page import blocks
from cutaway.page.blocks import Block, Page
from cutaway.page.colours import WEIGHT, css, opaque, ramp, reach, tint
from cutaway.page.diagram import diagram_figure
from cutaway.page.elements import LINE, ROOM, SMALL, Figure, element, label, moved, text_width
from cutaway.page.heatmap import atlas, heat_map, square_root
from cutaway.page.numbers import bars_told, means, reaching
from cutaway.page.scatter import plot
from cutaway.page.wrapping import legible, shown, wrapped
from cutaway.words import Locale, Text

MONO = (
    "ui-monospace, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', 'Noto Sans CJK SC', 'PingFang SC', monospace"
)
MARGIN = 16  # pixels around a picture
GAP, BAR, HIGH = 18, 120, 110  # pixels between columns, of a bar of 1, of upright bars
NARROW = 480  # pixels that a picture is wide at least, for its caption


def figures(page: Page, locale: Locale) -> list[tuple[str, str]]:
    """The figures of a page in order, each as its title and an SVG picture that needs no other file. A title is that
    of the page, or the heading that the figure stands under."""
    title, found = page.title, list[tuple[str, str]]()
    for block in page.blocks:
        if isinstance(block, blocks.Heading):
            title = block.text
        elif (figure := drawn(block, locale)) is not None:
            found.append((shown(title, locale), _picture(figure, shown(title, locale), page.caption, locale)))
    return found


def write_figures(path: Path, page: Page, locale: Locale) -> list[Path]:
    """Write the figures of a page: `x.svg`, or `x-1.svg`, `x-2.svg` … where there are several. The files written.

    Raises CutawayError where the page has none.
    """
    pictures = [picture for _, picture in figures(page, locale)]
    if not pictures:
        raise CutawayError("{path}: this answer has no figure; write it as a page: --html", path=path)
    paths = [path]
    if len(pictures) > 1:
        paths = [path.with_stem(f"{path.stem}-{n + 1}") for n in range(len(pictures))]
    for each, picture in zip(paths, pictures, strict=True):
        each.write_text(picture, encoding="utf-8")
    return paths


def drawn(block: Block, locale: Locale) -> Figure | None:
    """A block as a figure; None for one that is text or plain numbers."""
    match block:
        case blocks.Matrix():
            return heat_map(block, locale)
        case blocks.Atlas():
            return atlas(block, locale)
        case blocks.Points():
            return plot(block, locale)
        case blocks.Bars():
            return bars(block, locale)
        case blocks.Diagram():
            return diagram_figure(block, locale)
        case blocks.Shaded():
            return _shaded(block, locale)
        case blocks.Table() if any(
            isinstance(cell, blocks.Bar | blocks.Tinted) for row in block.rows for cell in row
        ):
            return _table(block, locale)
    return None


def svg(figure: Figure, **attributes: str) -> str:
    """A figure as an element of HTML."""
    return tostring(_root(figure.width, figure.height, figure.parts, **attributes), encoding="unicode")


def _root(across: float, down: float, parts: Sequence[Element], **attributes: str) -> Element:
    """Texts have the colour of what surrounds the picture."""
    return element(
        "svg", parts, xmlns="http://www.w3.org/2000/svg", width=round(across), height=round(down),
        viewBox=f"0 0 {across:.0f} {down:.0f}", font_family=MONO, fill="currentColor",
        **attributes,
    )  # fmt: skip


def _picture(figure: Figure, title: str, caption: blocks.Caption | None, locale: Locale) -> str:
    """A whole picture on white paper: the title, the figure, and where it comes from in small type. The caption stands
    in its metadata too, as JSON."""
    room = max(NARROW, figure.width)
    heads = wrapped(title, int(room / 0.6 / 15))
    notes = [line for note in _notes(caption) for line in wrapped(note, int(room / 0.6 / SMALL))]
    parts = [element("title", title), element("metadata", json.dumps(known(caption), ensure_ascii=False))]
    parts.append(element("rect", width="100%", height="100%", fill="#fff"))
    y = MARGIN
    for head in heads:
        parts.append(label(MARGIN, y + 14, head, size=15, font_weight="bold"))
        y += LINE + 4
    y += 8
    parts.append(moved(figure, MARGIN, y))
    y += figure.height + 12
    for note in notes:
        parts.append(label(MARGIN, y + 10, note, size=SMALL, opacity=0.75))
        y += LINE
    root = _root(room + 2 * MARGIN, y + MARGIN, parts, color="#1a1a1a", **{"xml:lang": locale})
    return tostring(root, encoding="unicode") + "\n"


def known(caption: blocks.Caption | None) -> dict[str, str]:
    """What is known of where a page comes from, safe to show, but for the Python."""
    if caption is None:
        return {}
    named = {name: getattr(caption, name) for name in ("model", "text", "output", "command", "date")}
    return {name: legible(value) for name, value in named.items() if value is not None}


def _notes(caption: blocks.Caption | None) -> Iterator[str]:
    told = known(caption)
    for names, between in ((("model", "date"), " · "), (("text", "output"), " → "), (("command",), "")):
        if line := between.join(" ".join(told[name].split()) for name in names if name in told):
            yield line


def bars(block: blocks.Bars, locale: Locale) -> Figure:
    """Upright bars from left to right, up to 16 pixels each, as broad as the room allows."""
    values = means(block.values, ROOM // 2)
    top = max(values, default=0.0) or 1.0
    broad = min(16.0, (ROOM - 10) / max(1, len(values)))
    gap = min(2.0, broad / 4)
    path = "".join(
        f"M{n * broad:.2f} {HIGH}v{-HIGH * max(0.0, value) / top:.2f}h{broad - gap:.2f}V{HIGH}z"
        for n, value in enumerate(values)
    )
    across, told = broad * len(values), shown(bars_told(block), locale)
    parts = [
        element("path", d=path, fill=opaque(WEIGHT)),
        element("path", d=f"M0 {HIGH}h{across:.1f}", stroke="currentColor", stroke_opacity=0.35),
        label(0, HIGH + LINE + 2, told, opacity=0.7),
    ]
    return Figure(max(across, text_width(told, 12)) + 8, HIGH + LINE + 12, parts)


def _shaded(block: blocks.Shaded, locale: Locale) -> Figure:
    """A text's tokens, each on its tint, in as many lines as they take, after their label."""
    greatest = strength(block)
    name = shown(block.label, locale)
    parts: list[Element] = [label(0, LINE - 3, name, font_weight="bold")]
    left = x = text_width(name, 12) + GAP
    y = widest = 0.0
    for token, value in zip(map(legible, block.tokens), block.values, strict=True):
        size = text_width(token, 12) + 6
        if x + size > ROOM and x > left:
            x, y = left, y + LINE + 4
        colour = css(0.8 * value, greatest)
        parts.append(element("rect", x=x, y=y, width=size, height=LINE + 1, rx=3, fill=colour))
        parts.append(label(x + 3, y + LINE - 3, token))
        x += size + 4
        widest = max(widest, x)
    ramp = _ramp("signed", shown(reaching(block.unit, greatest), locale))
    return _over(Figure(widest, y + LINE + 8, parts), ramp)


def _table(table: blocks.Table, locale: Locale) -> Figure:
    """A table's cells, with their bars and on their colours."""
    titles = [shown(column.title, locale) for column in table.columns]
    sizes = column_sizes(table, locale, 12)
    lefts = [sum(sizes[:n]) + GAP * n for n in range(len(sizes))]
    across, step = sum(sizes) + GAP * len(sizes), LINE + 3
    parts = [element("path", d=f"M0 {step + 3}h{across:.1f}", stroke="currentColor", stroke_opacity=0.5)]
    for n, column in enumerate(table.columns):
        anchor, x = ("end", lefts[n] + sizes[n]) if column.align == "right" else ("start", lefts[n])
        parts.append(label(x, LINE - 2, titles[n], anchor=anchor, font_weight="bold"))
        for place, row in enumerate(table.rows):
            y, cell = step * (place + 2) + 2, row[n]
            if isinstance(cell, blocks.Bar):
                size = BAR * max(0.0, min(1.0, cell.value))
                parts.append(element("rect", x=lefts[n], y=y - 9, width=size, height=9, fill=opaque(WEIGHT)))
                continue
            if isinstance(cell, blocks.Tinted):
                size = sizes[n] + GAP - 4
                colour = tint(cell.value, cell.scale)
                parts.append(
                    element("rect", x=lefts[n] - 4, y=y - 14, width=size, height=step - 1, fill=colour)
                )
            parts.append(label(x, y, _text(cell, locale), anchor=anchor))
    figure = Figure(across, step * (len(table.rows) + 1) + 14, parts)
    if table.tint is None or (tinted := scale_of(table)) is None:
        return figure
    what = square_root(table.tint) if tinted == "weight" else table.tint
    return _over(figure, _ramp(tinted, shown(what, locale)))


def column_sizes(table: blocks.Table, locale: Locale, font: float) -> list[float]:
    """Pixels that each column of a table takes."""

    def size(cell: Text | blocks.Bar | blocks.Tinted) -> float:
        return BAR if isinstance(cell, blocks.Bar) else text_width(_text(cell, locale), font)

    titles = (column.title for column in table.columns)
    return [max(map(size, column)) for column in zip(titles, *table.rows, strict=True)]


def strength(block: blocks.Shaded) -> float:
    """The value of the strongest tint."""
    return block.greatest or reach(np.asarray(block.values, dtype=np.float64), "signed")


def scale_of(block: blocks.Line | blocks.Table) -> blocks.Scale | None:
    """The scale of the colours in a block that says what they stand for; None where there are none."""
    cells = block.words if isinstance(block, blocks.Line) else [cell for row in block.rows for cell in row]
    found: list[blocks.Scale] = [cell.scale for cell in cells if isinstance(cell, blocks.Tinted)]
    return found[0] if found and block.tint is not None else None


def _text(cell: Text | blocks.Tinted, locale: Locale) -> str:
    return shown(cell.text if isinstance(cell, blocks.Tinted) else cell, locale)


def _ramp(scale: blocks.Scale, what: str) -> Figure:
    """The colours in order, and what they stand for."""
    lowest, colours, greatest = ramp(scale)
    parts = [
        element("rect", x=12 + 9 * n, y=2, width=9, height=10, fill=each) for n, each in enumerate(colours)
    ]
    for x, text in ((0, lowest), (97, greatest), (112, what)):
        parts.append(label(x, 11, text, size=SMALL, opacity=0.7))
    return Figure(116 + text_width(what, SMALL), LINE, parts)


def _over(above: Figure, below: Figure) -> Figure:
    """One figure under another."""
    parts = [*above.parts, moved(below, 0, above.height)]
    return Figure(max(above.width, below.width), above.height + below.height, parts)
