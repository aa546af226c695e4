"""A page in a browser: the value under the pointer, a map of an atlas by click and by keys, and the width it takes."""

import json
import re
import subprocess
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path
from shutil import which

import numpy as np
import pytest
from tests.page.sample import CAPTION, SOURCE, TARGET, WEIGHTS, sample

from cutaway.page.blocks import Matrix, Page
from cutaway.page.html import document, fragment
from cutaway.page.numbers import written
from cutaway.words import Locale

ASK = """<script>
const found = [], roots = document.querySelectorAll(".cutaway");
function told(root, number, row, column) {
  const figure = root.querySelectorAll("figure[data-values]")[number], svg = figure.querySelector("svg.map");
  const box = svg.getBoundingClientRect(), { left, top, cell } = figure.dataset;
  const clientX = box.left + Number(left) + (column + 0.5) * cell, clientY = box.top + Number(top) + (row + 0.5) * cell;
  svg.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }));
  return figure.querySelector("figcaption").textContent;
}
function press(key) {
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}
for (const root of roots) found.push(told(root, 0, 0, 1));
const maps = roots[1].querySelectorAll("[data-place]");
found.push(told(roots[1], 2, 0, 1));
maps[1].dispatchEvent(new MouseEvent("click"));
found.push([...roots[1].querySelectorAll("figure.atlas .values text")].map((each) => each.textContent).join());
found.push(told(roots[1], 2, 0, 1), told(roots[0], 2, 0, 1));
maps[0].focus();
press("ArrowRight");
found.push([...maps].indexOf(document.activeElement));
press("ArrowLeft");
press("Enter");
found.push(told(roots[1], 2, 0, 1), [...maps].map((each) => each.getAttribute("aria-pressed")).join());
document.title = JSON.stringify(found);
</script>"""


@pytest.fixture
def browser(tmp_path: Path) -> Callable[[str], str]:
    """Runs a document and tells its title, into which its script has written."""
    program = which("chromium") or which("google-chrome")
    if program is None:
        pytest.skip("no chromium on this machine: the script of a page is read by a browser")

    def run(whole: str) -> str:
        path = tmp_path / "page.html"
        path.write_text(whole, encoding="utf-8")
        settings = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")
        command = [
            program,
            *settings,
            "--window-size=1280,900",
            "--virtual-time-budget=5000",
            "--dump-dom",
            path.as_uri(),
        ]
        read = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        title = re.search("<title>(.*?)</title>", read.stdout)
        assert title is not None
        return unescape(title[1])

    return run


def test_two_results_of_the_same_content_in_one_page_are_read_and_chosen_apart(
    browser: Callable[[str], str],
) -> None:
    whole = document(sample(), "en").replace("</body>", f"{fragment(sample(), 'en')}{ASK}</body>")
    first, second, small, cells, other, untouched, focused, again, pressed = json.loads(browser(whole))
    place = f"target {TARGET[0]} (0), source {SOURCE[1]} (1)"
    assert first == second == f"{place}: {WEIGHTS[0, 1]:.3f}"
    assert small.endswith(f" · {place}: {WEIGHTS[0, 1]:.3f}") and untouched == small == again
    assert other.endswith(f" · {place}: {1 - WEIGHTS[0, 1]:.3f}") and other != small
    assert cells == ",".join(written(value, "weight") for value in (1 - WEIGHTS).flatten().tolist())
    assert focused == 1 and pressed.startswith("true,false")


MEASURE = """<script>
const found = {};
for (const frame of document.querySelectorAll("iframe")) {
  const page = frame.contentDocument, root = page.querySelector(".cutaway"), box = page.documentElement;
  const sections = [...root.querySelectorAll("section:not(.broad)")].map((each) => each.getBoundingClientRect().left);
  const boxes = [...root.querySelectorAll(".wide")];
  found[frame.width] = {
    overflow: box.scrollWidth - box.clientWidth,
    columns: new Set(sections).size,
    right: Math.max(...boxes.map((each) => each.getBoundingClientRect().right)),
    scrolled: boxes.some((each) => each.scrollWidth > each.clientWidth),
  };
}
document.title = JSON.stringify(found);
</script>"""


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_a_page_takes_the_width_that_there_is_and_no_more(
    browser: Callable[[str], str], locale: Locale
) -> None:
    many = [f"词{n}" for n in range(60)]
    broad = Page("broad", (Matrix(np.eye(60), many, many, "d", "a", "u"),))
    whole = document(sample().then(broad).captioned(CAPTION), locale)
    widths = (360, 768, 1280)
    frames = "".join(
        f'<iframe width="{each}" height="800" srcdoc="{escape(whole)}"></iframe>' for each in widths
    )
    start = MEASURE.replace("<script>", "<script>onload = () => {").replace("</script>", "}</script>")
    found = json.loads(browser(f"<!doctype html><title></title><body>{frames}{start}"))
    assert [found[str(each)]["overflow"] for each in widths] == [0, 0, 0]
    assert [found[str(each)]["columns"] for each in widths] == [1, 1, 2]
    assert all(found[str(each)]["right"] <= each for each in widths)
    # What has no room scrolls in its own box.
    assert found["360"]["scrolled"] and not found["1280"]["scrolled"]
