"""Points of a plane on a canvas of characters."""

from cutaway.page.blocks import Points
from cutaway.page.labels import no_room
from cutaway.page.wrapping import folded, wrapped
from cutaway.text.display import clusters, truncate, width
from cutaway.words import Locale, said, say

ROWS = 18
MARKS = "•×○+*"
_LONGEST = 12  # columns of a label


def plot(points: Points, *, columns: int, locale: Locale) -> list[str]:
    """The lines of a plot; a label stands at the right of its mark, or at its left where there is no room. What would
    cover another label is left out and counted. The last lines are the legend."""
    if not points.points:
        return []
    canvas = [[" "] * columns for _ in range(ROWS)]
    xs, ys = [point.x for point in points.points], [point.y for point in points.points]
    # A character is about twice as high as wide: a row is two steps.
    step = max((max(xs) - min(xs)) / (columns - 1), (max(ys) - min(ys)) / 2 / (ROWS - 1)) or 1.0
    left_out = 0
    placed: list[tuple[int, int, str]] = []
    for point in points.points:
        column = round((point.x - min(xs)) / step)
        row = round((max(ys) - point.y) / step / 2)
        canvas[row][column] = MARKS[point.group % len(MARKS)]
        placed.append((row, column, truncate(said(point.label, locale), _LONGEST)))
    for row, column, label in dict.fromkeys(placed):  # the same at the same place is said once
        size = width(label)
        for start in (column + 1, column - size):
            if (
                start >= 0
                and start + size <= columns
                and all(c == " " for c in canvas[row][start : start + size])
            ):
                _write(canvas[row], start, label)
                break
        else:
            left_out += bool(label)
    lines = ["".join(row).rstrip() for row in canvas]
    while lines and not lines[-1]:
        lines.pop()
    across, down = said(points.across, locale), said(points.down, locale)
    legend = said(say("{across} across, {down} up", across=across, down=down), locale)
    named = [f"{MARKS[n % len(MARKS)]} {said(name, locale)}" for n, name in enumerate(points.groups)]
    lines += [line.rstrip() for line in folded([f"{name} " for name in named], columns) if line]
    lines += wrapped(legend, columns)
    if left_out:
        lines.append(said(no_room(left_out), locale))
    return lines


def _write(row: list[str], start: int, label: str) -> None:
    """Put a label into a row; a wide character takes its second cell."""
    for cluster in clusters(label):
        row[start] = cluster
        if width(cluster) == 2:
            row[start + 1] = ""
        start += width(cluster)
