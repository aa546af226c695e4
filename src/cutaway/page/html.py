"""A page as HTML: one piece that needs no other file, no network, and no script to be read."""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

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
from cutaway.page.colours import css, reach, tint
from cutaway.page.figures import MONO, Figure, atlas, greatest_of, heat_map, laid
from cutaway.page.locale import Both, Locale, Text, said
from cutaway.page.numbers import nats
from cutaway.page.scatter import plot

NUMBERS = 24  # rows and columns up to which a heat map's numbers are written out below it


def document(page: Page, locale: Locale) -> str:
    """A whole HTML document."""
    title = escape(said(page.title, locale))
    return (
        f'<!doctype html>\n<html lang="{locale}"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>:root{color-scheme:light dark}body{margin:1.5em}</style></head>"
        f"<body>{fragment(page, locale)}</body></html>\n"
    )


def fragment(page: Page, locale: Locale) -> str:
    """A part of a document, as a notebook shows it."""
    body = "".join(_Html(locale).blocks(page))
    id = f"cutaway-{hashlib.blake2b(body.encode(), digest_size=6).hexdigest()}"
    script = ""
    if "data-values" in body:
        script = f"<script>(() => {{ const id = {json.dumps(id)};\n{_file('readout.js')}}})();</script>"
    return f'<div class="cutaway" lang="{locale}" id="{id}"><style>{_file("style.css")}</style>{body}</div>{script}'


