"""A page in a terminal: every line as it stands, in both languages, wide and narrow, with and without Unicode."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.page.sample import ACROSS, CAPTION, DOWN, ESCAPE, NASTY, SPELLED, UNIT, both, sample

from cutaway.page.blocks import (
    Bar,
    Bars,
    Caption,
    Code,
    Column,
    Edited,
    Heading,
    Line,
    Matrix,
    Page,
    Point,
    Points,
    Prose,
    Remark,
    Shaded,
    Table,
    Tinted,
)  # fmt: skip
from cutaway.page.console import PLANE_HIGH, Terminal
from cutaway.page.wrapping import folded, legible, wrapped
from cutaway.text.display import width
from cutaway.words import Locale, reader_locale

ENGLISH = """\
Where it looked
tokens       >>eng<< 好久 不见 </s>
text         Long time no see. a<b>&"c"
      >>eng<< 好久 不见 </s>
▁Long ░░░░░░░ ▓▓▓▓ ░░░░
▁time         ████ ░░░░
 </s>         ░░░░ ▒▒▒▒ ▓▓▓▓

target down, source across;  weight at least
░ 0.10  ▒ 0.25  ▓ 0.50  █ 0.75

Effects
target  >>eng…   好久   不见   </s>
───────────────────────────────────
▁Long    +1.50  -0.25   0.00   -inf
▁time    -3.00   0.00    nan  +2.00
</s>     +0.50  +0.50  +0.50  +0.50

token      probability
─────────────────────────────────────────────────
好久              0.25   ██████
a<b>&"c"         1.000   ████████████████████████
writes       ▁Long </s>
at     reads
────────────
</s>   好久
# to copy
print(1 < 2)
██████
██████▅▅▅▅▅▅
████████████
████████████▅▅▅▅▅▅
singular value 0 to 2 across, σ up to 3
share        ▁Long +0.50  ▁time -1.25
Long [− time] [+ no] [see → sea]

In a plane
×man                                                   女王•














•国王
• Chinese  × English
PC1 across, PC2 up
Weights, not purpose.

tiny · 2026-11-30
好久不见 a<b>&"c" → Long time no see
cutaway inspect align"""

CHINESE_NARROW = """\
它看向哪里
词元         >>eng<< 好久 不见 </s>
文字         Long time no see. a<b>&"c"
      >>eng<< 好久 不见 </s>
▁Long ░░░░░░░ ▓▓▓▓ ░░░░
▁time         ████ ░░░░
 </s>         ░░░░ ▒▒▒▒ ▓▓▓▓

纵向：译文；横向：原文；  权重不低于
░ 0.10  ▒ 0.25  ▓ 0.50  █ 0.75

影响
译文   >>eng…   好久   不见   </s>
──────────────────────────────────
▁Long   +1.50  -0.25   0.00   -inf
▁time   -3.00   0.00    nan  +2.00
</s>    +0.50  +0.50  +0.50  +0.50

词元        概率
────────────────────────────────────────
好久        0.25   █████
a<b>&"c"   1.000   █████████████████████
写出         ▁Long </s>
在     读作
───────────
</s>   好久
# 可复制
print(1 < 2)
██████
██████▅▅▅▅▅▅
████████████
████████████▅▅▅▅▅▅
横向：奇异值 0 至 2；纵向：σ，最大 3
份额         ▁Long +0.50  ▁time -1.25
Long [− time] [+ no] [see → sea]

平面图
×man                               女王•









•国王
• 中文  × 英文
横向：PC1；纵向：PC2
这是权重，不是目的。

