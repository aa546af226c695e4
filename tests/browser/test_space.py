"""The space of words: what the page lists is exact, and what it draws can be turned, pointed at and told apart."""

import re
from functools import cache

import numpy as np
import pytest
from playwright.sync_api import Locator, expect
from tests.browser.conftest import WORDS, Open, Screen, opened_model

from cutaway import zoo
from cutaway.checkpoint.word_vectors import load_vectors
from cutaway.inspection.questions.drift import drift
from cutaway.inspection.runs import run


@cache
def vectors() -> tuple[list[str], np.ndarray]:
    """The words, and their vectors of length 1."""
    opened = load_vectors(zoo.find(WORDS))
    rows = opened.vectors.detach().double().numpy()
    return list(opened.words.words), rows / np.linalg.norm(rows, axis=1, keepdims=True)


def listed(within: Locator) -> list[tuple[str, float]]:
    """The words of a list with their nearness, in order."""
    return [
        (row.locator("bdi").inner_text(), float(row.locator("data").get_attribute("value") or "nan"))
        for row in within.locator("[data-near]").all()
    ]


def check_nearest(within: Locator, to: np.ndarray, count: int, without: list[str]) -> None:
    """That a list shows the words nearest to a vector, and no others."""
    words, rows = vectors()
    cosines = rows @ (to / np.linalg.norm(to))
    order = [int(id) for id in np.argsort(-cosines, kind="stable") if words[id] not in without]
    shown = listed(within)
    assert [word for word, _ in shown] == [words[id] for id in order[:count]]
    assert [cosine for _, cosine in shown] == pytest.approx(cosines[order[:count]], abs=1e-6)


def picture(screen: Screen) -> str:
    return screen.page.evaluate("document.querySelector('.picture canvas').toDataURL()")


def test_neighbours_are_those_of_the_full_space(open_screen: Open):
    """B11: also of a word that was chosen in the drawing, where others lie nearer to it."""
    words, rows = vectors()
    screen = open_screen(f"#/?m={WORDS}")
    # word vectors open with their space
    assert screen.page.locator("header nav a[aria-current=page]").inner_text() == "Space"
    screen.page.locator("#text").fill("king")
    screen.page.locator("#text").press("Enter")
    screen.page.wait_for_url(re.compile("token="))
    screen.settle()
    side = screen.page.locator(".side")
    check_nearest(side, rows[words.index("king")], 12, ["king"])
    # a point is told by its word, and chosen by a click
    word = next(each for each in listed(side) if each[0] == "queen")[0]
    circle = screen.page.locator(".picture circle").nth(1 + [each[0] for each in listed(side)].index(word))
    box = circle.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    screen.page.mouse.move(*middle)
    expect(screen.page.locator(".picture .pointed")).to_have_text(word)
    screen.page.mouse.click(*middle)
    screen.page.wait_for_url(re.compile("queen"))
    screen.settle()
    check_nearest(side, rows[words.index(word)], 12, [word])


def test_an_analogy_has_the_ranks_of_an_independent_calculation(open_screen: Open):
    """B10: the three words that are left out are shown with the ranks that they have."""
    words, rows = vectors()
    screen = open_screen(f"#/space?m={WORDS}")
    asked = ["walking", "walk", "swim"]
    for name, word in zip("abc", asked, strict=True):
        screen.page.locator(f".sum input[name={name}]").fill(word)
    screen.page.locator(".sum button[type=submit]").click()
    screen.page.wait_for_url(re.compile("walking"))
    screen.settle()
    a, b, c = (rows[words.index(word)] for word in asked)
    target = a - b + c
    section = screen.page.locator(".sum")
    check_nearest(section, target, 10, asked)
    assert listed(section)[0][0] == "swimming"
    cosines = rows @ target
    table = section.locator("table").first.locator("tbody tr")
    for row, word in zip(table.all(), asked, strict=True):
        rank = 1 + int((cosines > cosines[words.index(word)]).sum())
        cells = row.locator("th, td").all_inner_texts()
        assert word in cells[1] and cells[2].strip() == f"{rank:,}" and cells[3].strip() == "left out"
    # both differences are arrows in the cloud
    assert screen.page.locator(".picture .arrow").count() == 2
    assert sorted(screen.page.locator(".picture text").all_text_contents()) == sorted([*asked, "swimming"])


def test_the_space_by_keyboard(open_screen: Open):
    screen = open_screen(f"#/ask?m={WORDS}")
    screen.page.keyboard.press("g")
    screen.page.keyboard.press("s")
    screen.page.wait_for_url(re.compile("#/space"))
    screen.settle()
    drawing = screen.page.get_by_role("application")
    drawing.focus()
    seen = [picture(screen)]
    for key in ("ArrowRight", "ArrowUp", "+", "0"):
        screen.page.keyboard.press(key)
        seen.append(picture(screen))
    assert len(set(seen)) == 4 and seen[0] == seen[-1]
    screen.page.keyboard.press("/")
    screen.page.keyboard.type("paris")
    screen.page.keyboard.press("Enter")
    expect(screen.page.locator(".side h2")).to_contain_text("paris")
    screen.settle()
    screen.page.locator(".side [data-near] a").first.focus()
    first = screen.page.locator(".side [data-near] bdi").first.inner_text()
    screen.page.keyboard.press("Enter")
    expect(screen.page.locator(".side h2")).to_contain_text(first)
    screen.settle()
    screen.page.keyboard.press("Escape")
    expect(screen.page.locator(".groups li")).to_have_count(5)
    # a word that is not there is answered with the nearest one that is
    screen.page.route("**/answers/neighbours", lambda route: route.fulfill(status=500, body="-"), times=1)
    screen.page.locator("#text").fill("queen")
    screen.page.keyboard.press("Enter")
    screen.page.locator(".problem button").click()
    expect(screen.page.locator(".side h2")).to_contain_text("queen")
    screen.forgive("status of 500")
    screen.page.locator("#text").fill("kingg")
    screen.page.keyboard.press("Enter")
    expect(screen.page.get_by_role("alert")).to_contain_text("'king'")
    screen.forgive("status of 400")


def test_a_word_in_two_sentences(open_screen: Open):
    """Layer by layer, with the library's cosines; the vocabulary of a Transformer is such a space too."""
    screen = open_screen(f"#/space?m={zoo.TRANSLATOR}")
    assert screen.page.get_by_role("application").count() == 1
    section = screen.page.locator(".drift")
    text, other, word = (
        section.locator(f"input[name={name}]").input_value() for name in ("text", "other", "word")
    )
    loaded = opened_model(zoo.TRANSLATOR)
    expected = drift(run(loaded, text), run(loaded, other), word).cosines.tolist()
    rows = section.locator("table").first.locator("tbody tr").all()
    shown = [float(row.locator("th, td").nth(1).inner_text()) for row in rows]
    assert word == "bank" and shown == pytest.approx(expected, abs=6e-4) and shown[-1] < 0.8
    section.locator("input[name=word]").fill("money")
    section.locator("button[type=submit]").click()
    expect(section.get_by_role("alert")).to_contain_text("'money'")
    screen.forgive("status of 400")
