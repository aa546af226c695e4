"""A page as HTML: one piece that needs no other file, no network, and no script to be read.

`page.html.jinja` lays out; here stands what it asks for: texts, colours, figures, and the sections of a page.
"""

import base64
import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from cutaway.page import blocks
from cutaway.page.blocks import Block, Page
from cutaway.page.colours import css, ramp, tint
from cutaway.page.elements import ROOM, Figure
from cutaway.page.figures import column_sizes, drawn, known, scale_of, strength, svg
from cutaway.page.heatmap import ENLARGED, atlas, heat_map, laid, map_told, square_root, strongest_of
from cutaway.page.numbers import bars_told, nats, reaching, three_places
from cutaway.page.wrapping import legible, shown
from cutaway.words import Locale, Phrase, Text, say

_ONE_SPACE = re.compile("(?<! ) (?! )")
NUMBERS = 24  # rows and columns up to which a heat map's numbers are written out below it
BROAD = 580  # pixels that half a page has
LEAST = 400  # pixels that text takes at least beside what is broad


def document(page: Page, locale: Locale) -> str:
    """A whole HTML document. What the page's caption knows stands in its head too, as JSON."""
    return _template().render(_Asked(page, locale).context(), whole=True)


def fragment(page: Page, locale: Locale) -> str:
    """A part of a document, as a notebook shows it."""
    return _template().render(_Asked(page, locale).context(), whole=False)


@cache
def _template() -> Template:
    rules = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return rules.get_template("page.html.jinja")


@dataclass
class Part:
    """Blocks that stand together; `across` are the pixels of the widest figure or table among them."""

    blocks: list[Block] = field(default_factory=list[Block])
    across: float = 0.0

    def takes(self, block: Block, across: float) -> bool:
        """Whether a block may stand here: no heading, and as broad or narrow as what is here already."""
        if isinstance(block, blocks.Heading):
            return False
        begun = any(not isinstance(each, blocks.Heading | blocks.Remark) for each in self.blocks)
        return not begun or isinstance(block, blocks.Remark) or (across > BROAD) == (self.across > BROAD)


@dataclass
class Row:
    """What is broad, if anything, and parts in columns: beside it where there is room, else below it."""

    broad: Part | None
    columns: list[Part] = field(default_factory=list[Part])

    def takes(self, part: Part) -> bool:
        return self.broad is None or self.broad.across + max(part.across, LEAST) <= ROOM


