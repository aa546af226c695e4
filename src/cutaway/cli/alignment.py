"""The drawing of an alignment: which source pieces each target piece attended to, as shaded cells."""

from collections.abc import Sequence
from itertools import pairwise

from cutaway.text.display import pad, truncate, width

LEVELS = (0.1, 0.25, 0.5, 0.75)
SHADES, ASCII_SHADES = " ░▒▓█", " .:+#"
LEGENDS = {
    False: ("target down, source across", "source down, target across", "weight at least"),
    True: ("每行一个译文词块，每列一个原文词块", "每行一个原文词块，每列一个译文词块", "权重至少"),
}
_LONGEST = 14  # columns a piece may take before it is cut


def draw(
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    *,
    columns: int = 80,
    unicode: bool = True,
    chinese: bool = False,
) -> list[str]:
    """The lines of a drawing of `weights` (T target pieces × S source pieces, each row summing to 1).

    The source runs along the top and the target down the side, or the other way round where only that needs fewer
    blocks of `columns` terminal columns. Wide characters take two columns. `unicode=False` shades with ASCII;
    `chinese` is the language of the legend, the last line.
    """
    shades = SHADES if unicode else ASCII_SHADES
    mark = "…" if unicode else "."
    across = _Grid(source, target, weights, columns, mark)
    down = _Grid(target, source, [list(column) for column in zip(*weights, strict=True)], columns, mark)
    turned = len(down.blocks) < len(across.blocks)
    lines: list[str] = []
    for block in (down if turned else across).lines(shades):
        lines += [*block, ""]
    steps = "  ".join(f"{shade} {level:.2f}" for shade, level in zip(shades[1:], LEVELS, strict=True))
    upright, sideways, at_least = LEGENDS[chinese]
    return [*lines, f"{sideways if turned else upright};  {at_least}  {steps}"]


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
