"""Changes and their effect: what the page shows is what the library says of the same list."""

import json

import pytest
from playwright.sync_api import Page
from tests.browser.conftest import Open, Screen, opened_model
from tests.browser.test_output import place

from cutaway import zoo
from cutaway.inspection.questions.diff import Comparison, diff
from cutaway.inspection.questions.sweep import sweep
from cutaway.inspection.runs import run

SENTENCE = "她的妹妹在北京工作。"
HEAD = {"op": "head", "side": "cross", "layer": 3, "head": 1}
LISTS = [
    [{"op": "hide", "token": [4, 5]}],
    [{"op": "pattern", "side": "*", "layer": "*", "head": "*", "kind": "uniform"}],
    [{"op": "scale"}, HEAD],
]


def lab(changes: list[dict[str, object]], model: str = zoo.TRANSLATOR, text: str = SENTENCE) -> str:
    return f"#/lab?m={model}&text={text}&changes={json.dumps(changes, separators=(',', ':'))}"


def numbers(page: Page, name: str) -> list[float]:
    return page.eval_on_selector_all(f"[data-token] .{name}", "found => found.map((each) => +each.value)")


def texts(page: Page) -> list[str]:
    return [page.locator(f"[data-text='{each}'] bdi").inner_text() for each in ("base", "changed")]


def shows(screen: Screen, expected: Comparison) -> None:
    """The numbers and words of a comparison stand there."""
    page = screen.page
    assert expected.base is not None and expected.changed is not None
    assert texts(page) == [expected.base.text, expected.changed.text]
    assert numbers(page, "difference") == pytest.approx(expected.difference.tolist(), rel=1e-3, abs=1e-3)
    assert numbers(page, "divergence") == pytest.approx(expected.divergence.tolist(), rel=1e-3, abs=1e-3)
    assert page.locator(".sentence").inner_text() == expected.told.said("en")
    for departure in expected.departures:
        there = page.locator(f"[data-departure='{departure.side}']")
        assert departure.told.said("en") in there.inner_text()


def test_what_is_shown_is_what_python_says(open_screen: Open):
    """B04: lists of three kinds, and the empty one; off and on again."""
    asked = run(opened_model(zoo.TRANSLATOR), SENTENCE)
    screen = open_screen(lab([]))
    page = screen.page
    shows(screen, diff(asked, []))
    assert set(numbers(page, "difference") + numbers(page, "divergence")) == {0}
    for changes in LISTS:
        place(screen, lab(changes))
        shows(screen, diff(asked, changes))
    # the last has two changes: the first off, both, and on again
    page.get_by_role("switch").first.click()
    assert "off=[0]" in screen.hash
    shows(screen.settle(), diff(asked, [HEAD]))
    page.get_by_role("switch").last.click()
    shows(screen.settle(), diff(asked, []))
    for switch in page.get_by_role("switch").all():
        switch.click()
    assert "off" not in screen.hash
    shows(screen.settle(), diff(asked, LISTS[-1]))


