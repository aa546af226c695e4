"""A page as HTML: whole by itself, in one language, with the very values, for eyes, ears and a notebook."""

import json
import re
from importlib.resources import files

import numpy as np
import pytest
from tests.limits import takes_less_than
from tests.page.reading import Reader, halves, images
from tests.page.sample import (
    CAPTION,
    EFFECTS,
    ESCAPE,
    MAP,
    NASTY,
    SOURCE,
    SPELLED,
    TARGET,
    WEIGHTS,
    both,
    sample,
)

from cutaway.page.blocks import (
    Atlas,
    Bar,
    Caption,
    Code,
    Column,
    Edited,
    Heading,
    Line,
    Matrix,
    Page,
    Points,
    Prose,
    Remark,
    Shaded,
    Table,
    Tinted,
    page,
)  # fmt: skip
from cutaway.page.colours import LAST, tint
from cutaway.page.drawn import Drawn
from cutaway.page.html import document, fragment
from cutaway.words import Locale

STYLE = files("cutaway.page").joinpath("style.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_a_document_is_whole_by_itself_and_in_one_language(locale: Locale) -> None:
    text = document(sample(), locale)
    read = Reader(text)
    addresses = [
        each[name] for _, each in read.tags for name in ("href", "src", "srcset", "action") if name in each
    ]
    assert addresses and all(address.startswith("data:") for address in addresses)
    assert "@import" not in text and "url(" not in text
    told = "".join(read.texts)
    words = {"en": ("Where it looked", "Effects", "Numbers"), "zh": ("它看向哪里", "影响", "数值")}
    assert all(word in told for word in words[locale])
    assert not any(word in told for word in words["zh" if locale == "en" else "en"])
    assert told.count(NASTY) == 2 and NASTY not in text
    assert read.tags[0] == ("html", {"lang": locale})
    assert read.inside["title"][0] == read.inside["h2"][0] == words[locale][0]
    assert read.inside["h3"] == {
        "en": ["Effects", "Every head", "In a plane"], "zh": ["影响", "每一个头", "平面图"]
    }[locale]  # fmt: skip


def test_blocks_become_the_elements_that_they_are() -> None:
    made = page(
        "t",
        [
            Prose("text", "line one\nline two"),
            Line("writes", [Tinted("▁Long", 0.25, hint=NASTY), "</s>"], both("chance", "可能")),
            Table(
                [Column("token"), Column("p", "right"), Column("")],
                [["a  b c", Tinted("-1", -0.5, "signed"), Bar(0.25)]],
            ),
            Shaded("share", ["▁Long", "▁time"], [0.5, -1.25], "nats"),
            Edited(
                [
                    ("equal", ["a"], ["a"]),
                    ("delete", ["b"], []),
                    ("insert", [], ["c"]),
                    ("replace", ["d"], ["e"]),
                ]
            ),
            Code("to copy", "print(1 < 2)\n"),
        ],
    )
    read = Reader(fragment(made, "en"))
    assert read.inside["p"][0] == "textline one\nline two"
    [long] = read.all("bdi", title=NASTY)
    assert long == {"class": "token", "style": f"background:{tint(0.25, 'weight')}", "title": NASTY}
    assert read.all("td") == [{}, {"class": "right", "style": f"background:{tint(-0.5, 'signed')}"}, {}]
    # A line breaks between what two spaces set apart.
    assert read.inside["td"] == ["a  b\u00a0c", "-1", ""]
    assert read.all("span", class_="bar") == [{"class": "bar", "style": "width:2.50em"}]
    tinted = [
        each["style"] for each in read.all("bdi", class_="token") if each.get("title") in ("+0.50", "-1.25")
    ]
    assert tinted == [f"background:{tint(0.4, 'signed')}", f"background:{tint(-1.0, 'signed')}"]
    assert (read.inside["del"], read.inside["ins"]) == (["b"], ["c"]) and "[d → e]" in read.inside["span"]
    assert read.inside["code"] == ["print(1 < 2)\n"]
    # What no colour is seen of needs no legend.
    assert [" ".join(each.split()) for each in read.inside["small"]] == [
        "01 chance (square-root scale)",
        "−+ nats, ±1.25",
    ]


def test_a_page_carries_the_values_that_the_pointer_reads() -> None:
    text = fragment(sample(), "en")
    read = Reader(text)
    weights, effects, atlas = (
        read.all("figure")[0],
        read.all("figure")[1],
        read.all("figure", class_="atlas")[0],
    )
    np.testing.assert_allclose(halves(weights["data-values"]).reshape(WEIGHTS.shape), WEIGHTS, atol=5e-4)
    np.testing.assert_allclose(halves(effects["data-values"]).reshape(EFFECTS.shape), EFFECTS, rtol=5e-4)
    assert atlas["data-values"] == weights["data-values"] and atlas["data-name"] == "0.0"
    assert (json.loads(weights["data-rows"]), json.loads(weights["data-columns"])) == (TARGET, SOURCE)
    small = read.all("g", role="button")
    np.testing.assert_allclose(halves(small[1]["data-values"]).reshape(WEIGHTS.shape), 1 - WEIGHTS, atol=5e-4)
    cells = np.rint(np.sqrt(WEIGHTS) * LAST)
    drawn = [each for each in images(text) if each.shape == WEIGHTS.shape and (each == cells).all()]
    # alone, small and large
    assert len(drawn) == 3


def test_the_opened_map_of_an_atlas_can_be_chosen() -> None:
    maps = [Matrix(WEIGHTS * k, TARGET, SOURCE, "down", "across", "unit") for k in (0.1, 1.0)]
    read = Reader(fragment(page("two", [Atlas(["weak", "strong"], maps, 2, opened=1)]), "en"))
    [figure] = read.all("figure")
    assert figure["data-name"] == "strong"
    np.testing.assert_allclose(halves(figure["data-values"]).reshape(WEIGHTS.shape), WEIGHTS, atol=5e-4)


def test_numbers_of_a_heat_map_are_a_table_that_is_folded_away() -> None:
    read = Reader(fragment(page("t", [Matrix(EFFECTS, TARGET, SOURCE, "d", "a", "u", "signed")]), "zh"))
    assert read.inside["summary"] == ["数值"]
    assert read.inside["td"] == [
        "1.500", "-0.250", "0.000", "−∞", "-3.000", "0.004", "NaN", "2.000", "0.500", "0.500", "0.500", "0.500"
    ]  # fmt: skip
    assert [each.get("scope") for each in read.all("th")] == [None, *4 * ["col"], *3 * ["row"]]
    wide = Matrix(np.zeros((1, 25)), ["a"], [f"{n}" for n in range(25)], "d", "a", "u")
    assert Reader(fragment(page("t", [wide]), "en")).all("details") == []


def test_a_caption_is_seen_and_the_python_is_folded_away() -> None:
    made = (
        sample().captioned(CAPTION).explained([("nats", both("units of log-probability", "对数概率的单位"))])
    )
    read = Reader(document(made, "zh"))
    names = ["模型", "文字", "输出", "日期", "命令"]
    values = ["tiny", f"好久不见 {NASTY}", "Long time no see", "2026-11-30", "cutaway inspect align"]
    assert (read.inside["dt"][:5], read.inside["dd"][:5]) == (names, values)
    assert (read.inside["dt"][5:], read.inside["dd"][5:]) == (["nats"], ["对数概率的单位"])
    assert read.inside["details"][-1] == "用 Python 得到同样的数值" + (CAPTION.python or "")
    [told] = read.all("meta", name="cutaway")
    assert json.loads(told["content"]) == {
        "model": "tiny", "text": f"好久不见 {NASTY}", "output": "Long time no see",
        "command": "cutaway inspect align", "date": "2026-11-30",
    }  # fmt: skip
    assert not Reader(document(sample(), "en")).all("dl")
    some = Reader(document(sample().captioned(Caption(model="m")), "en"))
    assert (some.inside["dt"], some.inside["dd"]) == (["model"], ["m"])


def test_what_needs_the_width_has_it() -> None:
    many = [f"token{n}" for n in range(60)]
    broad = Matrix(np.zeros((2, 60)), ["a", "b"], many, "d", "a", "u")
    small = Table([Column("a")], [["1"]])
    made = page("t", [MAP, Heading("two"), small, Heading("three"), broad, Heading("four"), Remark("x")])
    assert [each.get("class") for each in Reader(fragment(made, "en")).all("section")] == [
        None,
        None,
        "broad",
        None,
    ]
    # Every figure and table scrolls in a box of its own.
    read = Reader(fragment(sample(), "en"))
    assert len(read.all("div", class_="wide")) == len(read.all("svg")) + len(read.all("table"))


def test_what_comes_from_outside_is_spelled_out() -> None:
    one = Matrix(np.ones((1, 1)), [ESCAPE], [ESCAPE], ESCAPE, ESCAPE, ESCAPE)
    made = page(
        ESCAPE,
        [
            Heading(ESCAPE), Remark(ESCAPE), Line(ESCAPE, [ESCAPE, Tinted(ESCAPE, 1.0, hint=ESCAPE)], ESCAPE),
            Prose(ESCAPE, ESCAPE), Code(ESCAPE, ESCAPE), Table([Column(ESCAPE)], [[ESCAPE]]), one,
            Atlas([ESCAPE], [one], 1), Shaded(ESCAPE, [ESCAPE], [1.0], ESCAPE),
            Edited([("replace", [ESCAPE], [ESCAPE])]),
        ],
    ).captioned(Caption(*[ESCAPE] * 6)).explained([(ESCAPE, ESCAPE)])  # fmt: skip
    text = document(made, "en")
    assert not {"\x1b", "\u202e", "\x00"} & set(text)
    assert Reader(text).inside["h2"] == [SPELLED]


def test_a_script_in_a_text_is_no_script() -> None:
    attack = "</script><script>alert(1)</script>{{ 7 * 7 }}<img src=x onerror=alert(1)>\"'"
    one = Matrix(np.ones((1, 1)), [attack], [attack], attack, attack, attack)
    made = page(
        attack, [one, Atlas([attack], [one], 1), Table([Column(attack)], [[Tinted(attack, 1, hint=attack)]])]
    )
    read = Reader(document(made.captioned(Caption(*[attack] * 6)), "en"))
    assert len(read.inside["script"]) == 1 and not read.all("img")
    assert read.inside["h2"] == [attack] and attack in read.inside["td"]


def test_nothing_to_draw_is_drawn() -> None:
    empty = Matrix(np.zeros((0, 0)), [], [], "down", "across", "unit")
    made = page("nothing", [empty, Atlas([], [], 4), Table([Column("a")], []), Points([], "x", "y")])
    assert len(Reader(fragment(made, "en")).all("svg")) == 2


class Heads(Drawn):
    """All heads of 12 layers at 128 tokens."""

    def page(self) -> Page:
        pieces = [f"词{place}" for place in range(128)]
        weights = np.random.default_rng(0).dirichlet(np.full(128, 0.05), (12, 12, 128))
        maps = [Matrix(each, pieces, pieces, "query", "key", "weight") for layer in weights for each in layer]
        return page("heads", [Atlas([f"{n // 12}.{n % 12}" for n in range(144)], maps, 12)])


def test_128_tokens_and_144_heads_do_not_freeze_a_notebook() -> None:
    with takes_less_than(8):
        text = Heads()._repr_html_()
    assert len(text) < 12_000_000
    # A browser's cost are elements, not pixels.
    assert text.count("<text") < 1000


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_every_drawing_has_a_role_and_says_what_it_shows(locale: Locale) -> None:
    drawings = Reader(fragment(sample(), locale)).all("svg")
    assert [each["role"] for each in drawings] == ["img", "img", "img", "group", "img", "group"]
    told = [each["aria-label"] for each in drawings]
    expected = {
        "en": "Heat map: target down, source across; weight", "zh": "热力图：纵向为译文，横向为原文；权重"
    }  # fmt: skip
    assert told[0] == told[3] == told[4] == expected[locale] and all(told)


def test_a_map_of_an_atlas_is_a_button_and_the_one_shown_large_is_pressed() -> None:
    read = Reader(fragment(sample(), "en"))
    buttons = [
        (each["tabindex"], each["aria-pressed"], each["aria-label"]) for each in read.all("g", role="button")
    ]
    # One stop of the tab key; arrows lead on.
    assert buttons == [("0", "true", "0.0"), ("-1", "false", "0.1")]


def test_one_scale_for_an_atlas_and_its_large_map() -> None:
    figure = fragment(sample(), "en").split('<figure class="atlas"', 1)[1].split("</figure>")[0]
    small, large = figure.split("<figcaption>")
    assert ">0.25</text>" in small and ">0.25</text>" not in large


def test_every_rule_outweighs_those_of_a_notebook() -> None:
    """JupyterLab aligns cells by a selector of two classes and a type; an id, though none, outweighs any of those."""
    rules = re.sub(r"/\*.*?\*/", "", STYLE, flags=re.DOTALL)
    depth, outside = 0, ""
    for character in rules:
        depth += (character == "{") - (character == "}")
        outside += character if depth == 0 else ""
        assert depth >= 0
    assert depth == 0 and outside.replace("}", "").split() == [".cutaway:not(#_)"]
    for said in ("text-align: left", "white-space: nowrap", "background: none", "max-width: none"):
        assert said in rules
    assert all(
        f"@media {kind}" in rules for kind in ("print", "(forced-colors: active)", "(max-width: 600px)")
    )
