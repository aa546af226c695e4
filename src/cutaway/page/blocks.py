"""What a page is made of. A block holds what is shown and no word about how."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cutaway.words import Text

Scale = Literal["weight", "signed"]
Edit = Literal["equal", "delete", "insert", "replace"]


@dataclass(frozen=True)
class Heading:
    """The title of what follows."""

    text: Text


@dataclass(frozen=True)
class Remark:
    """What the figures are, and what they are not."""

    text: Text


@dataclass(frozen=True)
class Tinted:
    """A text on a colour for `value`, from 0 to 1 or, of scale "signed", from -1 to 1; HTML tells `hint` under the
    pointer. A terminal shows the text alone."""

    text: Text
    value: float
    scale: Scale = "weight"
    hint: Text = ""


@dataclass(frozen=True)
class Line:
    """A label, and at its right words that stay whole: tokens, numbers. `tint` says what their colours stand for."""

    label: Text
    words: Sequence[Text | Tinted]
    tint: Text | None = None


@dataclass(frozen=True)
class Prose:
    """A label, and a text at its right, its own line ends kept."""

    label: Text
    text: Text


@dataclass(frozen=True)
class Bar:
    """A number from 0 to 1 as a length."""

    value: float


@dataclass(frozen=True)
class Bars:
    """Values from 0 as upright bars side by side, numbered from 0. `across` says what a bar stands for, `unit` what its
    height is. Where there is no room for all, a bar is the mean of neighbours."""

    values: Sequence[float]
    across: Text
    unit: Text


@dataclass(frozen=True)
class Column:
    title: Text
    align: Literal["left", "right"] = "left"


@dataclass(frozen=True)
class Table:
    """Rows of cells, one a column; `tint` says what their colours stand for. A terminal breaks the last column's texts
    only; with `keep` it breaks a table that is too wide into blocks of columns, each after the first `keep` ones."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Text | Bar | Tinted]]
    tint: Text | None = None
    keep: int = 0


@dataclass(frozen=True)
class Matrix:
    """A heat map of `values` (rows, columns): scale "weight" from 0 to 1 (or `greatest`), "signed" around 0 with the
    same reach on both sides. -inf is what a mask hides. `down` and `across` say what a row and a column stand for,
    `unit` what a value is.

    In a terminal weights are shaded cells and signed values are written out; with `drawn` only HTML and SVG show it.
    `greatest` is the value of the strongest colour, where it is not the one that the values alone make.
    """

    values: np.ndarray
    rows: Sequence[Text]
    columns: Sequence[Text]
    down: Text
    across: Text
    unit: Text
    scale: Scale = "weight"
    drawn: bool = False
    greatest: float | None = None


@dataclass(frozen=True)
class Atlas:
    """Small heat maps of one kind side by side, `per_row` in a row, each with its name: the heads of all layers, say. A
    terminal has no room for it and leaves it out. HTML shows one of them large too: number `opened` at first."""

    names: Sequence[Text]
    maps: Sequence[Matrix]
    per_row: int
    opened: int = 0


@dataclass(frozen=True)
class Point:
    """A label at (x, y); `group` from 0 tells apart what belongs together, by colour and by shape."""

    x: float
    y: float
    label: Text
    group: int = 0


@dataclass(frozen=True)
class Points:
    """Points in a plane, one unit of the same length on both axes, `paths` as lines through points by their numbers,
    with a head at their end where they are `arrows`. `groups` names the groups."""

    points: Sequence[Point]
    across: Text
    down: Text
    paths: Sequence[Sequence[int]] = ()
    groups: Sequence[Text] = ()
    arrows: bool = False


@dataclass(frozen=True)
class Shaded:
    """A text's tokens, each with a signed value that tints it, the most where it is as large as `greatest` (None: as
    the largest). With `drawn` only HTML and SVG show it."""

    label: Text
    tokens: Sequence[str]
    values: Sequence[float]
    unit: Text
    drawn: bool = False
    greatest: float | None = None


@dataclass(frozen=True)
class Edited:
    """Two texts in one line: what stayed, went and came, piece by piece."""

    parts: Sequence[tuple[Edit, Sequence[str], Sequence[str]]]


@dataclass(frozen=True)
class Box:
    """Lines of text in a frame, the top one first; `kind` says what it is, by which it is coloured."""

    lines: Sequence[Text]
    kind: Literal["attention", "feed-forward", "norm", "embedding", "head"]


@dataclass(frozen=True)
class Tower:
    """Boxes on one another, entered from below: `below`, then those that are repeated so many `times`, then `above`,
    each of the three from top to bottom; `bottom` and `top` say what enters and what leaves."""

    top: Text
    above: Sequence[Box]
    repeated: Sequence[Box]
    times: int
    below: Sequence[Box]
    bottom: Text


@dataclass(frozen=True)
class Diagram:
    """One tower, or two, side by side where there is room: then `memory` goes from the top of the first into the box of
    number `enters` of the second's repeated ones."""

    towers: Sequence[Tower]
    memory: Text = ""
    enters: int = 0


@dataclass(frozen=True)
class Code:
    """Lines to copy, Python or commands, and what they are for; with `drawn` only HTML and SVG show them."""

    about: Text
    lines: str
    drawn: bool = False


Block = (
    Heading | Remark | Line | Prose | Code | Table | Bars | Matrix | Atlas | Points | Shaded | Edited | Diagram
)  # fmt: skip


@dataclass(frozen=True)
class Caption:
    """Where a page comes from: what was asked of which model, and what asks it again. None: not known, not shown.

    `command` is a line of the shell, `python` lines that return the same numbers, `date` a day as ISO 8601 writes it.
    """

    model: str | None = None
    text: str | None = None
    output: str | None = None
    command: str | None = None
    python: str | None = None
    date: str | None = None


@dataclass(frozen=True)
class Page:
    """A title, and what stands under it in order. `caption` says where it comes from; `terms` explains words of it,
    each with one sentence."""

    title: Text
    blocks: tuple[Block, ...]
    caption: Caption | None = None
    terms: tuple[tuple[Text, Text], ...] = ()

    def then(self, *others: "Page") -> "Page":
        """This page with others under it, their titles as headings."""
        added = [block for other in others for block in (Heading(other.title), *other.blocks)]
        return replace(self, blocks=(*self.blocks, *added))

    def captioned(self, caption: Caption) -> "Page":
        """This page with its caption."""
        return replace(self, caption=caption)

    def explained(self, terms: Iterable[tuple[Text, Text]]) -> "Page":
        """This page with words explained under it, each with one sentence. A terminal leaves them out."""
        return replace(self, terms=tuple(terms))


def page(title: Text, blocks: Iterable[Block | Text | None]) -> Page:
    """A page of the blocks that are there: a text is a remark, None stands for one that this answer lacks."""
    found = (Remark(each) if isinstance(each, Text) else each for each in blocks)
    return Page(title, tuple(each for each in found if each is not None))
