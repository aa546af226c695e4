"""Where the labels of a plot stand: beside their marks, none over another."""

from collections.abc import Iterator, Sequence

import numpy as np

from cutaway.words import Phrase, say

MARK = 5.0  # half the side of a mark, in pixels
_GAP = 7.0
_STEP = 4.0  # pixels between two dots on a line

_Box = tuple[float, float, float, float]  # left, top, right, bottom
Place = tuple[float, float]  # x, y


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


def no_room(labels: int) -> Phrase:
    """What a plot says about those that it leaves out."""
    return say("labels without room here: {labels}", labels=labels)


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