def test_a_preset_a_sweep_and_the_heads_it_offers(open_screen: Open):
    """The chip of the first screen leads to the strongest head, found by a sweep."""
    asked = run(opened_model(zoo.TRANSLATOR), SENTENCE)
    expected = sweep(asked)
    screen = open_screen(f"#/?m={zoo.TRANSLATOR}&text={SENTENCE}")
    page = screen.page
    page.get_by_role("link", name="Switch a head off").click()
    screen.settle()
    best = expected.ranking[0]
    assert f'"side":"{best.side}","layer":{best.layer},"head":{best.head}' in screen.hash
    assert "preset" not in screen.hash
    assert page.locator("[data-preset='strongest']").get_attribute("aria-pressed") == "true"
    shows(screen, diff(asked, [HEAD]))
    shown = page.eval_on_selector_all("[data-head] data", "found => found.map((each) => +each.value)")
    assert shown == pytest.approx([each.effect for each in expected.ranking[:8]], abs=1e-4)
    # in every layer
    page.get_by_role("button", name="In every layer").click()
    screen.settle()
    shows(screen, diff(asked, [{**HEAD, "layer": "*"}]))
    # a cell of the map, which says what it does, by keyboard
    assert "switched off" in page.locator("[data-sweep='cross'] .readout").inner_text()
    page.locator("[data-sweep='cross'] [role=grid]").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    screen.settle()
    assert screen.hash.endswith('{"op":"head","side":"cross","layer":1,"head":0}]')
    assert page.locator("[data-change]").count() == 2
    # moved, edited, removed
    page.get_by_role("button", name="Move change 2 up").click()
    page.get_by_role("button", name="Edit change 1").click()
    page.get_by_label("set", exact=True).fill("mean")
    page.get_by_label("set", exact=True).press("Enter")
    screen.settle()
    shows(
        screen,
        diff(
            asked,
            [{"op": "head", "side": "cross", "layer": 1, "head": 0, "set": "mean"}, {**HEAD, "layer": "*"}],
        ),
    )
    page.get_by_role("button", name="Remove change 2").click()
    assert page.locator("[data-change]").count() == 1
    screen.settle()


def test_twenty_steps_and_back_and_a_sweep_that_is_cancelled(open_screen: Open):
    """B29."""
    screen = open_screen(lab([HEAD]))
    page = screen.page
    seen = [screen.hash]
    for _ in range(20):
        page.get_by_role("button", name="Add a change").click()
        page.locator("[data-op='head']").click()
        seen.append(screen.hash)
    assert len(set(seen)) == 21
    page.locator("h2").first.click()
    for before in reversed(seen[:-1]):
        page.keyboard.press("u")
        assert screen.hash == before
    assert page.get_by_role("button", name="Undo").is_disabled()
    for after in seen[1:]:
        page.keyboard.press("Shift+U")
        assert screen.hash == after
    assert page.get_by_role("button", name="Redo").is_disabled()
    screen.settle()
    # a text that takes a while
    page.goto("about:blank")
    page.goto(screen.server.address + lab([], text=SENTENCE[:-1] * 8))
    page.get_by_role("button", name="Measure every head").click()
    page.get_by_role("button", name="Cancel").first.click()
    assert "Cancelled" in page.locator(".effect .told").inner_text()
    screen.settle()
    assert not page.locator("[data-sweep]").count()


def test_the_lab_of_every_family(open_screen: Open):
    """A gap is filled, a poem goes on; what a model cannot be given says why, at its row."""
    screen = open_screen(f"#/lab?m={zoo.MASKED}&text=The+king+sat+on+the+throne.&hide=2")
    page = screen.page
    assert "[MASK] sat" in screen.hash.replace("+", " ") and "hide" not in screen.hash
    assert page.locator("[data-preset='future']").is_disabled()
    page.locator("[data-preset='positions']").click()
    screen.settle()
    masked = run(opened_model(zoo.MASKED), "The [MASK] sat on the throne.")
    shows(screen, diff(masked, [{"op": "pos", "set": "none"}]))
    verse = run(opened_model(zoo.POET), "明月松间照", max_new_tokens=0)
    place(screen, lab([{"op": "scale"}], zoo.POET, "明月松间照"))
    shows(screen, diff(verse, [{"op": "scale"}]))
    page.get_by_role("button", name="Add a change").click()
    page.locator("[data-op='expert']").click()
    screen.settle()
    assert "no experts" in page.locator("[data-change='1'] [role=alert]").inner_text()
    screen.forgive("status of 400")
    page.get_by_role("switch").last.click()
    screen.settle()
    shows(screen, diff(verse, [{"op": "scale"}]))
    # the list is there again for who comes back
    there = screen.hash
    for keys in ("gf", "gx"):
        for key in keys:
            page.keyboard.press(key)
    assert screen.hash == there
    screen.settle()
