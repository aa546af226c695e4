"""How the page looks: without faults of access, without overflow, in both languages and both colours."""

import gzip
from typing import Any

import pytest
from tests.browser.conftest import AXE, WORDS, Open

from cutaway import zoo
from cutaway.serve.app import UI

VIEWS = {
    "first": "#/",
    "covered": f"#/?m={zoo.MASKED}&text=The+cat+is+here.&hide=2",
    "poem": f"#/?m={zoo.POET}",
    "list": "#/ask",
    "overview": f"#/ask/overview?m={zoo.MASKED}",
    "attention": f"#/ask/attention?m={zoo.MASKED}&layer=0&head=0",
    "output": f'#/output?m={zoo.TRANSLATOR}&text=她的妹妹在北京工作。&at=4&top_k=5&force=3382&against="▁on"',
    "heads": f'#/heads?m={zoo.TRANSLATOR}&text=她的妹妹在北京工作。&layer=3&head=0&q=4&pins=["encoder.1.2"]',
    "search": f"#/search?m={zoo.TRANSLATOR}&text=她的妹妹在北京工作。&node=32",
    "flow": f"#/flow?m={zoo.TRANSLATOR}&text=她的妹妹在北京工作。&at=4&number=decoder.layers.3.cross_attn.z[0,0,4,5]",
    "lab": f'#/lab?m={zoo.TRANSLATOR}&text=她的妹妹在北京工作。&preset="strongest"',
    "space": f'#/?m={WORDS}&token="king"',
    "vocabulary": f"#/space?m={zoo.TRANSLATOR}",
    "failed": f"#/ask/attention?m={zoo.MASKED}&layer=77",
    "unknown": "#/?m=nobody&hide=x",
}
AXE_RUN = "axe.run({ resultTypes: ['violations'] })"


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(each, marks=pytest.mark.slow if each in {"poem", "overview", "vocabulary"} else ())
        for each in VIEWS
    ],
)
@pytest.mark.parametrize(
    "looks",
    [
        (("en", "light"), ("zh", "dark")),
        pytest.param((("en", "dark"), ("zh", "light")), marks=pytest.mark.slow),
    ],
    ids=["both", "crossed"],
)
def test_access(open_screen: Open, view: str, looks: tuple[tuple[str, str], ...]):
    """B40: axe finds nothing, in any view, light and dark, in both languages."""
    for lang, theme in looks:
        screen = open_screen(VIEWS[view], lang=lang, theme=theme)
        screen.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = violations(screen.page.evaluate(AXE_RUN))
        assert not found, f"{view}, {lang}, {theme}:\n" + "\n".join(found)
        screen.forgive("status of 400")


@pytest.mark.parametrize("opened", ["?", "models"])
def test_access_of_what_opens(open_screen: Open, opened: str):
    screen = open_screen(VIEWS["covered"])
    if opened == "?":
        screen.page.keyboard.press("?")
    else:
        screen.page.locator(".model").click()
    screen.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = violations(screen.page.evaluate(AXE_RUN))
    assert not found, "\n".join(found)


def violations(result: dict[str, Any]) -> list[str]:
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for rule in result["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("lang", ["en", pytest.param("zh", marks=pytest.mark.slow)])
def test_nothing_reaches_beyond_the_window(open_screen: Open, lang: str):
    """B23: at widths from a wide screen down to a small phone."""
    screen = open_screen(go=False, lang=lang)
    wrong = []
    for view, place in VIEWS.items():
        screen.go(place)
        for width in (1280, 1024, 768, 390, 320):
            screen.page.set_viewport_size({"width": width, "height": 800})
            screen.settle()
            if screen.overflow() > 0:
                wrong.append(f"{view} at {width}: {screen.overflow()} px")
    assert not wrong, "\n".join(wrong)
    screen.forgive("status of 400")


# Words of another language, two fifths longer, in every text that is not data.
STRETCH = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode())
    if (text.data.trim() && !text.parentElement.closest("bdi, code, pre, svg, script, [translate=no]"))
      text.data += "ö".repeat(Math.ceil(text.data.trim().length * 0.4)).replace(/.{7}/g, "$& ");
}"""


@pytest.mark.slow
def test_longer_words_find_room(open_screen: Open):
    """B23: a language with longer words."""
    screen = open_screen(go=False)
    wrong = []
    for view, place in VIEWS.items():
        screen.go(place)
        screen.page.evaluate(STRETCH)
        for width in (1280, 1024, 768, 390, 320):
            screen.page.set_viewport_size({"width": width, "height": 800})
            if screen.overflow() > 0:
                wrong.append(f"{view} at {width}: {screen.overflow()} px")
    assert not wrong, "\n".join(wrong)
    screen.forgive("status of 400")


def test_what_is_shipped_makes_nothing_up_and_is_small(built: None):
    """B13, and the budgets of the page: what a browser loads first, and what a view adds, compressed."""
    index = (UI / "index.html").read_text("utf-8")
    shipped = [path for path in (UI / "assets").iterdir() if path.suffix in {".js", ".css"}]
    assert not [path.name for path in shipped if b"Math.random" in path.read_bytes()]
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in shipped}
    first = {name for name in sizes if name in index}
    assert sum(sizes[name] for name in first) <= 120_000
    assert max(size for name, size in sizes.items() if name not in first) <= 30_000
    assert sum(path.stat().st_size for path in UI.rglob("*") if path.is_file()) <= 1_500_000
