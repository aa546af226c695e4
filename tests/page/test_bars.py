"""Upright bars: as high as their values, in a terminal and in a drawing."""

import re

from cutaway.page.bars import bar_figure, bar_lines
from cutaway.page.blocks import Bars
from cutaway.page.locale import Both

SIX = Bars([4.0, 2.0, 1.0, 0.5, 0.125, 0.0], Both("value", "值"), "σ")


def test_lines_are_as_high_as_the_values() -> None:
    lines = bar_lines(SIX, columns=8, unicode=True, locale="en")
    assert lines == ["█", "█", "██", "███▄▁", "value 0", "to 5", "across,", "σ up to", "4"]
    plain = bar_lines(SIX, columns=8, unicode=False, locale="zh")
    assert plain[:4] == ["#", "#", "##", "###"] and "".join(plain[4:]).startswith("横向：值")
    broad = bar_lines(SIX, columns=40, unicode=True, locale="en")
    assert broad[0] == 6 * "█" and max(map(len, broad[:-1])) <= 36


def test_neighbours_share_a_bar_where_there_is_no_room() -> None:
    many = Bars([float(n < 100) for n in range(200)], Both("value", "值"), "σ")
    lines = bar_lines(many, columns=40, unicode=True, locale="en")
    assert lines[:-1] == [20 * "█"] * 4 and lines[-1] == "value 0 to 199 across, σ up to 1"


def test_the_picture_has_a_bar_for_each_value() -> None:
    figure = bar_figure(SIX, "en")
    heights = [float(height) for height in re.findall(r"v(-[\d.]+)h", figure.body)]
    assert heights == [-110.0, -55.0, -27.5, -13.75, -3.44, -0.0]
    assert "value 0 to 5 across" in figure.body


def test_nothing_and_zeros_draw_no_bar() -> None:
    for values in ([], [0.0, 0.0]):
        block = Bars(values, "x", "y")
        assert bar_lines(block, columns=40, unicode=True, locale="en")[:-1] == [""] * 4
        assert bar_figure(block, "en").height > 0
