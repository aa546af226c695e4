"""Points of a plane as a figure, their labels beside them, none over another."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import hypot
from xml.etree.ElementTree import Element

import numpy as np

from cutaway.page.blocks import Points
from cutaway.page.elements import LINE, SMALL, Figure, element, label, moved, text_width
from cutaway.page.numbers import no_room
from cutaway.page.wrapping import shown
from cutaway.text.display import truncate
from cutaway.words import Locale

# Each 3:1 or more on white and on black.
GROUPS = ("#1A6FE0", "#D9640A", "#008F6B", "#A8478A", "#808080")
SIDE = 560.0  # pixels of the longer side
_LONGEST = 24  # columns of a label
MARK = 5.0  # half the side of a mark, in pixels
_GAP = 7.0
_STEP = 4.0  # pixels between two dots on a line

_Box = tuple[float, float, float, float]  # left, top, right, bottom
Place = tuple[float, float]  # x, y


def plot(block: Points, locale: Locale) -> Figure:
    """Points with labels where they have room, all of them under the pointer; a group's colour comes with a shape of
    its own."""
    if not block.points:
        return Figure(0, 0, ())
    xs, ys = [point.x for point in block.points], [point.y for point in block.points]
    unit = SIDE / (max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0)
    whole = [shown(point.label, locale) for point in block.points]
    names = [truncate(name, _LONGEST) for name in whole]
    # Room at the left, so that a label fits beside a point that stands there.
    left, top = 12.0 + min(70.0, max(text_width(name, SMALL) for name in names)), 18.0
    at = [(left + (x - min(xs)) * unit, top + (max(ys) - y) * unit) for x, y in zip(xs, ys, strict=True)]
    names = _said_once(at, names)
    sizes = [text_width(name, SMALL) for name in names]
    parts = list(_paths(block, at))
    for (x, y), point, name in zip(at, block.points, whole, strict=True):
        parts.append(element("g", [element("title", name), mark(x, y, point.group)]))
    lines = [(at[a], at[b]) for path in block.paths for a, b in pairwise(path)]
    widest, hidden = max(place[0] for place in at), 0
    for name, size, where in zip(names, sizes, placed(at, sizes, SMALL, lines), strict=True):
        if where is None:
            hidden += bool(name)
            continue
        parts.append(label(*where, name, size=SMALL))
        widest = max(widest, where[0] + size)
    below = _legend(block, hidden, locale)
    y = max(place[1] for place in at) + 24
    return Figure(max(widest, below.width) + 12, y + below.height, [*parts, moved(below, 0, y)])


def _legend(block: Points, hidden: int, locale: Locale) -> Figure:
    """The groups, what the axes are, and how many labels have no room."""
    parts: list[Element] = []
    x, y, widest = 12.0, 12.0, 0.0
    for group, name in enumerate(shown(name, locale) for name in block.groups):
        if x > 12 and x + text_width(name, 12) > SIDE:
            x, y = 12.0, y + LINE
        parts += [mark(x, y - 4, group), label(x + 8, y, name)]
        x += 28 + text_width(name, 12)
        widest = max(widest, x)
    y += LINE + 2 if block.groups else 0
    notes = [f"→ {shown(block.across, locale)}   ↑ {shown(block.down, locale)}"]
    notes += [shown(no_room(hidden), locale)] if hidden else []
    for note in notes:
        parts.append(label(8, y, note, opacity=0.7))
        widest = max(widest, 8 + text_width(note, 12))
        y += LINE
    return Figure(widest, y, parts)


def _said_once(at: Sequence[Place], names: Sequence[str]) -> list[str]:
    """The labels, empty where the same stands at the same pixel already."""
    first: dict[tuple[int, int, str], int] = {}
    keys = [(round(x), round(y), name) for (x, y), name in zip(at, names, strict=True)]
    return [
        name if first.setdefault(key, n) == n else ""
        for n, (key, name) in enumerate(zip(keys, names, strict=True))
    ]


def mark(x: float, y: float, group: int) -> Element:
    """A circle, square, triangle, cross or diamond."""
    colour = _colour(group)
    match group % 5:
        case 0:
            return element("circle", cx=x, cy=y, r=4, fill=colour)
        case 1:
            return element("rect", x=x - 4, y=y - 4, width=8, height=8, fill=colour)
        case 2:
            return element("path", d=f"M{x:.1f} {y - 5:.1f}l5 9h-10z", fill=colour)
        case 3:
            cross = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
            return element("path", d=cross, stroke=colour, stroke_width=2.5)
    return element("path", d=f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z", fill=colour)


def _paths(block: Points, at: Sequence[Place]) -> Iterator[Element]:
    """Lines through points, with a head at their end where they are arrows."""
    for path in block.paths:
        if len(path) < 2:
            continue
        colour = _colour(block.points[path[0]].group)
        corners = " ".join(f"{at[n][0]:.1f},{at[n][1]:.1f}" for n in path)
        yield element(
            "polyline", points=corners, fill="none", stroke=colour, stroke_opacity=0.7,
            stroke_width=1.5 if block.arrows else 1,
        )  # fmt: skip
        (x, y), (x_end, y_end) = at[path[-2]], at[path[-1]]
        length = hypot(x_end - x, y_end - y)
        if block.arrows and length > 12:
            along, down = (x_end - x) / length, (y_end - y) / length
            x_tip, y_tip = x_end - 6 * along, y_end - 6 * down  # the mark stays free
            x_base, y_base = x_tip - 9 * along, y_tip - 9 * down
            head = (
                f"M{x_tip:.1f} {y_tip:.1f}L{x_base - 4 * down:.1f} {y_base + 4 * along:.1f}"
                f"L{x_base + 4 * down:.1f} {y_base - 4 * along:.1f}z"
            )
            yield element("path", d=head, fill=colour)


def _colour(group: int) -> str:
    return GROUPS[group % len(GROUPS)]


def placed(
    marks: Sequence[Place], sizes: Sequence[float], height: float, lines: Sequence[tuple[Place, Place]] = ()
) -> list[Place | None]:
    """For each mark the left end of its label's baseline: at its right, at its left, above or below it, where it
    covers none of `lines` if there is such a place. None where the label would cover another one or a mark everywhere,
    and where it is empty (size 0). The first marks come first."""
    taken = [(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in marks]
    drawn = _along(lines)
    found: list[Place | None] = []
    for (x, y), size in zip(marks, sizes, strict=True):
        boxes = np.array(taken).reshape(-1, 4)
        free: list[tuple[Place, _Box]] = []
        for left, base in _candidates(x, y, size, height) if size else ():
            box = (left, base - 0.8 * height, left + size, base + 0.2 * height)
            if left >= 0 and box[1] >= 0 and not _covers(boxes, box):
                free.append(((left, base), box))
        if not free:
            found.append(None)
            continue
        place, box = next((each for each in free if not _covers(drawn, each[1])), free[0])
        taken.append(box)
        found.append(place)
    return found


def _along(lines: Sequence[tuple[Place, Place]]) -> np.ndarray:
    """Boxes of no size (N, 4) that stand close together on the lines."""
    dots = [np.zeros((0, 2))]
    for start, end in lines:
        a, b = np.array(start), np.array(end)
        shares = np.linspace(0.0, 1.0, 2 + int(np.linalg.norm(b - a) / _STEP))[:, None]
        dots.append(a + shares * (b - a))
    joined = np.concatenate(dots)
    return np.concatenate([joined, joined], axis=1)


def _candidates(x: float, y: float, size: float, height: float) -> Iterator[Place]:
    middle = y + 0.35 * height
    yield from ((x + _GAP, middle), (x - _GAP - size, middle))
    yield from ((x - size / 2, y - _GAP), (x - size / 2, y + _GAP + 0.8 * height))
    yield from ((x + 4, y - _GAP), (x + 4, y + _GAP + 0.8 * height))
    yield from ((x - 4 - size, y - _GAP), (x - 4 - size, y + _GAP + 0.8 * height))


def _covers(boxes: np.ndarray, box: _Box) -> bool:
    left, top, right, bottom = box
    over = (boxes[:, 0] < right) & (boxes[:, 2] > left) & (boxes[:, 1] < bottom) & (boxes[:, 3] > top)
    return bool(over.any())
