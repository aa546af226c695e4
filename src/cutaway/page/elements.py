"""Figures of SVG elements.

Elements are built by `xml.etree`, which escapes what stands in them. Colours of text and lines are the surroundings'
own (currentColor), so that a figure stands on light and on dark paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from cutaway.text.display import width

ROOM = 1150  # pixels that a figure may be wide
LINE = 16  # pixels of a line of text
SMALL = 11  # pixels of what is written on scales and in cells


@dataclass(frozen=True)
class Figure:
    """SVG elements and the size that they take, in pixels."""

    width: float
    height: float
    parts: Sequence[Element]


def element(tag: str, content: str | Sequence[Element] = (), /, **attributes: str | float) -> Element:
    """An SVG element with a text or with others in it; `font_size=12` is its attribute font-size,
    `class_="a"` its class."""
    made = Element(
        tag, {name.rstrip("_").replace("_", "-"): _attribute(value) for name, value in attributes.items()}
    )
    if isinstance(content, str):
        made.text = content
    else:
        made.extend(content)
    return made


def _attribute(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def text_width(text: str, size: float) -> float:
    """Pixels that a text takes: wide characters an em, others 0.6 of it, as monospaced fonts have them."""
    wide = max(0, width(text) - len(text))
    return size * (wide + 0.6 * (len(text) - wide))


def label(
    x: float, y: float, text: str, *, size: float = 12, anchor: str = "start", **more: str | float
) -> Element:
    """A line of text at (x, y), its baseline; its spaces are kept."""
    if "  " in text or text != text.strip():
        more["xml:space"] = "preserve"
    return element("text", text, x=x, y=y, font_size=size, text_anchor=anchor, **more)


def moved(figure: Figure, x: float, y: float) -> Element:
    """A figure at another place."""
    return element("g", figure.parts, transform=f"translate({x:.1f} {y:.1f})")
