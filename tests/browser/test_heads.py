"""All heads of a side and one of them step by step: what the page shows is what the library says."""

from typing import Any

import pytest
import torch
from playwright.sync_api import expect
from tests.browser.conftest import Open, Screen, opened_model

from cutaway import zoo
from cutaway.inspection.patterns import Stage, patterns
from cutaway.inspection.questions.attention import attention
from cutaway.inspection.questions.sweep import sweep
from cutaway.inspection.questions.values import values
from cutaway.inspection.runs import Run, run
from cutaway.inspection.wiring import Side, sides

SENTENCE = "她的妹妹在北京工作。"
STAGES: tuple[Stage, ...] = ("scores", "scaled", "masked", "pattern")
TABLE = """(table) => [...table.tBodies[0].rows].map((row) => [...row.querySelectorAll("td")].map((cell) =>
  Number(cell.textContent.replace("−∞", "-Infinity"))))"""
# red, green, blue, opacity of each cell of the large map
PIXELS = """(canvas) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  return Array.from(copy.getImageData(0, 0, canvas.width, canvas.height).data);
}"""


def shown_map(screen: Screen) -> torch.Tensor:
    """The numbers of the large map, (T, S), to three places."""
    return torch.tensor(screen.page.locator(".detail table").evaluate(TABLE))


def place(screen: Screen, address: str) -> None:
    """Another place in the same tab."""
    screen.page.evaluate("(place) => { location.hash = encodeURI(place) }", address)
    screen.settle()


def sharpest(read: Run, side: Side) -> tuple[int, int]:
    """The head that is shown first: layer and head of the least entropy."""
    scores = attention(read, side=side).scores
    assert scores is not None
    return divmod(int(scores.entropy.argmin()), scores.entropy.shape[1])


def test_maps_of_every_side_are_the_patterns(open_screen: Open):
    """B02: rows of every pattern sum to 1, masked cells are exactly 0, and before the softmax they have the colour of
    what is hidden."""
    read = run(opened_model(zoo.TRANSLATOR), SENTENCE)
    screen = open_screen(f"#/heads?m={zoo.TRANSLATOR}&text={SENTENCE}")
    tabs: list[tuple[str, Side]] = [("Cross", "cross"), ("Encoder", "encoder"), ("Decoder", "decoder")]
    for name, side in tabs:
        screen.page.get_by_role("button", name=name, exact=True).click()
        screen.settle()
        layer, head = sharpest(read, side)
        assert f"{name} · layer {layer} · head {head}" in screen.page.locator(".detail h2").inner_text()
        for stage in STAGES if side == "decoder" else STAGES[-1:]:
            screen.page.locator(f".stages input[value={stage}]").check(force=True)
            screen.settle()
            found, expected = shown_map(screen), patterns(read, side, layer, head, stage).values[0, 0]
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)
            hidden = expected == -torch.inf
            assert bool(hidden.any()) == (side == "decoder" and stage == "masked")
            painted = torch.tensor(screen.page.locator(".detail canvas").evaluate(PIXELS)).view(-1, 4)
            grey = (painted - torch.tensor([128, 128, 128, 56])).abs().amax(dim=1) <= 2
            assert torch.equal(grey.view(hidden.shape), hidden)
            if stage == "pattern":
                assert (found.sum(dim=1) - 1).abs().max() < 0.002
                if side == "decoder":
                    assert not found.triu(1).any()
    # the row where a token was read is named by what is written next
    names = screen.page.locator(".detail table tbody th").all_text_contents()
    assert names[:2] == ["<s> → ▁Her", "▁Her → ▁sister"]


def test_measures_are_those_of_the_library(open_screen: Open):
    screen = open_screen(go=False)
    screen.go(f"#/ask?m={zoo.MASKED}")
    asked: list[tuple[str, str, dict[str, Any]]] = [
        (zoo.TRANSLATOR, SENTENCE, {}),
        (zoo.MASKED, "The king sat on the throne.", {}),
        (zoo.POET, "明月松间照", {"max_new_tokens": 8}),
    ]
    for model, text, options in asked:
        read = run(opened_model(model), text, **options)
        side = sides(read.model)[-1]
        scores = attention(read, side=side).scores
        assert scores is not None
        given = "".join(f"&{name}={value}" for name, value in options.items())
        place(screen, f"#/heads?m={model}&text={text}&layer=1&head=2{given}")
        shown = screen.page.eval_on_selector_all(
            "[data-measure]",
            "all => all.map((each) => [each.dataset.measure, +each.querySelector('data').value])",
        )
        names = [name for name, _ in shown]
        assert names[:2] == ["entropy", "first"] and ("distance" in names) == (side != "cross")
        for name, value in shown:
            assert value == pytest.approx(float(getattr(scores, name)[1, 2]), rel=1e-3, abs=1e-6), name
        # by a measure, the strongest first
        screen.page.get_by_label("Order").select_option("most")
        screen.page.get_by_label("Measure").select_option("first")
        grid = screen.page.locator(".atlas [role=grid]")
        grid.focus()
        screen.page.keyboard.press("Control+Home")
        layer, head = divmod(int(scores.first.float().argmax()), scores.first.shape[1])
        assert f"layer {layer} · head {head}" in grid.locator("[role=gridcell]").inner_text()


