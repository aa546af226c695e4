"""A page as HTML: one piece that needs no other file, no network, and no script to be read."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

import numpy as np

from cutaway.page.bars import bar_figure, bars_told
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
from cutaway.page.figures import MONO, Figure, atlas, greatest_of, heat_map, laid, told
from cutaway.page.numbers import nats, reaching, three_places
from cutaway.page.scatter import plot
from cutaway.words import Locale, Text, said, say

_CHOOSE = say("point at a cell for its value; choose another map above")
NUMBERS = 24  # rows and columns up to which a heat map's numbers are written out below it


def document(page: Page, locale: Locale, about: Mapping[str, str] | None = None) -> str:
    """A whole HTML document. What it is `about` (a model, a text) stands in its head, as JSON."""
    told = escape(json.dumps(dict(about or {}), ensure_ascii=False))
    title = escape(said(page.title, locale))
    return (
        f'<!doctype html>\n<html lang="{locale}"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="cutaway" content="{told}">'
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
                drawn = _svg(bar_figure(block, self._locale), bars_told(block, self._locale))
                return f"<figure>{drawn}</figure>"
            case Matrix():
                drawn = _svg(heat_map(block, self._locale), told(block, self._locale), "map")
                return self._figure(block, f"{drawn}<figcaption></figcaption>{self._numbers(block)}")
            case Atlas():
                return self._atlas(block)
            case Points():
                axes = f"{said(block.across, self._locale)} × {said(block.down, self._locale)}"
                return f"<figure>{_svg(plot(block, self._locale), axes, role='group')}</figure>"

    def _said(self, text: Text) -> str:
        return escape(said(text, self._locale))

    def _table(self, table: Table) -> str:
        heads = [
            f'<th scope="col"{_right(column.align)}>{self._said(column.title)}</th>'
            for column in table.columns
        ]
        rows = [
            "".join(
                f"<td{_right(column.align)}{self._tint(cell)}>{self._cell(cell)}</td>"
                for column, cell in zip(table.columns, row, strict=True)
            )
            for row in table.rows
        ]
        legend = self._legend(table.tint, [cell for row in table.rows for cell in row])
        return f'<div class="wide">{_table("".join(heads), rows)}</div>{legend}'

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
        scales: list[Scale] = [cell.scale for cell in cells if isinstance(cell, Tinted)]
        return "" if what is None or not scales else _ramp(scales[0], self._said(what))

    def _cell(self, cell: Text | Bar | Tinted) -> str:
        if isinstance(cell, Bar):
            return f'<span class="bar" style="width:{10 * max(0.0, min(1.0, cell.value)):.2f}em"></span>'
        return f"<bdi>{self._text(cell)}</bdi>"

    def _shaded(self, block: Shaded) -> str:
        greatest = block.greatest or reach(np.asarray(block.values, dtype=np.float64), "signed")
        tokens = "".join(
            f'<bdi class="token" style="background:{css(0.8 * value, greatest)}" title="{nats(value)}">'
            f"{escape(token)}</bdi>"
            for token, value in zip(block.tokens, block.values, strict=True)
        )
        legend = _ramp("signed", self._said(reaching(block.unit, greatest)))
        return f'<p class="line words"><b>{self._said(block.label)}</b><span>{tokens}{legend}</span></p>'

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
        opened = block.maps[block.opened]
        what = told(opened, self._locale)
        small = _svg(atlas(block, self._locale), what, role="group")
        names = [said(name, self._locale) for name in block.names]
        for place, (name, each) in enumerate(zip(names, block.maps, strict=True)):
            small = small.replace(
                f'<g data-place="{place}">',
                f'<g data-place="{place}" data-name="{escape(name)}" data-values="{_packed(each)}" role="button" '
                f'tabindex="{0 if place == block.opened else -1}" '
                f'aria-pressed="{"true" if place == block.opened else "false"}" '
                f'aria-label="{escape(name)}">',
            )
        large = _svg(heat_map(opened, self._locale, greatest_of(block), with_scale=False), what, "map")
        caption = f"<figcaption>{escape(names[block.opened])}</figcaption>"
        return self._figure(opened, f"{small}{caption}{large}", names[block.opened], block.per_row)

    def _figure(self, matrix: Matrix, inside: str, name: str = "", per_row: int = 1) -> str:
        at = laid(matrix, self._locale)
        rows, columns = (
            [said(text, self._locale) for text in texts] for texts in (matrix.rows, matrix.columns)
        )
        facts = {
            "values": _packed(matrix),
            "rows": json.dumps(rows, ensure_ascii=False),
            "columns": json.dumps(columns, ensure_ascii=False),
            "left": f"{at.left:.2f}",
            "top": f"{at.top:.2f}",
            "cell": f"{at.cell:.4f}",
            "down": said(matrix.down, self._locale),
            "across": said(matrix.across, self._locale),
            "name": name,
            "per-row": str(per_row),
            "hint": said(_CHOOSE, self._locale) if name else "",
        }
        data = " ".join(f'data-{key}="{escape(value)}"' for key, value in facts.items())
        return f"<figure {data}>{inside}</figure>"

    def _numbers(self, matrix: Matrix) -> str:
        """The values as a table that is folded away, where they are few."""
        if max(len(matrix.rows), len(matrix.columns)) > NUMBERS:
            return ""
        heads = "".join(
            f'<th scope="col" class="right"><bdi>{self._said(column)}</bdi></th>' for column in matrix.columns
        )
        rows = [
            f'<th scope="row"><bdi>{self._said(name)}</bdi></th>{_numbers(row)}'
            for name, row in zip(matrix.rows, np.asarray(matrix.values).tolist(), strict=True)
        ]
        summary, whole = said(say("Numbers"), self._locale), _table(f"<th></th>{heads}", rows)
        return f'<details><summary>{summary}</summary><div class="wide">{whole}</div></details>'


def _table(heads: str, rows: Sequence[str]) -> str:
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _ramp(scale: Scale, what: str) -> str:
    """The colours in order, from 0 to 1 or from -1 to 1, and what they stand for."""
    lowest = -1.0 if scale == "signed" else 0.0
    steps = ",".join(tint(value, scale) for value in np.linspace(lowest, 1.0, 9).tolist())
    ramp = f'<i style="background:linear-gradient(90deg,{steps})"></i>'
    return f'<small class="tint">{ramp} {what}</small>'


def _svg(figure: Figure, shown: str, name: str = "", *, role: str = "img") -> str:
    """`shown`: what it shows, for who does not see it."""
    kind = f' class="{name}"' if name else ""
    return (
        f'<svg{kind} role="{role}" aria-label="{escape(shown)}" '
        f'xmlns="http://www.w3.org/2000/svg" width="{figure.width:.0f}" height="{figure.height:.0f}" '
        f'viewBox="0 0 {figure.width:.0f} {figure.height:.0f}" font-family="{escape(MONO)}">{figure.body}</svg>'
    )


def _packed(matrix: Matrix) -> str:
    """The values in 16 bits, which is what three digits need."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.asarray(matrix.values).astype("<f2").tobytes()).decode("ascii")


def _numbers(values: Sequence[float]) -> str:
    return "".join(f'<td class="right">{three_places(value)}</td>' for value in values)


def _right(align: str) -> str:
    return ' class="right"' if align == "right" else ""


def _file(name: str) -> str:
    return files("cutaway.page").joinpath(name).read_text(encoding="utf-8")