@dataclass(frozen=True)
class _Asked:
    """What the template asks about one page."""

    page: Page
    locale: Locale

    def context(self) -> dict[str, object]:
        caption = self.page.caption
        names = {
            "model": say("model"), "text": say("text"), "output": say("output"), "date": say("date"),
            "command": say("command"),
        }  # fmt: skip
        found = known(caption)
        return {
            "page": self.page, "locale": self.locale, "rows": self.rows(), "known": found,
            "caption": [(self.shown(name), found[key]) for key, name in names.items() if key in found],
            "python": None if caption is None or caption.python is None else legible(caption.python),
            "script": any(isinstance(block, blocks.Matrix | blocks.Atlas) for block in self.page.blocks),
            "kind": lambda block: type(block).__name__, "shown": self.shown, "spelled": legible, "text": self.text,
            "numbers_title": self.shown(say("Numbers")),
            "python_title": self.shown(say("The same numbers in Python")),
            "nats": nats, "three_places": three_places,
            "tint": tint, "ramp": ramp, "shade": lambda block, value: css(0.8 * value, strength(block)),
            "scale_of": scale_of, "scaled": self.scaled,
            "reaching": lambda block: reaching(block.unit, strength(block)),
            "svg": self.svg, "enlarged": self.enlarged, "facts": self.facts, "has_numbers": has_numbers,
        }  # fmt: skip

    def shown(self, text: Text) -> str:
        return shown(text, self.locale)

    def text(self, cell: Text | blocks.Tinted) -> str:
        """The text of a cell or word. What two spaces set apart stays together: a line breaks between, not inside."""
        text = self.shown(cell.text if isinstance(cell, blocks.Tinted) else cell)
        return _ONE_SPACE.sub("\u00a0", text) if "  " in text else text

    def scaled(self, what: Text, scale: blocks.Scale) -> str:
        """What the colours of texts stand for."""
        return self.shown(square_root(what) if scale == "weight" else what)

    def rows(self) -> list[Row]:
        """The page from top to bottom."""
        rows: list[Row] = []
        for part in self._parts():
            if part.across > BROAD:
                rows.append(Row(part))
                continue
            if not rows or not rows[-1].takes(part):
                rows.append(Row(None))
            rows[-1].columns.append(part)
        return rows

    def _parts(self) -> list[Part]:
        parts: list[Part] = []
        for block in self.page.blocks:
            across = self._across(block)
            if not parts or not parts[-1].takes(block, across):
                parts.append(Part())
            parts[-1].blocks.append(block)
            parts[-1].across = max(parts[-1].across, across)
        return parts

    def _across(self, block: Block) -> float:
        """The pixels that a figure or table takes; 0 for text."""
        match block:
            case blocks.Table():
                return sum(size + 14 for size in column_sizes(block, self.locale, 14))
            case blocks.Atlas(maps=[_, *_]):
                return atlas(block, self.locale).width + self.large(block).width
            case blocks.Matrix() | blocks.Points() | blocks.Bars() | blocks.Diagram():
                return (drawn(block, self.locale) or Figure(0, 0, ())).width
            case _:
                return 0.0

    def svg(self, block: blocks.Matrix | blocks.Atlas | blocks.Points | blocks.Bars | blocks.Diagram) -> str:
        """A figure, with what it shows for who does not see it."""
        figure = drawn(block, self.locale) or Figure(0, 0, ())
        match block:
            case blocks.Matrix():
                return self._element(figure, map_told(block), class_="map")
            case blocks.Atlas():
                for group in (part for part in figure.parts if "data-place" in part.attrib):
                    self._button(group, block)
                return self._element(figure, map_told(block.maps[block.opened]), role="group")
            case blocks.Points():
                axes = say("{across} across, {down} up", across=block.across, down=block.down)
                return self._element(figure, axes, role="group")
            case blocks.Bars():
                return self._element(figure, bars_told(block))
            case blocks.Diagram():
                told = say("the layers of the model, from what enters at the bottom to its output")
                return self._element(figure, told)

    def _button(self, group: Element, block: blocks.Atlas) -> None:
        """Make a small map a button that opens it."""
        place = int(group.attrib["data-place"])
        name, opened = self.shown(block.names[place]), place == block.opened
        group.attrib.update({
            "data-name": name, "data-values": packed(block.maps[place]), "role": "button", "aria-label": name,
            "tabindex": "0" if opened else "-1", "aria-pressed": "true" if opened else "false",
        })  # fmt: skip

    def enlarged(self, block: blocks.Atlas) -> str:
        """The opened map of an atlas, large; the scale of the small ones is its own."""
        return self._element(self.large(block), map_told(block.maps[block.opened]), class_="map")

    def large(self, block: blocks.Atlas) -> Figure:
        opened = block.maps[block.opened]
        return heat_map(opened, self.locale, strongest_of(block), room=ENLARGED, with_scale=False)

    def _element(self, figure: Figure, what: Phrase, role: str = "img", **attributes: str) -> str:
        return svg(figure, role=role, aria_label=self.shown(what), **attributes)

    def facts(self, matrix: blocks.Matrix, block: blocks.Atlas | None = None) -> dict[str, str]:
        """What the script reads the values under the pointer by, as attributes of the figure."""
        at = laid(matrix, self.locale) if block is None else laid(matrix, self.locale, ENLARGED)
        rows, columns = ([self.shown(name) for name in names] for names in (matrix.rows, matrix.columns))
        chosen = {} if block is None else {
            "data-name": self.shown(block.names[block.opened]),
            "data-per-row": str(block.per_row),
            "data-hint": self.shown(say("point at a cell for its value; choose another map to see it large")),
        }  # fmt: skip
        return {
            "data-values": packed(matrix), "data-scale": matrix.scale,
            "data-rows": json.dumps(rows, ensure_ascii=False), "data-columns": json.dumps(columns, ensure_ascii=False),
            "data-left": f"{at.left:.2f}", "data-top": f"{at.top:.2f}", "data-cell": f"{at.cell:.4f}",
            "data-down": self.shown(matrix.down), "data-across": self.shown(matrix.across), **chosen,
        }  # fmt: skip


def has_numbers(matrix: blocks.Matrix) -> bool:
    return max(len(matrix.rows), len(matrix.columns)) <= NUMBERS


def packed(matrix: blocks.Matrix) -> str:
    """The values in 16 bits, which is what three digits need."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.asarray(matrix.values).astype("<f2").tobytes()).decode("ascii")
