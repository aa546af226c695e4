"""Every question of every bundled model in the browser: nothing that its page says is missing."""

import json
import re
from typing import Any

import pytest
from tests.browser.conftest import Open, Screen
from tests.serve.test_answers import TEXTS, asked, needed, words

from cutaway.inspection.question import find_question
from cutaway.words import LOCALES
from cutaway.zoo import TRANSLATOR

# All that is written on the page or said of its parts, without spaces.
ALL = """() => [
  document.querySelector("article").textContent,
  ...[...document.querySelectorAll("article *")].flatMap((each) =>
    ["aria-label", "title", "aria-description", "placeholder"].map((name) => each.getAttribute(name) ?? "")),
].join("\\n").replace(/\\s+/g, "")"""


def show(screen: Screen, model: str, question: str) -> dict[str, Any]:
    """Ask it by a link, as a reader would; the page as it was sent."""
    text = TEXTS[model] if find_question(question).subject == "text" else None
    options = "".join(f"&{name}={json.dumps(value)}" for name, value in needed(question, model).items())
    place = f"#/ask/{question}?m={model}{'' if text is None else f'&text={text}'}{options}"
    screen.page.evaluate("(place) => { location.hash = encodeURI(place) }", place)
    # The question's name stands above its answer.
    screen.page.wait_for_selector(f".view header code:text-is('{question}')")
    screen.page.wait_for_selector(".answer[aria-busy=false] article, .wrong", timeout=60_000)
    assert screen.page.locator(".wrong").count() == 0, screen.page.locator(".wrong").inner_text()
    name, body = screen.asked[-1].split(" ", 1)
    assert name == question
    return json.loads(screen.server.post(f"api/v1/answers/{question}", body).splitlines()[-1])["answer"][
        "page"
    ]


@pytest.mark.parametrize(
    "model",
    [pytest.param(each, marks=() if each == TRANSLATOR else pytest.mark.slow) for each in TEXTS],
)
def test_all_words_of_a_page_are_in_the_browser(open_screen: Open, model: str):
    """B15: in both languages; a block of an unknown kind would lack them."""
    screen = open_screen(f"#/ask?m={model}")
    wrong = []
    for question in (question for other, question in asked() if other == model):
        page = show(screen, model, question)
        for locale in LOCALES:
            if screen.page.locator("html").get_attribute("lang") != {"en": "en", "zh": "zh-Hans"}[locale]:
                screen.page.get_by_role("button", name={"en": "English", "zh": "中文"}[locale]).click()
            shown = screen.page.evaluate(ALL)
            lacking = {each for each in words(page, locale) if re.sub(r"\s+", "", each) not in shown}
            wrong += [f"{question}, {locale}: {each!r}" for each in sorted(lacking)[:5]]
    assert not wrong, "\n".join(wrong)
