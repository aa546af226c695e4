"""A heat map of weights as shaded cells of text."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from cutaway.page.wrapping import wrapped
from cutaway.text.display import pad, truncate, width
from cutaway.words import Locale, said, say

if TYPE_CHECKING:
    from cutaway.page.blocks import Matrix

LEVELS = (0.1, 0.25, 0.5, 0.75)
SHADES, ASCII_SHADES = " ░▒▓█", " .:+#"
_LONGEST = 14  # columns a piece may take before it is cut


def shade(matrix: "Matrix", *, columns: int, unicode: bool, locale: Locale) -> list[str]:
    """The lines of a heat map. Its columns run along the top and its rows down the side, or the other way round where
    only that needs fewer blocks of `columns` terminal columns. Wide characters take two columns. `unicode=False` shades
    with ASCII; the last lines are the legend."""
    shades = SHADES if unicode else ASCII_SHADES
    mark = "…" if unicode else "."
    top, side = ([said(name, locale) for name in names] for names in (matrix.columns, matrix.rows))
    greatest = matrix.greatest or 1.0
    weights = matrix.values / greatest
    upright = _Grid(top, side, weights.tolist(), columns, mark)
    sideways = _Grid(side, top, weights.T.tolist(), columns, mark)
    turned = len(sideways.blocks) < len(upright.blocks)
    lines: list[str] = []
    for block in (sideways if turned else upright).lines(shades):
        lines += [*block, ""]
    steps = "  ".join(
        f"{shade} {level * greatest:.2f}" for shade, level in zip(shades[1:], LEVELS, strict=True)
    )
    down, across = said(matrix.down, locale), said(matrix.across, locale)
    if turned:
        down, across = across, down
    how = say("{down} down, {across} across;  ", down=down, across=across)
    unit = said(matrix.unit, locale)
    least = say("{unit} at least", unit=unit)
    return [*lines, *wrapped(f"{said(how, locale)}{said(least, locale)}  {steps}", columns)]


class _Grid:
    def __init__(
        self,
        across: Sequence[str],
        down: Sequence[str],
        weights: Sequence[Sequence[float]],
        columns: int,
        mark: str,
    ):
        self._heads = [truncate(piece, _LONGEST, mark) for piece in across]
        self._sides = [truncate(piece, _LONGEST, mark) for piece in down]
        self._weights = weights
        self._widths = [max(2, width(head)) for head in self._heads]
        self._side = max((width(side) for side in self._sides), default=0)
        self.blocks = list(pairwise(self._breaks(columns)))

    def _breaks(self, columns: int) -> list[int]:
        """Where the columns are cut into blocks, 0 and the number of columns included."""
        breaks, used = [0], self._side
        for index, cell in enumerate(self._widths):
            if used + 1 + cell > columns and index > breaks[-1]:
                breaks.append(index)
                used = self._side
            used += 1 + cell
        return [*breaks, len(self._widths)]

    def lines(self, shades: str) -> list[list[str]]:
        """One list of lines a block: the head, then a row for every side piece."""
        blocks = []
        for start, end in self.blocks:
            widths = self._widths[start:end]
            head = " ".join(
                pad(piece, cell) for piece, cell in zip(self._heads[start:end], widths, strict=True)
            )
            rows = [f"{' ' * self._side} {head}".rstrip()]
            for side, row in zip(self._sides, self._weights, strict=True):
                cells = " ".join(
                    _shade(weight, shades) * cell for weight, cell in zip(row[start:end], widths, strict=True)
                )
                rows.append(f"{pad(side, self._side, 'right')} {cells}".rstrip())
            blocks.append(rows)
        return blocks


def _shade(weight: float, shades: str) -> str:
    return shades[sum(weight >= level for level in LEVELS)]
