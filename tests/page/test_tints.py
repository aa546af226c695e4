"""Texts on the colour of a value: plain in a terminal, tinted in HTML and SVG; lines to copy."""

import pytest
from tests.page.sample import NASTY

from cutaway.page.blocks import Code, Column, Line, Page, Scale, Table, Tinted
from cutaway.page.colours import NEGATIVE, POSITIVE, WEIGHT, tint
from cutaway.page.html import fragment
from cutaway.page.locale import Both
from cutaway.page.svg import picture
from cutaway.page.terminal import Terminal
from cutaway.text.display import width

CHANCE = Both("probability", "概率")
WORDS = Line("writes", [Tinted("▁Long", 0.25, hint=NASTY), "</s>"], CHANCE)
GRID = Table(
    [Column("reads"), *(Column(f"layer {n}") for n in range(12)), Column("writes")],
    [[f"t{row}", *(Tinted(f"w{row}.{n}", n / 12) for n in range(12)), f"o{row}"] for row in range(2)],
    CHANCE,
    keep=1,
)


@pytest.mark.parametrize(
    ("value", "scale", "colour", "opacity"),
    [(0.25, "weight", WEIGHT, 0.375), (4.0, "weight", WEIGHT, 0.75), (-1.0, "signed", NEGATIVE, 0.8),
     (0.5, "signed", POSITIVE, 0.4)],
)  # fmt: skip
def test_text_can_be_read_on_the_strongest_colour(
    value: float, scale: Scale, colour: tuple[int, int, int], opacity: float
):
    assert tint(value, scale) == f"rgba({colour[0]},{colour[1]},{colour[2]},{opacity:.3f})"


def test_a_terminal_shows_the_text_alone():
    assert Terminal().text(Page("t", (WORDS,))) == "t\nwrites       ▁Long </s>"


def test_a_wide_table_is_broken_into_blocks_that_each_name_their_rows():
    lines = Terminal(60).text(Page("t", (GRID,))).splitlines()
    assert max(map(width, lines)) <= 60
    titles = [line.split() for line in lines if line.startswith("reads")]
    assert [word for title in titles for word in title if word not in ("reads", "layer", "writes")] == [
        str(n) for n in range(12)
    ]
    assert titles[-1][-1] == "writes" and sum(line.startswith("t1 ") for line in lines) == len(titles)
    wide = Terminal(400).text(Page("t", (GRID,))).splitlines()
    assert len(wide) == 1 + 4  # title; head, rule and two rows


def test_html_tints_cells_and_words_and_says_what_the_colours_are():
    text = fragment(Page("t", (WORDS, GRID)), "zh")
    assert (
        f'style="background:{tint(0.25, "weight")}" title="a&lt;b&gt;&amp;&quot;c&quot;">▁Long</bdi>' in text
    )
    assert f'<td style="background:{tint(11 / 12, "weight")}"><bdi>w1.11</bdi></td>' in text
    assert text.count('<small class="tint">') == 2 and "</i> 概率</small>" in text
    untinted = fragment(Page("t", (Line("a", ["b"], CHANCE),)), "zh")
    assert '<small class="tint">' not in untinted


def test_svg_has_a_rectangle_under_each():
    text = picture(Page("t", (WORDS, GRID)), "en")
    assert text.count(f'fill="{tint(11 / 12, "weight")}"') == 2
    assert text.count(">probability</text>") == 2


def test_lines_to_copy_are_not_broken():
    long = "cutaway inspect " + "x" * 90
    code = Code(Both("to copy", "可复制"), f"{long}\nprint(1 < 2)")
    assert Terminal().text(Page("t", (code,))).splitlines() == ["t", "# to copy", long, "print(1 < 2)"]
    assert f"<pre><code>{long}\nprint(1 &lt; 2)</code></pre>" in fragment(Page("t", (code,)), "en")
    assert "print(1 &lt; 2)</text>" in picture(Page("t", (code,)), "en")
    assert "copy" not in Terminal().text(Page("t", (Code("to copy", "x", drawn=True),)))
