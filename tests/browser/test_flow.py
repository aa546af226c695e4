"""A token's way as the page shows it, and where each of its numbers comes from, held against the model."""

import re

import pytest
import torch
from playwright.sync_api import expect
from tests.browser.conftest import Open, Screen, opened_model

from cutaway import zoo
from cutaway.inspection.arithmetic.explanation import Arithmetic
from cutaway.inspection.questions.flow import flow
from cutaway.inspection.runs import Run, run
from cutaway.tap import Trace

SENTENCE = "她的妹妹在北京工作。"
WAY = f"#/flow?m={zoo.TRANSLATOR}&text={SENTENCE}"
POEM = f"#/flow?m={zoo.POET}&text=明月松间照"
MASKED = f"#/flow?m={zoo.MASKED}&text=The+king+sat+on+the+throne."
WORDS = ("logits", "probabilities")


def place(screen: Screen, address: str) -> None:
    """Another place in the same tab."""
    screen.page.evaluate("(place) => { location.hash = encodeURI(place) }", address)
    screen.settle()


def explained(screen: Screen) -> tuple[str, tuple[int, ...], float]:
    """The number that is looked into, once it is there: its name, its index and its value."""
    screen.settle()
    found = screen.page.locator("[data-explained]")
    name, _, index = (found.get_attribute("data-explained") or "").removesuffix("]").partition("[")
    value = found.locator(".value data").get_attribute("value")
    return name, tuple(int(each) for each in index.split(",")), float(value or "-inf")


def traced(read: Run) -> Trace:
    with torch.no_grad(), Trace(read.model, watch=["*"]) as trace:
        read.model(**read.inputs)
    return trace


