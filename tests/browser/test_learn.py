"""The tours: every step leads where what it points at is (B32)."""

import re

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import ROOT, WORDS, WORDS_ZH, Open, Server, opened_model

from cutaway import zoo
from cutaway.checkpoint.word_vectors import load_vectors
from cutaway.inspection import analogy, cloud, cover, diff, drift, neighbours, pair, run
from cutaway.serve.app import UI

SENTENCE = "她的妹妹在北京工作。"
BANKS = ("I put the money in the bank.", "We sat on the bank of the river.")


@pytest.mark.parametrize("lang", ["en", pytest.param("zh", marks=pytest.mark.slow)])
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


def test_the_space_of_meaning_is_gone_through(open_screen: Open):
    screen = open_screen(lang="zh", go=False)
    screen.page.goto(f"{screen.server.address}#/learn")
    screen.page.locator(".learn li a").last.click()
    guide = screen.page.locator(".guide")
    steps = int(guide.locator("progress").get_attribute("max") or 0)
    for step in range(1, steps + 1):
        expect(screen.page.locator("main [data-pointed]").first).to_be_visible()
        assert f"tour=meaning.{step}" in screen.hash
        if 'token="king"' in screen.hash and guide.locator(".attempt").count():
            screen.page.locator("[data-pointed] a", has_text="queen").click()
            expect(guide.locator(".attempt.done")).to_be_visible()
        if step < steps:
            guide.locator(".next").click()


def test_an_attention_head_is_worked_out_by_hand(open_screen: Open):
    screen = open_screen(lang="zh", go=False)
    screen.page.goto(f"{screen.server.address}#/learn")
    screen.page.locator(".learn li a").nth(1).click()
    guide = screen.page.locator(".guide")
    steps = int(guide.locator("progress").get_attribute("max") or 0)
    for step in range(1, steps + 1):
        expect(screen.page.locator("main [data-pointed], .number [data-pointed]").first).to_be_visible()
        assert f"tour=hand.{step}" in screen.hash
        if guide.locator(".attempt").count():
            expect(guide.locator(".attempt.done")).to_have_count(0)
            screen.page.locator("[data-pointed] [data-cell='4']").last.click()
            expect(guide.locator(".attempt.done")).to_be_visible()
        if step < steps:
            guide.locator(".next").click()


def test_what_the_tour_by_hand_works_out_is_true():
    """Each number of its text, and that the head alone decides nothing."""
    told = (ROOT / "web/src/learn/tours/hand.en.md").read_text("utf-8")
    loaded = opened_model(zoo.TRANSLATOR)
    looked = run(loaded, SENTENCE)
    assert looked.source is not None and looked.target is not None
    assert (looked.source.pieces[4:6], looked.target.pieces[2:5:2]) == (["北", "京"], ["▁sister", "▁in"])
    attention = "decoder.layers.3.cross_attn"
    seen = looked.seen(
        {f"{attention}.{name}": lambda x: x[0, 0, 4] for name in ("scores", "scaled", "pattern")}
    )
    scores, scaled, weights = (
        seen[f"{attention}.{name}"].double() for name in ("scores", "scaled", "pattern")
    )
    powers = scaled.exp()
    numbers = [*scores[[5, 4, 1]].tolist(), float(scaled[5]), float(weights[5])]
    shown = [f"{each:.2f}".replace("-", "−") for each in numbers]
    assert shown == ["41.50", "17.14", "−15.91", "5.19", "0.93"]
    assert all(f"**{each}**" in told for each in shown)
    whole = [f"{float(each):.0f}" for each in (powers[5], powers.sum())]
    assert whole == ["179", "193"] and "179 / 193" in told and f"{float(powers[4]):.1f}" == "8.5"
    off = [{"op": "head", "side": "cross", "layer": 3, "head": 0, "set": "zero"}]
    found = diff(looked, off)
    assert found.base is not None and found.changed is not None and found.base.text == found.changed.text


def test_what_the_tour_says_of_word_vectors_is_true():
    """Ids, neighbours, sums of words, and that one word parts in two sentences."""
    en, zh = (load_vectors(zoo.find(name)) for name in (WORDS, WORDS_ZH))
    assert tuple(en.vectors.shape) == (18_000, 100)
    assert en.words.words[144:147] == ["get", "king", "found"] and en.words.counts[144] > en.words.counts[145]
    near = neighbours(en, "king").items
    assert [each.piece for each in near[:3]] == ["queen", "prince", "sultan"]
    assert neighbours(en, "good").items[0].piece == "bad"
    drawn = cloud(en).axes
    assert 0.115 < drawn.total_kept < 0.135
    king = analogy(en, "king", "man", "woman", expected="queen")
    assert king.answers[0].piece == "queen" and king.expected is not None and king.expected.rank == 1
    husband = analogy(zh, "丈夫", "男人", "女人", expected="妻子")
    assert husband.answers[0].piece == "妻子" and husband.expected is not None
    assert husband.inputs[0].rank == 1 and husband.expected.rank == 2
    assert [each.piece for each in analogy(zh, "国王", "男人", "女人").answers[:2]] == ["新罗", "高丽"]
    assert pair(en, "king", "throne").outputs[0].label == 1
    loaded = opened_model(zoo.TRANSLATOR)
    money, river = (run(loaded, text) for text in BANKS)
    cosines = drift(money, river, "bank").cosines
    assert float(cosines[0]) == pytest.approx(1) and float(cosines[-1]) < 0.8


def test_a_tour_whose_model_is_not_there_says_so(open_screen: Open, own_server: Server):
    own_server.start()
    screen = open_screen(on=own_server, go=False)
    screen.page.goto(f"{own_server.address}#/learn")
    expect(screen.page.locator(".learn li").first).to_contain_text(zoo.TRANSLATOR)
    expect(screen.page.locator(".learn li").last).to_contain_text(WORDS)
    assert screen.page.locator(".learn li a").count() == 0


def test_tours_are_fetched_when_somebody_reads_them(built: None):
    """No text of a tour is among what the first screen loads."""
    [first] = re.findall(r'src="\./(assets/[^"]+\.js)"', (UI / "index.html").read_text("utf-8"))
    title = "Words are cut into tokens"
    assert title not in (UI / first).read_text("utf-8")
    assert sum(title in each.read_text("utf-8") for each in (UI / "assets").glob("*.js")) == 1
