"""A page as one SVG picture on white paper."""

import json
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from cutaway.page.bars import bar_figure
from cutaway.page.blocks import (
    Atlas,
    Bar,
    Bars,
    Block,
    Code,
    Edited,
    Heading,
    Line,
    Matrix,
    Page,
    Points,
    Prose,
    Remark,
    Scale,
    Shaded,
    Table,
    Tinted,
)  # fmt: skip
from cutaway.page.colours import WEIGHT, css, opaque, reach, tint
from cutaway.page.figures import MONO, ROOM, Figure, atlas, escaped, heat_map, label, text_width
from cutaway.page.numbers import reaching
from cutaway.page.scatter import plot
from cutaway.page.wrapping import wrapped
from cutaway.text.display import width
from cutaway.words import Locale, Text, said

MARGIN, LINE, APART = 16, 18, 8  # pixels: around the page, of a line, between blocks of two kinds
LABEL, BAR, GAP = 110, 120, 18  # pixels of the words at the left, of a bar of 1, between columns
EDITS = {"equal": "", "delete": ' style="fill:#b3261e;text-decoration:line-through"', "insert": ' style="fill:#1a7f37"',
         "replace": ' style="fill:#8a5a00"'}  # fmt: skip


def picture(page: Page, locale: Locale, about: Mapping[str, str] | None = None) -> str:
    """The page from top to bottom, as wide as its widest part. What it is `about` (a model, a text) goes into its
    metadata, as JSON."""
    layout = _Layout(locale)
    blocks: list[Block] = [Heading(page.title), *page.blocks]
    figures = [layout.figure(block) for block in blocks]
    across = max([figure.width for figure in figures], default=0) + 2 * MARGIN
    parts, y = [], float(MARGIN)
    for block, before, figure in zip(blocks, [blocks[0], *blocks], figures, strict=False):
        if not isinstance(before, Heading) and type(block) is not type(before):
            y += APART
        parts.append(f'<g transform="translate({MARGIN} {y:.1f})">{figure.body}</g>')
        y += figure.height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across:.0f}" height="{y + MARGIN:.0f}" '
        f'viewBox="0 0 {across:.0f} {y + MARGIN:.0f}" font-family="{escape(MONO)}" color="#1a1a1a" '
        f'xml:lang="{locale}"><title>{escaped(said(page.title, locale))}</title>'
        f"<metadata>{escaped(json.dumps(dict(about or {}), ensure_ascii=False))}</metadata>"
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


