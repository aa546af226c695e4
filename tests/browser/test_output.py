"""What might be written, and what a search weighed: the page shows what the library says."""

import json
import math
import re

import pytest
import torch
from tests.browser.conftest import Open, Screen, opened_model

from cutaway import zoo
from cutaway.decode.sampling import Sampling, shape
from cutaway.decode.translator import Translator
from cutaway.inspection.outcome import never_written
from cutaway.inspection.questions.cover import cover
from cutaway.inspection.questions.tree import tree
from cutaway.inspection.runs import run

SENTENCE = "她的妹妹在北京工作。"
SETTINGS = [
    {"temperature": 0.5},
    {"temperature": 2},
    {"top_k": 3},
    {"temperature": 2, "top_p": 0.9},
]


def place(screen: Screen, address: str) -> None:
    """Another place in the same tab."""
    screen.page.evaluate("(place) => { location.hash = encodeURI(place) }", address)
    screen.settle()


def candidates(screen: Screen) -> list[tuple[int, float, float, str | None]]:
    """Of every candidate shown, in order: id, log-probability, probability of being drawn, what cut it."""
    return [
        (int(row[0]), float(row[1]), float(row[2]), row[3])
        for row in screen.page.eval_on_selector_all(
            "[data-candidate]",
            """rows => rows.map((row) => [row.dataset.candidate, ...[1, 0].map((n) =>
              row.querySelectorAll("data")[n].value), row.dataset.cut ?? null])""",
        )
    ]


def test_candidates_are_those_that_sampling_draws(open_screen: Open):
    """B03: log-probabilities are those of decoding, order and probabilities those of `Sampling`."""
    loaded = opened_model(zoo.TRANSLATOR)
    translator = Translator(loaded)
    [[best]] = translator.write([translator.prepare(SENTENCE)])
    read = run(loaded, SENTENCE)
    logits = read.forward()[0].float()
    written = logits[2:3].index_fill(1, torch.tensor(never_written(read)), -torch.inf)
    screen = open_screen(f"#/output?m={zoo.TRANSLATOR}&text={SENTENCE}")
    assert [each.split("\n")[0] for each in screen.page.locator("[data-at]").all_inner_texts()] == best.pieces
    for at, log_prob in enumerate(best.log_probs):
        screen.page.locator(f"[data-at='{at}']").click()
        screen.settle()
        shown = float(screen.page.locator(".numbers data").get_attribute("value") or "nan")
        assert shown == pytest.approx(log_prob, abs=1e-5)
    for settings in SETTINGS:
        options = "".join(f"&{name}={json.dumps(value)}" for name, value in settings.items())
        place(screen, f"#/output?m={zoo.TRANSLATOR}&text={SENTENCE}&at=2{options}")
        drawn = shape(written, Sampling(**{"temperature": 1.0, **settings}))[0].softmax(dim=-1)
        log_probs = logits[2].log_softmax(dim=-1)
        found = candidates(screen)
        expected = [int(id) for id in drawn.argsort(descending=True, stable=True)[:3]]
        assert [each[0] for each in found][:3] == expected and len(found) == 20
        for id, log_prob, after, cut in found:
            assert log_prob == pytest.approx(float(log_probs[id]), abs=1e-5)
            assert after == pytest.approx(float(drawn[id]), abs=1e-5)
            assert (cut is None) == (after > 0)
        kept = int((drawn > 0).sum())
        assert screen.page.locator(".kept data").get_attribute("value") == str(kept)
        assert sum(each[3] is None for each in found) == min(kept, 20)


def test_the_output_by_keyboard(open_screen: Open):
    screen = open_screen(f"#/?m={zoo.TRANSLATOR}&text={SENTENCE}")
    screen.page.get_by_role("link", name="Why “Beijing”?").click()
    screen.settle()
    assert "at=4" in screen.hash
    chosen = screen.page.locator("[data-at][aria-pressed=true]")
    assert chosen.inner_text().startswith("▁Be")
    chosen.focus()
    screen.page.keyboard.press("ArrowLeft")
    screen.settle()
    assert screen.focused().startswith("▁in") and "at=3" in screen.hash
    screen.page.locator("input[type=range]").nth(1).focus()
    for _ in range(4):
        screen.page.keyboard.press("ArrowRight")
    screen.page.wait_for_url(re.compile("top_k=4"))
    screen.settle()
    assert [each[3] for each in candidates(screen)] == [None] * 4 + ["top_k"] * 16
    # another token is written, and taken back
    row = screen.page.locator("[data-candidate] button").first
    piece = row.inner_text()
    row.focus()
    screen.page.keyboard.press("Enter")
    screen.settle()
    assert piece.replace("▁", "") in screen.page.locator(".forced .new").inner_text()
    screen.page.keyboard.press("Escape")
    assert "force" not in screen.hash and not screen.page.locator(".forced .new").count()
    # why not another
    screen.page.get_by_label("Another word").fill("on")
    screen.page.keyboard.press("Enter")
    screen.settle()
    assert "▁on" in screen.page.locator(".rival").inner_text()
    screen.page.get_by_label("Another word").fill("two words")
    screen.page.keyboard.press("Enter")
    screen.settle()
    assert "two" in screen.page.get_by_role("alert").inner_text()
    screen.forgive("status of 400")


