"""The first screen: what a model read and wrote, where it looked, and what happens when a word is covered."""

import re

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import PHONE, Open, opened_model

from cutaway import zoo
from cutaway.inspection.questions.cover import Cover, cover
from cutaway.words import LOCALES, Locale, Text, said

MODELS = (zoo.TRANSLATOR, zoo.POET, zoo.MASKED)
BEIJING = "她的妹妹在北京工作。"


def example(model: str) -> tuple[str, tuple[int, ...]]:
    """A bundled model's first text, and the tokens of it to cover."""
    first = zoo.examples(model)[0]
    options = first["options"]
    assert isinstance(options, dict)
    return str(first["text"]), tuple(options["hide"])


def place(model: str, text: str, hide: tuple[int, ...] = ()) -> str:
    hidden = f"&hide={','.join(map(str, hide))}" if hide else ""
    return f"#/?m={model}&text={text}{hidden}"


def inner(text: Text, locale: Locale) -> str:
    """A text as a browser has it: its spaces folded."""
    return re.sub(r"\s+", " ", said(text, locale)).strip()


# Clicks word after word of what was written, and notes what is said of each, and of each word that was read.
READ_ALL = """async () => {
  const found = [];
  for (const word of document.querySelectorAll("[data-target]")) {
    word.click();
    await new Promise(requestAnimationFrame);
    found.push([
      [...document.querySelectorAll(".said p.told")].at(-1).innerText,
      [...document.querySelectorAll("[data-source]")].map((each) => each.textContent),
    ]);
  }
  return found;
}"""


@pytest.mark.parametrize(
    "model", [pytest.param(each, marks=() if each == zoo.TRANSLATOR else pytest.mark.slow) for each in MODELS]
)
def test_what_is_shown_are_the_numbers_of_the_library(open_screen: Open, model: str):
    """B14: in three families, covered and not, in both languages, each word with its sentence and its shares."""
    text, hide = example(model)
    screen = open_screen(go=False, lang="zh")
    for hidden in ((), hide):
        expected = cover(opened_model(model), text, hide=hidden)
        screen.go(place(model, text, hidden))
        assert screen.lit() == expected.light
        for locale in LOCALES:
            if screen.page.locator("html").get_attribute("lang") != {"en": "en", "zh": "zh-Hans"}[locale]:
                screen.page.get_by_role("button", name={"en": "English", "zh": "中文"}[locale]).click()
            assert screen.read() == [said(each.name, locale) for each in expected.source]
            assert screen.written() == [said(each.name, locale) for each in expected.target]
            assert screen.covered() == [at for at in range(len(expected.source)) if is_covered(expected, at)]
            if expected.sentence is not None:
                assert inner(expected.sentence, locale) in inner(
                    screen.page.locator(".said").inner_text(), locale
                )
            for at, (told, words) in enumerate(screen.page.evaluate(READ_ALL)):
                assert inner(told, locale) == inner(expected.told[at], locale)
                weights = expected.weights[at].half().tolist()
                for place_, (word, weight) in enumerate(zip(words, weights, strict=True)):
                    shares = [each.replace(" ", "") for each in re.findall(r"(?:< ?)?\d+ ?%", word)]
                    assert set(shares) == (set() if is_covered(expected, place_) else {percent(weight)})


def is_covered(shown: Cover, at: int) -> bool:
    return bool(set(range(*shown.source[at].tokens)) & set(shown.hidden))


def percent(share: float) -> str:
    return "<1%" if 0 < share < 0.005 else f"{int(100 * share + 0.5)}%"


def test_covering_a_word_writes_anew_and_uncovering_brings_it_back(open_screen: Open):
    screen = open_screen(lang="zh")
    before = screen.written()
    assert before == ["Her", "sister", "works", "in", "Beijing", ".", "结束"]
    at = screen.read().index("北")

    screen.source(at).click()
    screen.settle()
    assert screen.written() == ["Her", "sister", "works", "in", "Kyoto", ".", "结束"]
    assert screen.page.locator("del").all_text_contents() == ["消失：Beijing"]
    changed = screen.page.locator("[data-target].changed bdi").all_inner_texts()
    assert changed == ["Kyoto"]
    assert "hide=4" in screen.hash

    screen.source(at).click()
    screen.settle()
    assert screen.written() == before
    assert screen.page.locator("del").count() == 0
    assert len(screen.asked) == 2


