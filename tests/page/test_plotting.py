"""Points as a terminal and as SVG show them."""

import re
import xml.etree.ElementTree as ET

import pytest

from cutaway.page.blocks import Point, Points, page
from cutaway.page.labels import placed
from cutaway.page.locale import Both, Locale
from cutaway.page.plotting import ROWS, plot
from cutaway.page.scatter import SIDE
from cutaway.page.svg import picture
from cutaway.text.display import width

SQUARE = Points(
    [Point(0, 0, "左下"), Point(1, 0, "b"), Point(1, 1, "c", 1), Point(0, 1, Both("top", "上"), 1)],
    Both("a rather long name of the axis that goes across", "横轴的一个相当长的名字，长到一行放不下为止"),
    Both("another one of the axis that goes up the page", "纵轴的一个相当长的名字，长到一行放不下为止"),
    paths=[(0, 1), (3, 2)],
    groups=("first", Both("second", "第二组")),
    arrows=True,
)


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_a_terminal_uses_all_its_rows_and_no_more_columns(locale: Locale):
    lines = plot(SQUARE, columns=40, locale=locale)
    assert lines[0].startswith("×上" if locale == "zh" else "×top")
    assert lines[0].endswith("×c") and lines[ROWS - 1].endswith("•b")
    assert lines[ROWS - 1].startswith("•左下")
    assert width(lines[0].removesuffix("c")) == 1 + 2 * (ROWS - 1)  # as wide as high
    assert max(map(width, lines)) <= 40
    assert lines[ROWS].split() == ["•", "first", "×", "第二组" if locale == "zh" else "second"]


def test_the_plane_of_a_picture_has_one_unit_and_its_arrows():
    drawn = picture(page("plane", [SQUARE]), "zh")
    ET.fromstring(drawn)
    found = re.findall(r'<polyline points="([\d.,-]+) ([\d.,-]+)"', drawn)
    ends = [[tuple(map(float, corner.split(","))) for corner in line] for line in found]
    assert len(ends) == 2
    for (x, y), (x_end, y_end) in ends:
        assert (x_end - x, y_end - y) == pytest.approx((SIDE, 0.0), abs=0.2)
    assert ends[0][0][1] - ends[1][0][1] == pytest.approx(SIDE, abs=0.2)  # up is up
    assert len(re.findall(r'<path d="M[^"]+z" fill', drawn)) == 2
    assert "<title>上</title>" in drawn and ">第二组</text>" in drawn


def test_labels_cover_neither_each_other_nor_a_mark():
    marks = [(100.0, 100.0), (108.0, 100.0), (104.0, 104.0), (300.0, 100.0), (3.0, 50.0)]
    found = placed(marks, [40.0, 40.0, 40.0, 0.0, 20.0], 11)
    assert found[3] is None and found[4] == (10.0, pytest.approx(53.85))
    boxes = [
        (place[0], place[1] - 8.8, place[0] + 40, place[1] + 2.2) for place in found[:3] if place is not None
    ]
    assert len(boxes) >= 2
    for n, (left, top, right, bottom) in enumerate(boxes):
        for x, y in marks:
            assert not (left < x < right and top < y < bottom)
        for other in boxes[n + 1 :]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]
    crowded = placed([(50.0, 50.0)] * 40, [60.0] * 40, 11)
    assert 0 < sum(place is None for place in crowded) < 40


def test_the_same_label_at_the_same_place_is_said_once() -> None:
    start = Points([Point(0, 0, "start"), Point(0, 0, "start", 1), Point(1, 1, "end")], "x", "y")
    assert "\n".join(plot(start, columns=40, locale="en")).count("start") == 1
    texts = [text.text for text in ET.fromstring(picture(page("paths", [start]), "en")).iter() if text.text]
    assert texts.count("start") == 3 - 1 + 1  # two marks say it under the pointer, one label
    assert not any("no room" in text for text in texts)