tiny · 2026-11-30
好久不见 a<b>&"c" → Long time no see
cutaway inspect align"""


def test_a_page_stands_in_a_terminal_as_it_was_laid_out() -> None:
    """What a terminal has no room for (the atlas) leaves no heading behind."""
    made = sample().captioned(CAPTION)
    assert Terminal(60).text(made).splitlines() == ENGLISH.splitlines()
    assert Terminal(40, locale="zh").text(made).splitlines() == CHINESE_NARROW.splitlines()


def test_without_unicode_only_the_texts_themselves_have_it() -> None:
    page = Page("heads", tuple(block for block in sample().blocks if not isinstance(block, Line | Points)))
    text = Terminal(unicode=False).text(page.captioned(Caption(text="a", output="b")))
    others = "".join(character for character in text if not character.isascii())
    assert set(others) <= set("好久不见▁σ")
    assert "[- time] [+ no] [see -> sea]" in text and "-----" in text and "a -> b" in text
    plane = Points([Point(0, 0, "a"), Point(1, 1, "b", 1)], "x", "y", groups=("one", "two"))
    assert Terminal(40, unicode=False).text(plane).isascii()
    said = Line(both("a → b", ""), ["→", "“x”", both("3 × {token}", "")])
    assert Terminal(unicode=False).text(said) == "a -> b       → “x” 3 x {token}"


@pytest.mark.parametrize("locale", ["en", "zh"])
@pytest.mark.parametrize("columns", [40, 57, 80, 132])
def test_no_line_is_wider_than_the_terminal(locale: Locale, columns: int) -> None:
    lines = Terminal(columns, locale=locale).text(sample().captioned(CAPTION)).splitlines()
    assert max(map(width, lines)) <= columns
    assert all(line == line.rstrip() for line in lines)


def test_styles_reach_a_terminal_and_no_colours_where_nobody_wants_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Page("title", (Remark("quiet"), Edited([("delete", ["gone"], [])])))
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    Terminal().print(made)
    assert capsys.readouterr().out == "title\nquiet\n[− gone]\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    Terminal().print(made)
    coloured = capsys.readouterr().out
    assert "\x1b[1mtitle" in coloured and "\x1b[2mquiet" in coloured and "\x1b[9;31m[−" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    Terminal().print(made)
    plain = capsys.readouterr().out
    assert "\x1b[1mtitle" in plain and "31m" not in plain
    assert Terminal().text(made) == "title\nquiet\n[− gone]"


def test_what_comes_from_outside_is_spelled_out() -> None:
    plain = Matrix(np.ones((1, 1)), [ESCAPE], [ESCAPE], ESCAPE, ESCAPE, ESCAPE)
    signed = Matrix(np.ones((1, 1)), [ESCAPE], [ESCAPE], ESCAPE, ESCAPE, ESCAPE, "signed")
    blocks = (
        Heading(ESCAPE), Remark(ESCAPE), Line(ESCAPE, [ESCAPE, Tinted(ESCAPE, 1.0)]), Prose(ESCAPE, ESCAPE),
        Code(ESCAPE, ESCAPE), Table([Column(ESCAPE)], [[ESCAPE]]), Bars([1.0], ESCAPE, ESCAPE), plain, signed,
        Points([Point(0, 0, ESCAPE)], ESCAPE, ESCAPE, groups=[ESCAPE]), Shaded(ESCAPE, [ESCAPE], [1.0], ESCAPE),
        Edited([("replace", [ESCAPE], [ESCAPE])]),
    )  # fmt: skip
    caption = Caption(*[ESCAPE] * 6)
    for block in blocks:
        text = Terminal(400).text(Page(ESCAPE, (block,)).captioned(caption))
        assert not {"\x1b", "\u202e", "\x00"} & set(text) and SPELLED in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", "plain text"), ("两行\n文字", "两行\n文字"), ("a\tb\r", "a⇥b␍"),
        ("　全角\u00a0", "　全角\u00a0"),
        ("\x9b31m", "⟨U+009B⟩31m"), ("\ud800\ufffe", "⟨U+D800⟩⟨U+FFFE⟩"), (legible(ESCAPE), SPELLED),
    ],
)  # fmt: skip
def test_spaces_and_line_ends_stay_as_they_are(text: str, expected: str) -> None:
    assert legible(text) == expected


def test_pages_follow_one_another() -> None:
    first = Page("one", (Remark("a"),)).captioned(CAPTION)
    both_pages = first.then(Page("two", (Remark("b"),)), Page("three", (Remark("c"),)))
    assert Terminal().text(both_pages).startswith("one\na\n\ntwo\nb\n\nthree\nc\n\ntiny · ")


def test_a_caption_takes_three_lines_at_most() -> None:
    long = Caption("m", "文字" * 60 + "\nmore", "out", "command", "python", "2026-11-30")
    lines = Terminal(40).text(Page("t", ()).captioned(long)).splitlines()
    assert lines[:3] == ["t", "", "m · 2026-11-30"] and lines[4:] == ["command"]
    assert width(lines[3]) <= 40 and lines[3].endswith("…")
    assert Terminal().text(Page("t", ()).captioned(Caption(output="b"))) == "t\n\nb"


def test_words_are_never_cut() -> None:
    assert folded(["aaa", "bb", "cccc", "好久不见"], 7) == ["aaa bb", "cccc", "好久不见"]
    lines = (
        Terminal(40).text(Line("tokens", ["longer", "words", "than", "fit", "here", "x" * 20])).splitlines()
    )
    assert lines == ["tokens       longer words than fit here", 13 * " " + 20 * "x"]


def test_prose_breaks_at_spaces_and_between_chinese_characters() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("这是依赖，不是目的。", 10) == ["这是依赖，", "不是目的。"]
    # No line begins with a comma.
    assert wrapped("这是依赖，不是目的。", 8) == ["这是依", "赖，不是", "目的。"]
    assert wrapped("用 --layer N 看一层", 8) == ["用", "--layer", "N 看一层"]
    assert wrapped("（见下文）", 6) == ["（见下", "文）"]
    assert wrapped("a\nb", 10) == ["a", "b"]
    assert wrapped("", 10) == [""]
    told = "用掩码遮住某个原文词元后，该词元的对数概率下降多少；这是依赖，不是用途。" * 3
    for columns in range(20, 60):
        cell = Table([Column("a"), Column("b")], [["x", told]])
        for text in (Terminal(columns).text(Remark(told)), Terminal(columns).text(cell)):
            assert not any(line.lstrip()[:1] in "，。、；" for line in text.splitlines() if line)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "en"), ({"LANG": "zh_CN.UTF-8"}, "zh"), ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"), ({"LANG": "de_DE"}, "en"),
    ],
)  # fmt: skip
def test_the_locale_decides(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expected: Locale
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    text = Terminal(locale=reader_locale()).text(Page(both("yes", "是"), ()))
    assert text == {"en": "yes", "zh": "是"}[expected]


MEASURED = Table(
    [Column("token"), Column("without", "right"), Column("with", "right"), Column("divergence", "right")],
    [["▁yesterday", "0.641", "0.577", "0.014"], ["</s>", "0.897", "0.890", "0.002"]],
)


def test_a_table_that_is_too_wide_is_broken_between_columns_and_never_inside_a_number() -> None:
    assert Terminal(30).text(MEASURED).splitlines() == [
        "token        without    with", "────────────────────────────", "▁yesterday     0.641   0.577",
        "</s>           0.897   0.890", "", "token        divergence", "───────────────────────",
        "▁yesterday        0.014", "</s>              0.002",
    ]  # fmt: skip


def test_columns_of_one_kind_are_spread_evenly_over_the_blocks() -> None:
    heads = Matrix(np.ones((1, 12)), ["0"], [f"h{n}" for n in range(12)], "layer", "head", "nats", "signed")
    for columns, counts in ((100, [13]), (80, [7, 7])):
        lines = Terminal(columns).text(heads).splitlines()
        assert [len(line.split()) for line in lines if line.startswith("layer")] == counts


def test_prose_in_a_last_column_is_wrapped_where_it_has_room() -> None:
    prose = Table([Column("beam"), Column("text")], [["1", "I borrowed a book about history yesterday."]])
    lines = Terminal(40).text(prose).splitlines()
    assert lines[2:] == ["1      I borrowed a book about history", "       yesterday."]


@pytest.mark.parametrize(("columns", "most"), [(80, 24), (30, 14), (18, 0)])
def test_bars_are_as_long_as_there_is_room(columns: int, most: int) -> None:
    bars = Table([Column("head"), Column("effect", "right"), Column("")], [["2.13", "+0.5", Bar(1.0)]])
    last = Terminal(columns).text(bars).splitlines()[-1]
    assert last == f"2.13     +0.5   {most * '█'}".rstrip()


def test_a_line_is_free_between_two_figures() -> None:
    lines = Terminal().text(Page("two", (MEASURED, MEASURED))).splitlines()
    assert lines.count("") == 1 and lines[lines.index("") + 1].startswith("token")


def test_lines_to_copy_stay_whole_and_what_they_are_for_is_a_remark_of_the_shell() -> None:
    long = "cutaway inspect " + "x" * 90
    code = Code("where each word looked, and what it depends on", f"{long}\nprint(1 < 2)")
    lines = Terminal(40).text(Page("next", (code, Code("hidden", "y", drawn=True)))).splitlines()
    assert lines == ["next", "# where each word looked, and what it", "# depends on", long, "print(1 < 2)"]


SIX = Bars([4.0, 2.0, 1.0, 0.5, 0.125, 0.0], both("value", "值"), "σ")


def test_upright_bars_are_as_high_as_their_values() -> None:
    lines = Terminal(8).text(SIX).splitlines()
    assert lines == ["█", "█", "██", "███▄▁", "value 0", "to 5", "across,", "σ up to", "4"]
    assert Terminal(8, unicode=False, locale="zh").text(SIX).splitlines()[:4] == ["#", "#", "##", "###"]
    assert Terminal(40).text(SIX).splitlines()[0] == 6 * "█"
    many = Bars([float(n < 100) for n in range(200)], "value", "σ")
    lines = Terminal(40).text(many).splitlines()
    assert lines == [20 * "█"] * 4 + ["value 0 to 199 across, σ up to 1"]
    for values in ([], [0.0, 0.0]):
        assert Terminal(40).text(Bars(values, "x", "y")).splitlines()[:4] == [""] * 4


def shades(
    source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], columns: int = 80
) -> list[str]:
    values = np.array(weights, dtype=float).reshape(len(target), len(source))
    return Terminal(columns).text(Matrix(values, target, source, DOWN, ACROSS, UNIT)).splitlines()


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_every_cell_of_a_heat_map_is_drawn(columns: int) -> None:
    source, target = [f"词{i}" for i in range(40)], [f"piece{i}" for i in range(30)]
    lines = shades(source, target, [[float(i == j) for j in range(40)] for i in range(30)], columns)
    assert max(map(width, lines)) <= columns
    assert all(any(piece in line.split() for line in lines) for piece in [*source, *target])
    assert sum("█" in line for line in lines[:-1]) == 30


def test_a_heat_map_is_turned_when_that_needs_fewer_blocks() -> None:
    lines = shades(["internationalisation"] * 12, ["我", "们"], [[1 / 12] * 12] * 2)
    assert lines[0].split() == ["我", "们"] and lines[-1].startswith("source down, target across")


def test_long_pieces_are_cut_with_a_mark_and_nothing_is_drawn_as_nothing() -> None:
    [head, row, *_] = shades(["supercalifragilistic"], ["好" * 10], [[1.0]])
    assert head.split() == ["supercalifrag…"] and row.split() == ["好好好好好好…", "█" * 14]
    assert shades([], [], [])[-1].startswith("target down")


def test_the_shades_reach_to_the_greatest_value_given() -> None:
    matrix = Matrix(np.array([[0.4, 2.0]]), ["0"], ["aa", "bb"], "layer", "head", "norm", greatest=2.0)
    lines = Terminal().text(matrix).splitlines()
    assert lines[1] == "0 ░░ ██" and lines[-1].endswith("░ 0.20  ▒ 0.50  ▓ 1.00  █ 1.50")


SQUARE = Points(
    [Point(0, 0, "左下"), Point(1, 0, "b"), Point(1, 1, "c", 1), Point(0, 1, both("top", "上"), 1)],
    both("a rather long name of the axis that goes across", "横轴的一个相当长的名字，长到一行放不下为止"),
    "up",
    groups=("first", both("second", "第二组")),
)


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_a_plane_uses_all_its_rows_and_no_more_columns(locale: Locale) -> None:
    lines = Terminal(40, locale=locale).text(SQUARE).splitlines()
    assert lines[0].startswith("×上" if locale == "zh" else "×top") and lines[0].endswith("×c")
    assert lines[PLANE_HIGH - 1].startswith("•左下") and lines[PLANE_HIGH - 1].endswith("•b")
    # As wide as high: a character is twice as high as wide.
    assert width(lines[0].removesuffix("c")) == 1 + 2 * (PLANE_HIGH - 1)
    assert max(map(width, lines)) <= 40
    assert lines[PLANE_HIGH].split() == ["•", "first", "×", "第二组" if locale == "zh" else "second"]


def test_the_same_label_at_the_same_place_is_said_once_and_what_has_no_room_is_counted() -> None:
    start = Points([Point(0, 0, "start"), Point(0, 0, "start", 1), Point(1, 1, "end")], "x", "y")
    text = Terminal(40).text(start)
    assert text.count("start") == 1 and "without room" not in text
    crowded = Points([Point(0, 0, f"label{n}") for n in range(9)], "x", "y")
    assert Terminal(40).text(crowded).splitlines()[-1] == "labels without room: 8"


def test_a_nasty_text_is_data() -> None:
    assert Terminal().text(Remark(f"[bold]{NASTY}[/bold] :smile:")) == f"[bold]{NASTY}[/bold] :smile:"
