"""A page as HTML: one piece that needs no other file, no network, and no script to be read.

`page.html.jinja` lays out; here stands what it asks for: texts, colours, figures, and the sections of a page.
"""

import base64
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from cutaway.page.blocks import (
    Atlas,
    Bars,
    Block,
    Diagram,
    Heading,
    Matrix,
    Page,
    Points,
    Scale,
    Table,
    Tinted,
)  # fmt: skip
from cutaway.page.colours import css, ramp, tint
from cutaway.page.figures import drawn, known, scale_of, strength, svg
from cutaway.page.heatmap import ENLARGED, Figure, heat_map, laid, map_told, square_root, strongest_of
from cutaway.page.numbers import bars_told, nats, reaching, three_places
from cutaway.page.wrapping import legible, shown
from cutaway.words import Locale, Phrase, Text, say

_ONE_SPACE = re.compile("(?<! ) (?! )")
NUMBERS = 24  # rows and columns up to which a heat map's numbers are written out below it
BROAD = 580  # pixels of a figure, from which it takes the whole width of a page
MANY = 7  # columns from which a table takes it


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


@dataclass(frozen=True)
class Section:
    """Blocks under one heading; `broad` where they need the whole width."""

    blocks: tuple[Block, ...]
    broad: bool


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
            "page": self.page, "locale": self.locale, "sections": self.sections(), "known": found,
            "caption": [(self.shown(name), found[key]) for key, name in names.items() if key in found],
            "python": None if caption is None or caption.python is None else legible(caption.python),
            "script": any(isinstance(block, Matrix | Atlas) for block in self.page.blocks),
            "kind": lambda block: type(block).__name__, "shown": self.shown, "spelled": legible, "text": self.text,
            "titles": {
                "numbers": self.shown(say("Numbers")), "python": self.shown(say("The same numbers in Python"))
            },
            "nats": nats, "three_places": three_places,
            "tint": tint, "ramp": ramp, "shade": lambda block, value: css(0.8 * value, strength(block)),
            "scale_of": scale_of, "scaled": self.scaled,
            "reaching": lambda block: reaching(block.unit, strength(block)),
            "svg": self.svg, "enlarged": self.enlarged, "facts": self.facts, "has_numbers": has_numbers,
        }  # fmt: skip

    def shown(self, text: Text) -> str:
        return shown(text, self.locale)

    def text(self, cell: Text | Tinted) -> str:
        """The text of a cell or word. What two spaces set apart stays together: a line breaks between, not inside."""
        text = self.shown(cell.text if isinstance(cell, Tinted) else cell)
        return _ONE_SPACE.sub("\u00a0", text) if "  " in text else text

    def scaled(self, what: Text, scale: Scale) -> str:
        """What the colours of texts stand for."""
        return self.shown(square_root(what) if scale == "weight" else what)

    def sections(self) -> list[Section]:
        """The blocks under each heading; those above the first one are a section too."""
        parts: list[list[Block]] = [[]]
        for block in self.page.blocks:
            if isinstance(block, Heading) and parts[-1]:
                parts.append([])
            parts[-1].append(block)
        return [Section(tuple(part), any(map(self._broad, part))) for part in parts if part]

    def _broad(self, block: Block) -> bool:
        if isinstance(block, Table):
            return len(block.columns) >= MANY
        figure = (
            drawn(block, self.locale) if isinstance(block, Matrix | Atlas | Points | Bars | Diagram) else None
        )
        if figure is None:
            return False
        if isinstance(block, Atlas) and block.maps:
            figure = Figure(figure.width + self.large(block).width, 0, ())
        return figure.width > BROAD

    def svg(self, block: Matrix | Atlas | Points | Bars | Diagram) -> str:
        """A figure, with what it shows for who does not see it."""
        figure = drawn(block, self.locale) or Figure(0, 0, ())
        match block:
            case Matrix():
                return self._element(figure, map_told(block), class_="map")
            case Atlas():
                for group in (part for part in figure.parts if "data-place" in part.attrib):
                    self._button(group, block)
                return self._element(figure, map_told(block.maps[block.opened]), role="group")
            case Points():
                axes = say("{across} across, {down} up", across=block.across, down=block.down)
                return self._element(figure, axes, role="group")
            case Bars():
                return self._element(figure, bars_told(block))
            case Diagram():
                return self._element(
                    figure, say("the layers of the model, from what enters at the bottom to its output")
                )

    def _button(self, group: Element, block: Atlas) -> None:
        """Make a small map a button that opens it."""
        place = int(group.attrib["data-place"])
        name, opened = self.shown(block.names[place]), place == block.opened
        told = {
            "data-name": name,
            "data-values": packed(block.maps[place]),
            "role": "button",
            "aria-label": name,
        }
        pressed = {"tabindex": "0" if opened else "-1", "aria-pressed": "true" if opened else "false"}
        group.attrib.update(told | pressed)

    def enlarged(self, block: Atlas) -> str:
        """The opened map of an atlas, large; the scale of the small ones is its own."""
        return self._element(self.large(block), map_told(block.maps[block.opened]), class_="map")

    def large(self, block: Atlas) -> Figure:
        opened = block.maps[block.opened]
        return heat_map(opened, self.locale, strongest_of(block), room=ENLARGED, with_scale=False)

    def _element(self, figure: Figure, what: Phrase, role: str = "img", **attributes: str) -> str:
        return svg(figure, role=role, aria_label=self.shown(what), **attributes)

    def facts(self, matrix: Matrix, block: Atlas | None = None) -> dict[str, str]:
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


def has_numbers(matrix: Matrix) -> bool:
    return max(len(matrix.rows), len(matrix.columns)) <= NUMBERS


def packed(matrix: Matrix) -> str:
    """The values in 16 bits, which is what three digits need."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.asarray(matrix.values).astype("<f2").tobytes()).decode("ascii")