def test_a_query_step_by_step(open_screen: Open):
    read = run(opened_model(zoo.TRANSLATOR), SENTENCE)
    screen = open_screen(f"#/heads?m={zoo.TRANSLATOR}&text={SENTENCE}&layer=3&head=0&q=4&k=5")
    bars = screen.page.eval_on_selector_all(
        ".row tbody tr",
        "rows => rows.map((row) => [...row.querySelectorAll('data')].map((each) => +each.value))",
    )
    shown = torch.tensor(bars).T
    for n, stage in enumerate(STAGES):
        expected = patterns(read, "cross", 3, 0, stage).values[0, 0, 4]
        torch.testing.assert_close(shown[n], expected, rtol=1e-3, atol=1e-4)
    assert float(shown[3].sum()) == pytest.approx(1, abs=2e-3)
    lengths = values(read, side="cross", layer=3, head=0).weights[0, 0]
    torch.testing.assert_close(shown[4], lengths[4] / lengths.max(), rtol=2e-3, atol=1e-4)
    link = screen.page.locator(".row a").get_attribute("href") or ""
    assert "decoder.layers.3.cross_attn.pattern" in link and "[0,0,4,5]" in link
    # a query that was only written is looked into in the run that wrote it
    place(screen, f"#/heads?m={zoo.POET}&text=明月松间照&layer=1&head=2&q=9&k=0")
    screen.page.locator(".row a").last.click()
    screen.settle()
    expect(screen.page.locator("[data-explained]")).to_contain_text("self_attn.pattern[0,2,9,0]")
    # what the output loses without each head
    effect = sweep(read, side="cross").effects["cross"]
    place(screen, f'#/heads?m={zoo.TRANSLATOR}&text={SENTENCE}&layer=3&head=0&measure="effect"')
    screen.page.locator(".atlas [role=grid]").focus()
    told = screen.page.locator(".atlas [role=gridcell]").inner_text()
    assert float(told.split()[-1]) == pytest.approx(float(effect[3, 0]), abs=2e-3)


def test_heads_by_keyboard(open_screen: Open):
    """B41: one tab stop, arrows, counts, what is told; pins come and go."""
    screen = open_screen(f"#/heads?m={zoo.TRANSLATOR}&text={SENTENCE}&layer=0&head=0")
    grid, keys = screen.page.locator(".atlas [role=grid]"), screen.page.keyboard
    assert [grid.get_attribute(f"aria-{name}count") for name in ("row", "col")] == ["4", "4"]
    screen.page.locator("#text").focus()
    for _ in range(40):
        keys.press("Tab")
        if grid.evaluate("(each) => each === document.activeElement"):
            break
    assert grid.evaluate("(each) => each === document.activeElement")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        keys.press(key)
    cell = grid.locator("[role=gridcell]")
    assert cell.inner_text().startswith("layer 1 · head 2")
    assert grid.get_attribute("aria-activedescendant") == cell.get_attribute("id")
    # only looked at until it is chosen
    assert "layer 1 · head 2" in screen.page.locator(".detail h2").inner_text() and "head=0" in screen.hash
    keys.press("Enter")
    screen.settle()
    assert "layer=1&head=2" in screen.hash and "pins" not in screen.hash
    keys.press("Enter")
    assert 'pins=["cross.1.2"]' in screen.hash
    keys.press("End")
    keys.press("Enter")
    keys.press("Enter")
    assert 'pins=["cross.1.2","cross.1.3"]' in screen.hash
    pins = screen.page.locator("[data-pin]")
    assert pins.count() == 2
    keys.press("Escape")
    assert 'pins=["cross.1.2"]' in screen.hash
    screen.page.get_by_role("button", name="Release Cross · layer 1 · head 2").click()
    assert "pins" not in screen.hash and not pins.count()
    # the next head and layer from anywhere, and a row of the map
    screen.page.locator(".detail .steps button").first.focus()
    keys.press("]")
    assert "layer=1&head=0" in screen.hash
    keys.press("ArrowDown")
    screen.settle()
    assert "layer=2&head=0" in screen.hash
    screen.page.locator(".detail [role=grid]").focus()
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    screen.settle()
    assert "q=1&k=0" in screen.hash and screen.page.locator(".row tbody tr").count() == 9
    keys.press("Escape")
    assert "q=" not in screen.hash and not screen.page.locator(".row").count()
