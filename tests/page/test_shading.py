from collections.abc import Sequence

import numpy as np
import pytest

from cutaway.page.blocks import Matrix
from cutaway.page.locale import Both, Locale
from cutaway.page.shading import shade
from cutaway.text.display import width

SOURCE = [">>eng<<", "好久", "不见", "</s>"]
TARGET = ["▁Long", "▁time", "</s>"]
WEIGHTS = [[0.1, 0.6, 0.24, 0.06], [0.0, 0.9, 0.1, 0.0], [0.0, 0.2, 0.3, 0.5]]


def draw(
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    columns: int = 80,
    unicode: bool = True,
    locale: Locale = "en",
) -> list[str]:
    values = np.array(weights, dtype=float).reshape(len(target), len(source))
    down, across, unit = Both("target", "译文"), Both("source", "原文"), Both("weight", "权重")
    return shade(
        Matrix(values, target, source, down, across, unit), columns=columns, unicode=unicode, locale=locale
    )


def test_columns_line_up_under_double_width_characters():
    assert draw(SOURCE, TARGET, WEIGHTS) == [
        "      >>eng<< 好久 不见 </s>",
        "▁Long ░░░░░░░ ▓▓▓▓ ░░░░",
        "▁time         ████ ░░░░",
        " </s>         ░░░░ ▒▒▒▒ ▓▓▓▓",
        "",
        "target down, source across;  weight at least  ░ 0.10  ▒ 0.25  ▓ 0.50  █ 0.75",
    ]


def test_ascii_shades_for_terminals_without_blocks():
    lines = draw(["a", "b"], ["c"], [[0.8, 0.2]], unicode=False)
    assert lines[:2] == ["  a  b", "c ## .."]
    assert all(line.isascii() for line in lines)


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_every_line_fits_and_every_cell_is_drawn(columns: int):
    source = [f"词{i}" for i in range(40)]
    target = [f"piece{i}" for i in range(30)]
    weights = [[1.0 if i == j else 0.0 for j in range(40)] for i in range(30)]
    lines = draw(source, target, weights, columns=columns)
    assert max(map(width, lines[:-1])) <= columns
    assert all(any(line.split() and piece in line.split() for line in lines) for piece in [*source, *target])
    assert sum("█" in line for line in lines[:-1]) == 30


def test_it_is_turned_when_that_needs_fewer_blocks():
    source = ["internationalisation"] * 12
    target = ["我", "们"]
    lines = draw(source, target, [[1 / 12] * 12] * 2)
    assert lines[0].split() == target
    assert lines[-1].startswith("source down, target across")


def test_long_pieces_are_cut_with_a_mark():
    [head, row, *_] = draw(["supercalifragilistic"], ["好" * 10], [[1.0]])
    assert head.split() == ["supercalifrag…"]
    assert row.split() == ["好好好好好好…", "█" * 14]


def test_nothing_to_draw():
    assert draw([], [], [])[-1].startswith("target down")


def test_the_legend_is_in_the_readers_language():
    assert draw(SOURCE, TARGET, WEIGHTS, locale="zh")[-1].startswith(
        "纵向为译文，横向为原文；  权重至少  ░ 0.10"
    )