class _Layout:
    def __init__(self, locale: Locale):
        self._locale: Locale = locale

    def figure(self, block: Block) -> Figure:
        match block:
            case Heading(text):
                line = said(text, self._locale)
                return Figure(
                    text_width(line, 15),
                    2.0 * LINE,
                    label(0, LINE + 4, line, size=15, more=' font-weight="bold"'),
                )
            case Remark(text):
                lines = wrapped(said(text, self._locale), 116)
                return _lines(lines, more=' opacity="0.7"')
            case Prose(name, text):
                return self._labelled(name, wrapped(said(text, self._locale), 100))
            case Line(name, words, what):
                flowing = self._flowing(name, [(self._text(word), _tint(word)) for word in words])
                return _over(flowing, self._legend(what, words), LABEL)
            case Code(about, lines):
                above = _lines(wrapped(said(about, self._locale), 116), more=' opacity="0.7"')
                return _over(above, _lines(lines.splitlines()))
            case Table():
                return self._table(block)
            case Shaded():
                greatest = block.greatest or reach(np.asarray(block.values, dtype=np.float64), "signed")
                pairs = zip(block.tokens, block.values, strict=True)
                tinted = [(token, css(0.8 * value, greatest)) for token, value in pairs]
                ramp = _ramp("signed", said(reaching(block.unit, greatest), self._locale))
                return _over(self._flowing(block.label, tinted), ramp, LABEL)
            case Edited():
                return self._edited(block)
            case Bars():
                return bar_figure(block, self._locale)
            case Matrix():
                return heat_map(block, self._locale)
            case Atlas():
                return atlas(block, self._locale)
            case Points():
                return plot(block, self._locale)

    def _labelled(self, name: Text, lines: Sequence[str]) -> Figure:
        body = label(0, LINE - 4, said(name, self._locale), more=' font-weight="bold"')
        for place, line in enumerate(lines):
            body += label(LABEL, LINE * (place + 1) - 4, line)
        return Figure(LABEL + max(text_width(line, 12) for line in lines), LINE * len(lines), body)

    def _flowing(self, name: Text, words: Sequence[tuple[str, str]]) -> Figure:
        """Words one after another, each on its own tint, in as many lines as they take."""
        body = label(0, LINE - 4, said(name, self._locale), more=' font-weight="bold"')
        x, line, widest = float(LABEL), 0, 0.0
        for word, colour in words:
            size = text_width(word, 12) + 6
            if x + size > ROOM and x > LABEL:
                x, line = float(LABEL), line + 1
            y = LINE * line
            if colour:
                body += f'<rect x="{x:.1f}" y="{y + 1}" width="{size:.1f}" height="{LINE - 2}" rx="3" fill="{colour}"/>'
            body += label(x + 3, y + LINE - 4, word)
            x += size + 4
            widest = max(widest, x)
        return Figure(widest, LINE * (line + 1), body)

    def _table(self, table: Table) -> Figure:
        titles = [said(column.title, self._locale) for column in table.columns]
        rows = [[cell if isinstance(cell, Bar) else self._text(cell) for cell in row] for row in table.rows]
        sizes = [
            max([text_width(title, 12), *(_size(row[n]) for row in rows)]) for n, title in enumerate(titles)
        ]
        lefts = [sum(sizes[:n]) + GAP * n for n in range(len(sizes))]
        across = sum(sizes) + GAP * len(sizes)
        body = f'<path d="M0 {LINE + 3}h{across:.1f}" stroke="currentColor" stroke-opacity="0.5"/>'
        for n, column in enumerate(table.columns):
            body += _cell(titles[n], lefts[n], sizes[n], LINE - 2, column.align, ' font-weight="bold"')
            for place, row in enumerate(rows):
                if colour := _tint(table.rows[place][n]):
                    top, size = LINE * (place + 1) + 6, sizes[n] + GAP - 4
                    at = f'x="{lefts[n] - 4:.1f}" y="{top}" width="{size:.1f}" height="{LINE}"'
                    body += f'<rect {at} fill="{colour}"/>'
                body += _cell(row[n], lefts[n], sizes[n], LINE * (place + 2) + 2, column.align)
        drawn = Figure(across, LINE * (len(rows) + 1) + 16, body)
        return _over(drawn, self._legend(table.tint, [cell for row in table.rows for cell in row]))

    def _text(self, cell: Text | Tinted) -> str:
        return said(cell.text if isinstance(cell, Tinted) else cell, self._locale)

    def _legend(self, what: Text | None, cells: Sequence[Text | Bar | Tinted]) -> Figure | None:
        scales: list[Scale] = [cell.scale for cell in cells if isinstance(cell, Tinted)]
        return None if what is None or not scales else _ramp(scales[0], said(what, self._locale))

    def _edited(self, block: Edited) -> Figure:
        body, x, line, widest = "", 0.0, 0, 0.0
        for kind, before, after in block.parts:
            old, new = " ".join(before), " ".join(after)
            text = f"[{old} → {new}]" if kind == "replace" else new if kind == "insert" else old
            size = text_width(text, 12)
            if x + size > ROOM and x > 0:
                x, line = 0.0, line + 1
            body += label(x, LINE * (line + 1) - 4, text, more=EDITS[kind])
            x += size + 8
            widest = max(widest, x)
        return Figure(widest, LINE * (line + 1), body)


def _ramp(scale: Scale, what: str) -> Figure:
    """The colours in order, from 0 to 1 or from -1 to 1, and what they stand for."""
    lowest = -1.0 if scale == "signed" else 0.0
    body = "".join(
        f'<rect x="{8 * n}" y="2" width="8" height="10" fill="{tint(value, scale)}"/>'
        for n, value in enumerate(np.linspace(lowest, 1.0, 9).tolist())
    )
    return Figure(84 + text_width(what, 11), LINE, body + label(80, 11, what, size=11, more=' opacity="0.7"'))


def _tint(cell: Text | Bar | Tinted) -> str:
    return tint(cell.value, cell.scale) if isinstance(cell, Tinted) else ""


def _over(above: Figure, below: Figure | None, indent: float = 0.0) -> Figure:
    """One figure under another."""
    if below is None:
        return above
    moved = f'<g transform="translate({indent:.0f} {above.height:.0f})">{below.body}</g>'
    width = max(above.width, indent + below.width)
    return Figure(width, above.height + below.height + 4, above.body + moved)


def _lines(lines: Sequence[str], more: str = "") -> Figure:
    body = "".join(label(0, LINE * (place + 1) - 4, line, more=more) for place, line in enumerate(lines))
    return Figure(max(7.2 * width(line) for line in lines), LINE * len(lines) + 4, body)


def _size(cell: str | Bar) -> float:
    return BAR if isinstance(cell, Bar) else text_width(cell, 12)


def _cell(cell: str | Bar, left: float, across: float, y: float, align: str, more: str = "") -> str:
    if isinstance(cell, Bar):
        size = BAR * max(0.0, min(1.0, cell.value))
        return f'<rect x="{left:.1f}" y="{y - 9:.1f}" width="{size:.1f}" height="9" fill="{opaque(WEIGHT)}"/>'
    if align == "right":
        return label(left + across, y, cell, anchor="end", more=more)
    return label(left, y, cell, more=more)
