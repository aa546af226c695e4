"""A page in a terminal: widths, languages, what has no room there."""

import numpy as np
import pytest
from tests.page.sample import NASTY, sample

from cutaway.page.blocks import Bar, Code, Column, Heading, Matrix, Page, Remark, Table
from cutaway.page.locale import Both, Locale, reader_locale
from cutaway.page.terminal import Terminal
from cutaway.page.wrapping import folded, wrapped
from cutaway.text.display import width


@pytest.mark.parametrize("locale", ["en", "zh"])
@pytest.mark.parametrize("columns", [40, 80, 132])
def test_every_block_is_written_within_the_width(locale: Locale, columns: int):
    text = Terminal(columns, locale=locale).text(sample())
    longest = max(map(width, text.splitlines()))
    assert longest <= columns
    for said in ("好久", "▁time", NASTY, "+1.50", "-3.00", "-inf", "nan", "国王", "0.25"):
        assert said in text
    words = (
        ("Where it looked", "Effects", "probability", "In a plane", "Weights, not purpose.", "source across")
        if locale == "en"
        else ("它看向哪里", "影响", "概率", "平面图", "这是权重，不是目的。", "横向为原文")
    )
    assert all(word in text for word in words)
    assert ("Effects" in text) == (locale == "en")


def test_what_a_terminal_has_no_room_for_leaves_no_heading_behind():
    assert "Every head" not in Terminal().text(sample())


def test_ascii_only():
    page = Page("heads", tuple(block for block in sample().blocks if not isinstance(block, Heading)))
    text = Terminal(unicode=False).text(page)
    assert not set(text) & set("░▒▓█─→−")


def test_edits_and_shares_are_told_without_colour():
    text = Terminal().text(sample())
    assert "Long [− time] [+ no] [see → sea]" in text
    assert "▁Long +0.50  ▁time -1.25" in text


def test_pages_follow_one_another():
    first = Page("one", (Remark("a"),)).then(Page("two", (Remark("b"),)), Page("three", (Remark("c"),)))
    assert Terminal().text(first) == "one\na\n\ntwo\nb\n\nthree\nc"


def test_words_are_never_cut():
    assert folded(["aaa", "bb", "cccc", "好久不见"], 7) == ["aaa bb", "cccc", "好久不见"]


def test_prose_breaks_at_spaces_and_between_chinese_characters():
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("这是依赖，不是目的。", 10) == ["这是依赖，", "不是目的。"]
    assert wrapped("这是依赖，不是目的。", 8) == [
        "这是依",
        "赖，不是",
        "目的。",
    ]  # no line begins with a comma
    assert wrapped("用 --layer N 看一层", 8) == ["用", "--layer", "N 看一层"]
    assert wrapped("（见下文）", 6) == ["（见下", "文）"]
    assert wrapped("a\nb", 10) == ["a", "b"]
    assert wrapped("", 10) == [""]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "en"), ({"LANG": "zh_CN.UTF-8"}, "zh"), ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"), ({"LANG": "de_DE"}, "en"),
    ],
)  # fmt: skip
def test_the_locale_decides(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expected: Locale):
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert reader_locale() == expected
    assert (
        Terminal(locale=reader_locale()).text(Page(Both("yes", "是"), ()))
        == {"en": "yes", "zh": "是"}[expected]
    )


MEASURED = Table(
    [Column("token"), Column("without", "right"), Column("with", "right"), Column("divergence", "right")],
    [["▁yesterday", "0.641", "0.577", "0.014"], ["</s>", "0.897", "0.890", "0.002"]],
)


def test_a_table_that_is_too_wide_is_broken_between_columns_and_never_inside_a_number() -> None:
    lines = Terminal(30).text(Page("fates", (MEASURED,))).splitlines()
    assert max(map(width, lines)) <= 30
    assert [line.split()[0] for line in lines if line.startswith("▁")] == ["▁yesterday"] * 2
    assert all(any(line.endswith(number) for line in lines) for number in ("0.577", "0.014", "0.002"))


def test_prose_in_a_last_column_is_wrapped_where_it_has_room() -> None:
    prose = Table([Column("beam"), Column("text")], [["1", "I borrowed a book about history yesterday."]])
    lines = Terminal(40).text(Page("found", (prose,))).splitlines()
    assert lines[3:] == ["1      I borrowed a book about history", "       yesterday."]


@pytest.mark.parametrize(("columns", "most"), [(80, 24), (30, 14), (18, 0)])
def test_bars_are_as_long_as_there_is_room(columns: int, most: int) -> None:
    bars = Table([Column("head"), Column("effect", "right"), Column("")], [["2.13", "+0.5", Bar(1.0)]])
    text = Terminal(columns).text(Page("heads", (bars,)))
    assert text.count("█") == most and text.splitlines()[3].startswith("2.13     +0.5")


def test_a_line_is_free_between_two_figures() -> None:
    lines = Terminal().text(Page("two", (MEASURED, MEASURED))).splitlines()
    assert lines.count("") == 1 and lines[lines.index("") + 1].startswith("token")


def test_what_lines_to_copy_are_for_is_wrapped_as_a_remark_of_the_shell() -> None:
    code = Code("where each word looked, and what it depends on", "cutaway models")
    lines = Terminal(40).text(Page("next", (code,))).splitlines()
    assert len(lines) == 4 and all(line.startswith("# ") for line in lines[1:3])


def test_columns_of_one_kind_are_spread_evenly_over_the_blocks() -> None:
    heads = Matrix(np.ones((1, 12)), ["0"], [f"h{n}" for n in range(12)], "layer", "head", "nats", "signed")
    lines = Terminal(100).text(Page("heads", (heads,))).splitlines()
    assert [len(line.split()) for line in lines if line.startswith("layer")] == [13]
    lines = Terminal(80).text(Page("heads", (heads,))).splitlines()
    assert [len(line.split()) for line in lines if line.startswith("layer")] == [7, 7]