def test_a_word_under_the_pointer_is_lit_for_as_long_as_it_is_there(open_screen: Open):
    screen = open_screen(lang="zh")
    lit, said_before = screen.lit(), screen.said()
    screen.target(0).hover()
    assert screen.lit() == 0
    assert screen.said() != said_before
    screen.page.mouse.move(5, 5)
    assert (screen.lit(), screen.said()) == (lit, said_before)


def test_ribbons_divide_the_word_they_lead_to_by_their_shares(open_screen: Open):
    screen = open_screen(lang="zh")
    expected = cover(opened_model(zoo.TRANSLATOR), BEIJING)
    assert expected.light is not None
    weights = expected.weights[expected.light].tolist()
    paths = screen.page.locator(".ribbons path").evaluate_all(
        "each => each.map((path) => path.getAttribute('d'))"
    )
    numbers = [[float(n) for n in re.findall(r"[\d.]+", path)] for path in paths]
    box = screen.target(expected.light).bounding_box()
    assert box is not None
    breadth = min(box["width"] - 8, 150)
    drawn = [share for share in weights if share >= 0.004]
    # Each is given to a tenth of a pixel.
    assert [each[8] - each[6] for each in numbers] == pytest.approx(
        [max(0.8, share * breadth) for share in drawn], abs=0.11
    )


def test_a_phone_shades_the_words_and_draws_no_ribbons(open_screen: Open):
    screen = open_screen(lang="zh", size=PHONE)
    assert screen.page.locator(".ribbons path").count() == 0
    shade = [
        float(each.evaluate("each => each.style.getPropertyValue('--share')"))
        for each in screen.page.locator("[data-source]").all()
    ]
    weights = cover(opened_model(zoo.TRANSLATOR), BEIJING).weights[screen.lit()].tolist()
    assert shade == pytest.approx([weight**0.5 for weight in weights], abs=1e-2)


def test_lines_of_a_poem_are_lines(open_screen: Open):
    text, _ = example(zoo.POET)
    screen = open_screen(place(zoo.POET, text), lang="zh")
    ends = [at for at, each in enumerate(screen.written()) if each == "⏎"]
    assert ends
    middles = [screen.target(at).bounding_box() for at in (ends[0], ends[0] + 1)]
    assert middles[0] is not None
    assert middles[1] is not None
    assert middles[1]["y"] > middles[0]["y"] + 20


def test_chips_lead_to_questions_about_what_is_shown(open_screen: Open):
    screen = open_screen(lang="zh")
    chips = {each.inner_text(): each.get_attribute("href") for each in screen.page.locator(".chips a").all()}
    assert chips["关于这句话的全部问题"] == "#/ask"
    assert chips["关掉一个头"] == "#/lab?preset=%22strongest%22"
    # ▁Be is written by the position that read ▁in: row 4; 北 is source token 4.
    weight = chips["这样一个权重怎么算出来？"] or ""
    assert weight == "#/flow?at=4&number=decoder.layers.3.cross_attn.pattern[0,0,4,4]"

    screen.page.get_by_role("button", name="遮住 北").click()
    screen.settle()
    assert screen.covered() == [4]
    screen.page.get_by_role("button", name="全部揭开").click()
    screen.settle()
    assert screen.covered() == []


@pytest.mark.parametrize("model", MODELS)
def test_each_chip_leads_to_an_answer(open_screen: Open, model: str):
    """Also where the weight is of the last word that was written."""
    screen = open_screen(place(model, example(model)[0]))
    screen.page.locator("[data-target]:not(.control)").last.click()
    links = [each.get_attribute("href") or "" for each in screen.page.locator(".chips a").all()]
    why, everything, weight, lab = links
    assert everything.startswith("#/ask?")
    assert screen.go(why).page.locator("[data-candidate].written").count() == 1
    expect(screen.go(weight).page.locator("[data-explained*='.pattern[']")).to_be_visible()
    expect(screen.page.locator("[data-agrees=true]")).to_be_visible()
    expect(screen.go(lab).page.locator(".lab [data-change]")).to_be_visible()
    assert screen.page.locator(".wrong").count() == 0


def test_the_old_answer_stays_dimmed_until_the_new_one_is_there(open_screen: Open):
    screen = open_screen(lang="zh")
    # Held for as long as the test goes on.
    screen.page.route("**/answers/cover", lambda _: None)
    screen.source(4).click()
    expect(screen.page.locator(".picture.old")).to_be_visible()
    assert screen.covered() == [4]
    assert "Beijing" in screen.written()
    expect(screen.page.get_by_role("button", name="取消")).to_be_visible()
    screen.page.get_by_role("button", name="取消").click()
    expect(screen.page.locator(".picture.old")).to_have_count(0)
    assert "已取消" in screen.said()[0]