class _Html:
    def __init__(self, locale: Locale):
        self._locale: Locale = locale

    def blocks(self, page: Page) -> Iterator[str]:
        yield f"<h2>{self._said(page.title)}</h2>"
        for block in page.blocks:
            yield self._block(block)

    def _block(self, block: Block) -> str:
        match block:
            case Heading(text):
                return f"<h3>{self._said(text)}</h3>"
            case Remark(text):
                return f'<p class="remark">{self._said(text)}</p>'
            case Prose(label, text):
                return f'<p class="line"><b>{self._said(label)}</b><span>{self._said(text)}</span></p>'
            case Line(label, words, what):
                shown = " ".join(self._word(word) for word in words)
                legend = self._legend(what, words)
                return f'<p class="line words"><b>{self._said(label)}</b><span>{shown}{legend}</span></p>'
            case Code(about, lines):
                return (
                    f'<p class="remark about">{self._said(about)}</p><pre><code>{escape(lines)}</code></pre>'
                )
            case Table():
                return self._table(block)
            case Shaded():
                return self._shaded(block)
            case Edited(parts):
                return f"<p>{' '.join(self._edit(*part) for part in parts)}</p>"
            case Bars():
                return f"<figure>{_svg(bar_figure(block, self._locale))}</figure>"
            case Matrix():
                figure = heat_map(block, self._locale)
                return self._figure(block, "", _svg(figure, "map"), self._numbers(block))
            case Atlas():
                return self._atlas(block)
            case Points():
                return f"<figure>{_svg(plot(block, self._locale))}</figure>"

    def _said(self, text: Text) -> str:
        return escape(said(text, self._locale))

    def _table(self, table: Table) -> str:
        heads = [f"<th{_right(column.align)}>{self._said(column.title)}</th>" for column in table.columns]
        rows = [
            "".join(
                f"<td{_right(column.align)}{self._tint(cell)}>{self._cell(cell)}</td>"
                for column, cell in zip(table.columns, row, strict=True)
            )
            for row in table.rows
        ]
        legend = self._legend(table.tint, [cell for row in table.rows for cell in row])
        whole = f"<table><tr>{''.join(heads)}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
        return f'<div class="wide">{whole}</div>{legend}'

    def _word(self, word: Text | Tinted) -> str:
        return f'<bdi class="token"{self._tint(word)}>{self._text(word).rstrip()}</bdi>'

    def _text(self, cell: Text | Tinted) -> str:
        return self._said(cell.text if isinstance(cell, Tinted) else cell)

    def _tint(self, cell: Text | Bar | Tinted) -> str:
        """The colour of a cell or word, as attributes."""
        if not isinstance(cell, Tinted):
            return ""
        hint = f' title="{self._said(cell.hint)}"' if cell.hint else ""
        return f' style="background:{tint(cell.value, cell.scale)}"{hint}'

    def _legend(self, what: Text | None, cells: Sequence[Text | Bar | Tinted]) -> str:
        """The colours in order, from 0 to 1 or from -1 to 1, and what they stand for."""
        scales: list[Scale] = [cell.scale for cell in cells if isinstance(cell, Tinted)]
        if what is None or not scales:
            return ""
        lowest = -1.0 if scales[0] == "signed" else 0.0
        steps = ",".join(tint(value, scales[0]) for value in np.linspace(lowest, 1.0, 9).tolist())
        ramp = f'<i style="background:linear-gradient(90deg,{steps})"></i>'
        return f'<small class="tint">{ramp} {self._said(what)}</small>'

    def _cell(self, cell: Text | Bar | Tinted) -> str:
        if isinstance(cell, Bar):
            return f'<span class="bar" style="width:{10 * max(0.0, min(1.0, cell.value)):.2f}em"></span>'
        return f"<bdi>{self._text(cell)}</bdi>"

    def _shaded(self, block: Shaded) -> str:
        greatest = reach(np.asarray(block.values, dtype=np.float64), "signed")
        tokens = "".join(
            f'<bdi class="token" style="background:{css(0.8 * value, greatest)}" title="{nats(value)}">'
            f"{escape(token)}</bdi>"
            for token, value in zip(block.tokens, block.values, strict=True)
        )
        unit = f'<small style="opacity:.7">{self._said(block.unit)}, ±{greatest:.3g}</small>'
        return f'<p class="line words"><b>{self._said(block.label)}</b><span>{tokens} {unit}</span></p>'

    def _edit(self, kind: str, before: Sequence[str], after: Sequence[str]) -> str:
        old, new = escape(" ".join(before)), escape(" ".join(after))
        match kind:
            case "delete":
                return f'<del class="delete"><bdi>{old}</bdi></del>'
            case "insert":
                return f'<ins class="insert"><bdi>{new}</bdi></ins>'
            case "replace":
                return f'<span class="replace">[<bdi>{old}</bdi> → <bdi>{new}</bdi>]</span>'
        return f"<bdi>{old}</bdi>"

    def _atlas(self, block: Atlas) -> str:
        """The small maps, and under them one of them large."""
        if not block.maps:
            return ""
        first = block.maps[0]
        small = _svg(atlas(block, self._locale))
        names = [said(name, self._locale) for name in block.names]
        for place, (name, each) in enumerate(zip(names, block.maps, strict=True)):
            small = small.replace(
                f'<g data-place="{place}">',
                f'<g data-place="{place}" data-name="{escape(name)}" data-values="{_packed(each)}" role="button" '
                f'tabindex="0" aria-label="{escape(name)}">',
            )
        large = small + _svg(heat_map(first, self._locale, greatest_of(block)), "map")
        return self._figure(first, names[0], large, "")

    def _figure(self, matrix: Matrix, name: str, drawn: str, below: str) -> str:
        at = laid(matrix)
        facts = {
            "values": _packed(matrix),
            "rows": json.dumps(list(matrix.rows), ensure_ascii=False),
            "columns": json.dumps(list(matrix.columns), ensure_ascii=False),
            "left": f"{at.left:.2f}",
            "top": f"{at.top:.2f}",
            "cell": f"{at.cell:.4f}",
            "down": said(matrix.down, self._locale),
            "across": said(matrix.across, self._locale),
            "name": name,
        }
        data = " ".join(f'data-{key}="{escape(value)}"' for key, value in facts.items())
        return f"<figure {data}>{drawn}<figcaption>{escape(name)}</figcaption>{below}</figure>"

    def _numbers(self, matrix: Matrix) -> str:
        """The values as a table that is folded away, where they are few."""
        if max(len(matrix.rows), len(matrix.columns)) > NUMBERS:
            return ""
        heads = "".join(f'<th class="right"><bdi>{escape(column)}</bdi></th>' for column in matrix.columns)
        rows = "".join(
            f"<tr><th><bdi>{escape(name)}</bdi></th>{_numbers(row)}</tr>"
            for name, row in zip(matrix.rows, np.asarray(matrix.values).tolist(), strict=True)
        )
        summary = said(Both("Numbers", "数值"), self._locale)
        return (
            f"<details><summary>{summary}</summary><table><tr><th></th>{heads}</tr>{rows}</table></details>"
        )


def _svg(figure: Figure, name: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    return (
        f'<svg{kind} xmlns="http://www.w3.org/2000/svg" width="{figure.width:.0f}" height="{figure.height:.0f}" '
        f'viewBox="0 0 {figure.width:.0f} {figure.height:.0f}" font-family="{escape(MONO)}">{figure.body}</svg>'
    )


def _packed(matrix: Matrix) -> str:
    """The values in 16 bits, which is what three digits need."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.asarray(matrix.values).astype("<f2").tobytes()).decode("ascii")


def _numbers(values: Sequence[float]) -> str:
    return "".join(
        f'<td class="right">{"−∞" if value == -np.inf else f"{value:.3f}"}</td>' for value in values
    )


def _right(align: str) -> str:
    return ' class="right"' if align == "right" else ""


def _file(name: str) -> str:
    return files("cutaway.page").joinpath(name).read_text(encoding="utf-8")
