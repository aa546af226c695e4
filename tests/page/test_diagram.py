"""Boxes on one another: their walls are straight, whatever stands in them, and a figure has the same texts."""

import re
from itertools import pairwise
from xml.etree.ElementTree import tostring

import pytest

from cutaway.config import ModelConfig, parse
from cutaway.inspection.model_diagram import diagram
from cutaway.models.build import PRESETS
from cutaway.page.blocks import Box, Diagram, Tower
from cutaway.page.diagram import BOTH, FRAME, diagram_figure, diagram_lines, hanging
from cutaway.page.wrapping import shown
from cutaway.text.display import width
from cutaway.words import LOCALES, Locale

EDGES = set("┌┐└┘├┤─│╞╡═▲►")


def lines_of(values: dict[str, object], locale: Locale) -> list[str]:
    return diagram_lines(diagram(parse(ModelConfig, values, "test")), 80, True, locale)


def by_column(line: str) -> str:
    """A character for every terminal column."""
    return "".join(character + " " * (width(character) - 1) for character in line)


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_frame_has_straight_walls(preset: str, locale: Locale) -> None:
    lines = [by_column(line) for line in lines_of({**PRESETS[preset], "vocab_size": 1_000_000}, locale)]
    walls = 0
    for above, below in pairwise(lines):
        for left, right in zip(range(len(above)), range(FRAME - 1, len(above)), strict=False):
            # the two walls of one box
            if above[left] in "┌├╞│" and above[right] in "┐┤╡│":
                assert below[left] in EDGES and below[right] in EDGES, (above, below)
                walls += 1
    assert walls > 8


@pytest.mark.parametrize("locale", LOCALES)
def test_a_box_holds_its_words_however_long(locale: Locale) -> None:
    some = [*range(0, 39, 3), 38]
    values = {"vocab_size": 10**7, "n_layers": 40, "window": 64, "window_layers": some}
    assert max(map(width, lines_of({**PRESETS["llama-tiny"], **values}, locale))) <= FRAME + len(" 40 ×")


def test_two_towers_stand_side_by_side_where_there_is_room() -> None:
    first = Tower("", [], [Box(["one"], "attention")], 2, [Box(["in"], "embedding")], "left")
    second = Tower("out", [], [Box(["a"], "feed-forward"), Box(["b"], "attention")], 3, [], "right")
    both = Diagram([first, second], "memory", enters=1)
    wide, narrow = (diagram_lines(both, columns, True, "en") for columns in (BOTH, BOTH - 1))
    assert max(map(width, wide)) <= BOTH and len(narrow) > len(wide)
    crossing = next(line for line in wide if "│ b " in line)
    # the memory ends in the box that it enters
    assert "└─►│ b " in crossing
    assert sum("2 × │" in line for line in wide) == sum(line.endswith(" 3 ×") for line in wide) == 1
    assert all(line.isascii() for line in diagram_lines(both, BOTH, False, "en"))


def test_a_figure_has_every_text_of_the_boxes() -> None:
    whole = diagram(parse(ModelConfig, {**PRESETS["marian-tiny"], "vocab_size": 900}, "test"))
    figure = diagram_figure(whole, "zh")
    texts = re.findall(">([^<>]+)</", "".join(tostring(part, encoding="unicode") for part in figure.parts))
    boxes = [box for tower in whole.towers for box in (*tower.above, *tower.repeated, *tower.below)]
    assert len(boxes) > 6
    for box in boxes:
        assert all(shown(line, "zh") in texts for line in box.lines)
    assert figure.width > 0 and figure.height > 0


def test_continued_lines_are_set_in_and_nothing_is_lost() -> None:
    texts = (
        "one two  three four five",
        "编码器与解码器并排，各有 6 层，宽度 512",
        "a" * 30,
        "1,22,333,4444,55555",
    )
    for text in texts:
        lines = list(hanging(text, 12))
        assert max(map(width, lines)) <= 12
        assert all(line.startswith("  ") for line in lines[1:])
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert list(hanging("1,22,333,4444,55555", 12)) == ["1,22,333,", "  4444,55555"]
    assert list(hanging("short", 12)) == ["short"]
    assert list(hanging("", 12)) == []
