"""The tours: every step leads where what it points at is (B32)."""

import re

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import Open, Server, opened_model

from cutaway import zoo
from cutaway.inspection.questions.cover import cover
from cutaway.serve.app import UI

SENTENCE = "她的妹妹在北京工作。"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_tour_is_gone_through(open_screen: Open, lang: str):
    screen = open_screen("#/learn", lang=lang, go=False)
    screen.page.goto(f"{screen.server.address}#/learn")
    screen.page.locator(".learn li a").first.click()
    guide = screen.page.locator(".guide")
    steps = int(guide.locator("progress").get_attribute("max") or 0)
    assert steps > 5
    for step in range(1, steps + 1):
        expect(screen.page.locator("main [data-pointed]").first).to_be_attached()
        assert f"tour=sentence.{step}" in screen.hash
        if step < steps:
            title = guide.locator("h2").inner_text()
            guide.locator(".next").click()
            expect(guide.locator("h2")).not_to_have_text(title)
    # what the last step asks for is done by a click, and not before
    screen.settle()
    expect(guide.locator(".attempt.done")).to_have_count(0)
    screen.page.locator("[data-source][data-pointed]").click()
    expect(guide.locator(".attempt.done")).to_be_visible()
    # a step back is what was there before, changes included, and the tour can be left where one is
    guide.get_by_role("button", name={"en": "Back", "zh": "上一步"}[lang]).click()
    screen.settle()
    assert f"tour=sentence.{steps - 1}" in screen.hash
    screen.page.go_back()
    screen.settle()
    assert screen.covered() == [4]
    expect(guide.locator(".attempt.done")).to_be_visible()
    guide.locator(".close").click()
    expect(guide).to_have_count(0)
    assert "tour=" not in screen.hash and screen.source(4).is_visible()


def test_a_link_to_a_step_shows_what_it_was_copied_from(open_screen: Open):
    """Also where its reader had changed something."""
    screen = open_screen(f"#/?m={zoo.TRANSLATOR}&text={SENTENCE}&hide=4&tour=sentence.11")
    screen.settle()
    assert screen.covered() == [4]
    expect(screen.page.locator(".guide .attempt.done")).to_be_visible()


def test_what_the_tour_says_of_the_model_is_true():
    """Its sizes, how the words are cut, and that another city is written without 北."""
    loaded = opened_model(zoo.TRANSLATOR)
    config = loaded.model.config
    assert (config.d_model, config.d_ff, config.n_heads, config.n_layers) == (256, 1024, 4, 4)
    assert config.activation == "relu" and config.position == "sinusoidal"
    plain, without = (cover(loaded, SENTENCE, hide=hide) for hide in ((), (4,)))
    assert [unit.text for unit in plain.source if unit.tokens[0] in (4, 5)] == ["北", "京"]
    assert [len(unit.pieces) for unit in plain.target if unit.text == "Beijing"] == [4]
    assert "Beijing" not in [unit.text for unit in without.target]


def test_a_tour_whose_model_is_not_there_says_so(open_screen: Open, own_server: Server):
    own_server.start()
    screen = open_screen(on=own_server, go=False)
    screen.page.goto(f"{own_server.address}#/learn")
    expect(screen.page.locator(".learn li")).to_contain_text(zoo.TRANSLATOR)
    assert screen.page.locator(".learn li a").count() == 0


def test_tours_are_fetched_when_somebody_reads_them(built: None):
    """No text of a tour is among what the first screen loads."""
    [first] = re.findall(r'src="\./(assets/[^"]+\.js)"', (UI / "index.html").read_text("utf-8"))
    title = "Words are cut into tokens"
    assert title not in (UI / first).read_text("utf-8")
    assert sum(title in each.read_text("utf-8") for each in (UI / "assets").glob("*.js")) == 1
