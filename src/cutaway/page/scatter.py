"""Points of a plane as a piece of SVG."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import hypot

from cutaway.page.blocks import Points
from cutaway.page.figures import Figure, escaped, label, text_width
from cutaway.page.labels import Place, no_room, placed
from cutaway.text.display import truncate
from cutaway.words import Locale, said

GROUPS = ("#1A6FE0", "#D9640A", "#008F6B", "#A8478A", "#808080")  # each 3:1 or more on white and on black
SIDE = 560.0  # pixels of the longer side
_LONGEST = 24  # columns of a label
_LINE = 16  # pixels of a line of text
_SIZE = 11


def plot(block: Points, locale: Locale) -> Figure:
    """Points with labels where they have room, all of them under the pointer; a group's colour comes with a shape of
    its own."""
    if not block.points:
        return Figure(0, 0, "")
    xs, ys = [point.x for point in block.points], [point.y for point in block.points]
    unit = SIDE / (max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0)
    names = [truncate(said(point.label, locale), _LONGEST) for point in block.points]
    widest = max(text_width(name, _SIZE) for name in names)
    # Room at the left, so that a label fits beside a point that stands there.
    left, top = 12.0 + min(70.0, widest), 18.0
    at = [(left + (x - min(xs)) * unit, top + (max(ys) - y) * unit) for x, y in zip(xs, ys, strict=True)]
    names = _said_once(at, names)
    sizes = [text_width(name, _SIZE) for name in names]
    parts = list(_paths(block, at))
    for (x, y), point in zip(at, block.points, strict=True):
        parts.append(mark(x, y, point.group, said(point.label, locale)))
    lines = [(at[a], at[b]) for path in block.paths for a, b in pairwise(path)]
    widest, hidden = 0.0, 0
    for name, size, where in zip(names, sizes, placed(at, sizes, _SIZE, lines), strict=True):
        if where is None:
            hidden += bool(name)
            continue
        parts.append(label(*where, name, size=_SIZE))
        widest = max(widest, where[0] + size)
    y, x = max(place[1] for place in at) + 36, 12.0
    if block.groups:
        for group, name in enumerate(block.groups):
            shown = said(name, locale)
            parts += [mark(x, y - 4, group), label(x + 8, y, shown)]
            x += 28 + text_width(shown, 12)
        y += _LINE + 2
    notes = [f"→ {said(block.across, locale)}   ↑ {said(block.down, locale)}"]
    if hidden:
        notes.append(said(no_room(hidden), locale))
    for line in notes:
        parts.append(label(8, y, line, more=' opacity="0.7"'))
        x = max(x, 8 + text_width(line, 12))
        y += _LINE
    return Figure(max(widest, x, max(place[0] for place in at)) + 12, y, "".join(parts))


def _said_once(at: Sequence[Place], names: Sequence[str]) -> list[str]:
    """The labels, empty where the same stands at the same pixel already."""
    there: set[tuple[int, int, str]] = set()
    kept: list[str] = []
    for (x, y), name in zip(at, names, strict=True):
        key = (round(x), round(y), name)
        kept.append("" if key in there else name)
        there.add(key)
    return kept


def mark(x: float, y: float, group: int, name: str = "") -> str:
    """A circle, square, triangle, cross or diamond, with its name under the pointer."""
    colour = _colour(group)
    shapes: Sequence[str] = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
        f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>',
        f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" fill="{colour}"/>',
        f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" stroke="{colour}" stroke-width="2.5"/>',
        f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z" fill="{colour}"/>',
    )
    shape = shapes[group % len(shapes)]
    return f"<g><title>{escaped(name)}</title>{shape}</g>" if name else shape


def _paths(block: Points, at: Sequence[Place]) -> Iterator[str]:
    """Lines through points, with a head at their end where they are arrows."""
    for path in block.paths:
        if len(path) < 2:
            continue
        colour = _colour(block.points[path[0]].group)
        corners = " ".join(f"{at[n][0]:.1f},{at[n][1]:.1f}" for n in path)
        yield (
            f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-opacity="0.7" '
            f'stroke-width="{1.5 if block.arrows else 1}"/>'
        )
        (x, y), (x_end, y_end) = at[path[-2]], at[path[-1]]
        length = hypot(x_end - x, y_end - y)
        if block.arrows and length > 12:
            along, down = (x_end - x) / length, (y_end - y) / length
            x_tip, y_tip = x_end - 6 * along, y_end - 6 * down  # the mark stays free
            x_base, y_base = x_tip - 9 * along, y_tip - 9 * down
            yield (
                f'<path d="M{x_tip:.1f} {y_tip:.1f}L{x_base - 4 * down:.1f} {y_base + 4 * along:.1f}'
                f'L{x_base + 4 * down:.1f} {y_base - 4 * along:.1f}z" fill="{colour}"/>'
            )


def _colour(group: int) -> str:
    return GROUPS[group % len(GROUPS)]