def test_the_output_of_every_family(open_screen: Open):
    screen = open_screen(f"#/output?m={zoo.MASKED}&text=The+king+sat+on+the+throne.&hide=2")
    assert "[MASK] sat" in screen.hash.replace("+", " ") and "hide" not in screen.hash
    assert screen.page.locator("[data-at].gap").inner_text().startswith("king")
    assert candidates(screen)[0][0] == opened_model(zoo.MASKED).require_tokenizer().encode("king").ids[0]
    # a word that was given is covered
    place(screen, f"#/output?m={zoo.MASKED}&text=The queen sat.&at=2")
    screen.page.get_by_role("button", name="Cover it").click()
    screen.settle()
    assert screen.page.locator("#text").input_value() == "The [MASK] sat."
    poem = cover(opened_model(zoo.POET), "明月松间照")
    place(screen, f"#/output?m={zoo.POET}&text=明月松间照")
    written = screen.page.locator("[data-at].written").all_inner_texts()
    assert "".join(each.split("\n")[0] for each in written).replace("⏎", "\n") == poem.text
    screen.page.locator("[data-candidate] button").first.click()
    screen.settle()
    forced = screen.page.locator("[data-candidate].forced bdi").inner_text()
    assert screen.page.locator(".forced .new").inner_text().startswith(forced)


def test_the_tree_is_that_of_the_search(open_screen: Open):
    """B08: the winner is what the decoder writes; sums, fates and attention are right, as they stand there."""
    loaded = opened_model(zoo.TRANSLATOR)
    translator, expected = Translator(loaded), tree(loaded, SENTENCE)
    [[best]] = translator.write([translator.prepare(SENTENCE)])
    screen = open_screen(f"#/search?m={zoo.TRANSLATOR}&text={SENTENCE}")
    page = screen.page
    assert page.locator(".node .text").inner_text() == best.text
    assert page.locator("g.winner .piece").all_text_contents() == best.pieces
    assert page.locator("g[data-node]").count() == len(expected.nodes)
    for fate in ("live", "stop", "dropped"):
        shown = page.eval_on_selector_all(f"g.{fate}", "nodes => nodes.map((node) => +node.dataset.node)")
        assert sorted(shown) == [at for at, node in enumerate(expected.nodes) if node.fate == fate]
    steps = len(best.ids)
    for at in (expected.best, 4, len(expected.nodes) // 2, len(expected.nodes) - 1):
        page.locator(f"g[data-node='{at}']").dispatch_event("click")
        values = {
            name: page.eval_on_selector_all(f".node {name}", "found => found.map((each) => +each.value)")
            for name in (".term data", ".total", ".divisor", ".score", "li data")
        }
        node = expected.nodes[at]
        assert values[".total"] == pytest.approx([math.fsum(values[".term data"])], abs=1e-5)
        assert values[".score"] == pytest.approx([values[".total"][0] / values[".divisor"][0]], abs=1e-5)
        assert values[".score"] == pytest.approx([node.score], abs=1e-5)
        assert sum(values["li data"]) == pytest.approx(1, abs=2e-3)
        torch.testing.assert_close(
            torch.tensor(values["li data"]), expected.attention[at], rtol=1e-3, atol=1e-4
        )
        assert page.locator(".node .why").inner_text() == expected.told[at].said("en")
    # from the winner to its beginning and to a rival, by keyboard
    page.locator(f"g[data-node='{expected.best}']").focus()
    page.keyboard.press("Home")
    assert page.locator("g.chosen .piece").text_content() == best.pieces[0]
    page.keyboard.press("ArrowDown")
    assert "node=1" in screen.hash and page.locator("g.chosen").get_attribute("data-node") == "1"
    page.keyboard.press("End")
    assert "node" not in screen.hash
    for _ in range(steps + 1):
        page.keyboard.press("ArrowLeft")
    page.get_by_role("button", name="Forbid ▁Her here").click()
    screen.settle()
    assert not page.locator(".node .text").inner_text().startswith("Her ")
    page.get_by_role("button", name=re.compile("Take back")).click()
    screen.settle()
    assert page.locator(".node .text").inner_text() == best.text
