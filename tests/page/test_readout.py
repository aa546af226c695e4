"""The script of a page in a browser: the value under the pointer, a map of an atlas by click and by keys."""

import json
import re
import subprocess
from html import unescape
from pathlib import Path
from shutil import which

import pytest
from tests.page.sample import SOURCE, TARGET, WEIGHTS, sample

from cutaway.page.html import document, fragment

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
found.push(told(roots[1], 2, 0, 1), told(roots[0], 2, 0, 1));
maps[0].focus();
press("ArrowRight");
found.push([...maps].indexOf(document.activeElement));
press("ArrowLeft");
press("Enter");
found.push(told(roots[1], 2, 0, 1), [...maps].map((each) => each.getAttribute("aria-pressed")).join());
document.title = JSON.stringify(found);
</script>"""


def test_two_results_of_the_same_content_in_one_page_are_read_and_chosen_apart(tmp_path: Path) -> None:
    browser = which("chromium") or which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on this machine: the script of a page is read by a browser")
    whole = document(sample(), "en").replace("</body>", f"{fragment(sample(), 'en')}{ASK}</body>")
    path = tmp_path / "page.html"
    path.write_text(whole, encoding="utf-8")
    settings = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")
    command = [browser, *settings, "--dump-dom", path.as_uri()]
    read = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    title = re.search("<title>(.*?)</title>", read.stdout)
    assert title is not None
    first, second, small, other, untouched, focused, again, pressed = json.loads(unescape(title[1]))
    place = f"target {TARGET[0]} (0), source {SOURCE[1]} (1)"
    assert first == second == f"{place}: {WEIGHTS[0, 1]:.3f}"
    assert small.endswith(f" · {place}: {WEIGHTS[0, 1]:.3f}") and untouched == small == again
    assert other.endswith(f" · {place}: {1 - WEIGHTS[0, 1]:.3f}") and other != small
    assert focused == 1 and pressed.startswith("true,false")