@pytest.mark.parametrize(
    ("address", "side", "layer", "head", "at"),
    [
        (f"{WAY}&at=4&head=1", "decoder", 3, 1, 4),
        (f'{WAY}&side="encoder"&at=4&layer=1', "encoder", 1, 0, 4),
        (f"{POEM}&layer=0&head=2&at=3", "decoder", 0, 2, 3),
    ],
)
def test_shown_numbers_are_those_of_the_trace(
    open_screen: Open, address: str, side: str, layer: int, head: int, at: int
):
    """B01: every cell of scores, weights and words; and what a click on a line of colours opens."""
    model, text = re.findall("m=(.*?)&text=(.*?)&", address)[0]
    read = run(opened_model(model), text)
    trace = traced(read)
    screen = open_screen(address)
    shown = screen.page.eval_on_selector_all(
        "[data-stage]",
        """stages => stages.map((stage) => [stage.dataset.stage,
          [...stage.querySelectorAll("[data-cell]")].map(({ dataset }) => [+dataset.cell, +dataset.value])])""",
    )
    compared = 0
    for name, cells in shown:
        last = name.rpartition(".")[2]
        if not cells:
            continue
        if last in WORDS:
            logits = trace["head.logits"][0, at].float()
            expected = logits.softmax(dim=-1) if last == "probabilities" else logits
            expected = expected.topk(len(cells)).values
        else:
            assert f".layers.{layer}." in name
            expected = trace[name][0, head, at].float()
        assert len(cells) == len(expected)
        values = torch.tensor([value for _, value in sorted(cells)])
        torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-4)
        compared += len(cells)
    assert compared >= 4 * len(read.source or read.target or [])
    lines = screen.page.locator("[data-stage] button:has(> canvas)")
    for n in range(0, lines.count(), max(1, lines.count() // 6)):
        stage = lines.nth(n).evaluate("each => each.closest('[data-stage]').dataset.stage")
        lines.nth(n).hover()
        told = re.search(r"\] (\S+)$", lines.nth(n).get_attribute("title") or "")
        lines.nth(n).click()
        name, index, value = explained(screen)
        assert name == stage and told
        assert float(told[1]) == pytest.approx(value, rel=2e-3, abs=1e-3), name
        whole = trace[name] if name in trace else read.model.state_dict()[name]
        assert value == pytest.approx(float(whole[index]), rel=1e-3, abs=1e-5), name
        if name in trace:
            assert at in index or name.rpartition(".")[2] in {"k", "v", "k_rot"}


def test_the_way_back_ends_at_a_token(open_screen: Open):
    """B05: from a logit along links, through a feed-forward network and an attention, to the id of a token."""
    read = run(opened_model(zoo.TRANSLATOR), SENTENCE)
    names = set(Arithmetic(read).names)
    screen = open_screen(f"{WAY}&at=4&number=head.logits[0,4,4569]")
    been: list[str] = []
    while True:
        name, _, _ = explained(screen)
        been.append(name)
        assert len(been) < 60
        links = [
            link
            for link in screen.page.locator(".number [data-number]").all()
            if (link.get_attribute("data-number") or "").partition("[")[0] in names
        ]
        if not links:
            break
        expect(screen.page.locator("[data-agrees]")).to_have_attribute("data-agrees", "true")
        to = links[-1 if len(been) < 14 else 0]
        wanted = to.get_attribute("data-number")
        to.click()
        expect(screen.page.locator("[data-explained]")).to_have_attribute("data-explained", wanted or "")
    assert been[-1] in {"target", "source"} and len(been) > 15
    assert {"mlp.hidden", "cross_attn.v"} & {".".join(each.split(".")[-2:]) for each in been}
    # as far back as one came
    trail = screen.page.locator(".number nav a")
    assert trail.count() == len(been) - 1
    trail.nth(1).click()
    assert explained(screen)[0] == been[1] and screen.page.locator(".number nav a").count() == 1
    screen.page.go_back()
    assert explained(screen)[0] == been[-1]


@pytest.mark.parametrize("address", [f"{WAY}&at=2", POEM, MASKED])
def test_each_family_is_wired_as_it_is(open_screen: Open, address: str):
    """B07: the stages in the order of the library, and where the norms stand on the stream."""
    model, text = re.findall("m=(.*?)&text=([^&]*)", address)[0]
    found = flow(run(opened_model(model), text.replace("+", " ")), at=2 if "at=" in address else None)
    screen = open_screen(address)
    stages = screen.page.locator("[data-stage]")
    assert stages.evaluate_all("all => all.map((each) => each.dataset.stage)") == [
        each.name for each in found.stages
    ]
    drawn = {"as it is": "", "added": "+", "normalised": "n"}
    nodes = screen.page.locator(".node").all_inner_texts()
    assert nodes == [drawn[each.joint] for each in found.stages if each.joint]
    assert [each.count() for each in (screen.page.locator("[data-layer]"), screen.page.locator("[data-token]"))] == [
        found.n_layers, sum(map(len, found.tokens.values())),
    ]  # fmt: skip


def test_the_flow_by_keyboard(open_screen: Open):
    screen = open_screen(f"#/?m={zoo.TRANSLATOR}&text={SENTENCE}")
    keys = screen.page.keyboard
    for key in "gw":
        keys.press(key)
    screen.settle()
    # a token of the other stack, a layer, a head
    screen.page.locator("[data-token='0']").first.focus()
    for _ in range(4):
        keys.press("ArrowRight")
    screen.settle()
    assert screen.page.locator(".way").get_attribute("data-side") == "encoder" and "at=4" in screen.hash
    screen.page.locator("[data-layer][tabindex='0']").focus()
    keys.press("ArrowUp")
    keys.press("]")
    screen.settle()
    assert "layer=2" in screen.hash and "head=1" in screen.hash
    assert screen.page.locator("[data-stage='encoder.layers.2.self_attn.q']").count() == 1
    # its numbers, and one of them
    card = screen.page.locator("[data-stage='encoder.layers.2.self_attn.q']")
    card.get_by_role("button", name="All numbers of q").press("Enter")
    card.get_by_role("grid").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        keys.press(key)
    assert explained(screen)[:2] == ("encoder.layers.2.self_attn.q", (0, 1, 4, 33))
    assert screen.focused() == "This number"
    keys.press("Escape")
    expect(screen.page.locator(".number")).to_have_count(0)
    assert screen.page.evaluate("document.activeElement.getAttribute('role')") == "grid"
    screen.page.go_back()
    assert explained(screen)[0] == "encoder.layers.2.self_attn.q"


def test_the_first_screen_leads_to_the_number_of_a_weight(open_screen: Open):
    screen = open_screen(f"#/?m={zoo.TRANSLATOR}&text={SENTENCE}")
    screen.page.get_by_role("link", name="How is such a weight computed?").click()
    name, index, value = explained(screen)
    read = run(opened_model(zoo.TRANSLATOR), SENTENCE)
    assert name == "decoder.layers.3.cross_attn.pattern"
    assert value == pytest.approx(float(traced(read)[name][index]), abs=1e-6)
    expect(screen.page.locator(".looked")).to_be_in_viewport()
    # and of a text that the model goes on with
    place(screen, f"#/?m={zoo.POET}&text=明月松间照")
    screen.page.get_by_role("link", name="How is such a weight computed?").click()
    assert explained(screen)[0] == "decoder.layers.3.self_attn.pattern"
    assert screen.page.locator("[data-token]").count() > 7
