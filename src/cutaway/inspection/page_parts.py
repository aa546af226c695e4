"""Small parts of pages that many questions share."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from cutaway.page.blocks import Matrix
from cutaway.page.numbers import share
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, say

ROW = 32  # numbers in a row of a folded vector


def array(values: Tensor) -> np.ndarray:
    """Values as a matrix of a page has them: on the CPU, in float64."""
    return values.detach().cpu().double().numpy()


def numbers_to(count: int) -> list[str]:
    """The names of so many things that are counted from 0."""
    return [str(number) for number in range(count)]


def greatest(
    pieces: Sequence[str], values: Tensor, most: int, shown: Callable[[float], str] = share
) -> list[str]:
    """The pieces of the greatest values, the greatest first, each with its value."""
    best = values.topk(min(most, len(values)))
    pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [f"{truncate(pieces[int(place)], 12)} {shown(value)}" for value, place in pairs]


def to_keep_in_mind(reason: Phrase | None) -> Phrase | None:
    """The remark on what makes an answer less than exact."""
    return None if reason is None else say("To keep in mind: {reason}.", reason=reason)


def by_layer(
    cells: Mapping[tuple[int, str], float], names: Sequence[str], without: float
) -> tuple[np.ndarray, list[str]]:
    """Values by layer and name as a matrix, layers down and names across, and the layers; `without` where is none."""
    layers = sorted({layer for layer, _ in cells})
    values = [[cells.get((layer, name), without) for name in names] for layer in layers]
    return np.array(values), [str(layer) for layer in layers]


def folded(values: Tensor, name: str, unit: Text) -> Matrix:
    """A vector's numbers as a heat map, in rows of equal length."""
    across = next(size for size in range(min(len(values), ROW), 0, -1) if len(values) % size == 0)
    firsts, offsets = range(0, len(values), across), [f"+{n}" for n in range(across)]
    rows, down, right = [f"{name}[{n}…]" for n in firsts], say("first of the row"), say("places after it")
    return Matrix(array(values).reshape(-1, across), rows, offsets, down, right, unit, "signed", drawn=True)
