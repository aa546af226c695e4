"""The explorer's budgets: sizes of the page, and times in a headless Chromium before a real server of the bundled
translator and of a random model in a large shape: 32 layers of 32 heads, 150,000 words, a text of 512 tokens."""

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import quote

import torch
from playwright.sync_api import Page, Response, ViewportSize, sync_playwright

from benchmarks.measure import Effort, Row
from cutaway import Tokenizer, zoo
from cutaway.checkpoint import folder
from cutaway.models.build import build, preset

PAGE = Path(__file__).parents[1] / "src" / "cutaway" / "serve" / "_ui"
SENTENCE = "她的妹妹在北京工作。"
LARGE = {
    "n_layers": 32, "n_heads": 32, "d_model": 128, "d_ff": 256, "max_len": 640, "tied": True, "pad_id": 0,
}  # fmt: skip
TOKENS, WORDS = 512, 150_000
WINDOW = ViewportSize(width=1280, height=800)
VIEWS = ("flow", "output", "lab", "heads", "space")
# Of each case what is wanted and what the slow test allows, on two cores without a GPU.
BUDGETS: dict[str, tuple[str, float, float]] = {
    "first code and style, gzip": ("kB", 120, 160),
    "largest further part, gzip": ("kB", 30, 45),
    "the page in the wheel": ("MB", 0.8, 1.5),
    "serve to the whole first screen": ("ms", 6000, 15_000),
    "first contentful paint": ("ms", 300, 800),
    "whole first screen, model open": ("ms", 800, 2000),
    "cover a word to its text": ("ms", 300, 800),
    "another word lit": ("ms", 16, 50),
    "answer over the model's time": ("ms", 60, 150),
    "longest task after loading": ("ms", 50, 200),
    "a view of the large model, over its answers' time": ("ms", 250, 1000),
    "heap after 200 runs": ("MB", 10, 40),
    "memory of the page, all views": ("MB", 300, 600),
    "memory of the server over its models, all views": ("MB", 200, 600),
}
_BUSY = """async () => {
  do await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  while (!document.querySelector("main h1, main .stage") || document.querySelector("[aria-busy=true]"));
}"""
_LIT = """() => new Promise((resolve) => {
  const words = document.querySelectorAll("[data-target]"), began = performance.now();
  [...words].find((each) => each.ariaPressed !== "true").click();
  requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
})"""
_ANSWER = """async (body) => {
  const began = performance.now();
  const headers = { "content-type": "application/json" };
  const reply = await fetch("api/v1/answers/lens", { method: "POST", body, headers });
  const lines = (await reply.text()).trim().split("\\n");
  return performance.now() - began - JSON.parse(lines.at(-1)).answer.ms;
}"""
_LONG_TASKS = """window.longTasks = [];
new PerformanceObserver((seen) => longTasks.push(...seen.getEntries().map((each) => each.duration)))
  .observe({ type: "longtask" });"""


def measure(effort: Effort) -> list[Row]:
    found = {**_sizes(), **_times(effort)}
    rows = []
    for case, (unit, wanted, _) in BUDGETS.items():
        if case in found:
            rows.append(Row(part="explorer", case=case, unit=unit, ours=found[case], most=wanted))
    return rows


def _sizes() -> dict[str, float]:
    """Of the built page, in the units of BUDGETS."""
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    first = set(re.findall(r"(?:src|href)=\"\./(assets/[^\"]+\.(?:js|css))\"", index))
    small = {
        file.relative_to(PAGE).as_posix(): len(gzip.compress(file.read_bytes(), 9)) / 1e3
        for file in PAGE.rglob("*")
        if file.suffix in (".js", ".css")
    }
    return {
        "first code and style, gzip": sum(small[name] for name in first),
        "largest further part, gzip": max(size for name, size in small.items() if name not in first),
        "the page in the wheel": sum(
            len(gzip.compress(each.read_bytes())) for each in PAGE.rglob("*") if each.is_file()
        ) / 1e6,
    }  # fmt: skip


def _times(effort: Effort) -> dict[str, float]:
    executable = os.environ.get("CUTAWAY_CHROMIUM") or shutil.which("chromium")
    if executable is None:
        print("no Chromium on PATH and none named by CUTAWAY_CHROMIUM: sizes alone", file=sys.stderr)
        return {}
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        large = Path(place) / "large"
        words = _write_large(large)
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport=WINDOW, reduced_motion="reduce", locale="en-GB")
        page.add_init_script(_LONG_TASKS)
        page.set_default_timeout(120_000)
        found: dict[str, float] = {}
        first = f"#/?m={zoo.TRANSLATOR}&text={quote(SENTENCE)}"
        began = time.perf_counter()
        with _server(zoo.TRANSLATOR) as (_, address):
            _go(page, address + first)
            found["serve to the whole first screen"] = 1e3 * (time.perf_counter() - began)
        with _server(zoo.TRANSLATOR, str(large)) as (process, address):
            _wait_for_models(address)
            found |= _first_screen(page, address + first, effort.rounds)
            before = _resident(process.pid)
            found |= _large_views(page, f"{address}#/VIEW?m=large&text={quote(words)}")
            after = _resident(process.pid)
            if before is not None and after is not None:
                found["memory of the server over its models, all views"] = after - before
        browser.close()
    return found


def _first_screen(page: Page, address: str, rounds: int) -> dict[str, float]:
    whole: list[float] = []
    painted: list[float] = []
    for _ in range(rounds):
        whole.append(_timed(lambda: _go(page, address)))
        painted.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    page.evaluate("longTasks.length = 0")
    covered = [_timed(lambda: _click(page, "[data-source='4']")) for _ in range(2 * rounds)]
    lit = [page.evaluate(_LIT) for _ in range(rounds)]
    asked = {"model": zoo.TRANSLATOR, "options": {}, "want": ["result"]}
    # each text once: an answer that is kept says how long it took when it was computed
    answers = [
        page.evaluate(_ANSWER, json.dumps({**asked, "text": f"我有{number}个苹果。"}))
        for number in range(rounds)
    ]
    heap = _heap(page)
    for number in range(200):
        page.locator("#text").fill(f"我有{number}本书。")
        page.locator("#text").press("Enter")
        page.evaluate(_BUSY)
    return {
        "first contentful paint": median(painted),
        "whole first screen, model open": median(whole),
        # every second one uncovers, and is known already
        "cover a word to its text": median(covered[::2]),
        "another word lit": median(lit),
        "answer over the model's time": median(answers),
        "heap after 200 runs": _heap(page) - heap,
        "longest task after loading": max(page.evaluate("longTasks"), default=0.0),
    }


def _large_views(page: Page, address: str) -> dict[str, float]:
    """Each view of the large model once, from its address to its last pixel, less what the server says its answers
    took."""
    over: list[float] = []
    answered: list[Response] = []
    page.on("response", lambda each: answered.append(each) if "/answers/" in each.url else None)
    for view in VIEWS:
        answered.clear()
        took = _timed(lambda view=view: _go(page, address.replace("VIEW", view)))
        last = [json.loads(each.text().strip().split("\n")[-1]) for each in answered]
        over.append(took - sum(each["answer"]["ms"] for each in last))
    return {
        "a view of the large model, over its answers' time": max(over),
        "memory of the page, all views": _heap(page),
    }


def _write_large(path: Path) -> str:
    """Write a random decoder-only model of many heads and words, and return a text of TOKENS tokens."""
    words = [f"w{number}" for number in range(WORDS)]
    tokenizer = Tokenizer.train([" ".join(words)], "words", None, min_count=1)
    config = preset("llama-tiny", {**LARGE, "vocab_size": tokenizer.vocab_size})
    torch.manual_seed(0)
    folder.save(path, build(config), tokenizer)
    return " ".join(words[: TOKENS - 1])


@contextmanager
def _server(*models: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`cutaway serve` on a free port: the process and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "cutaway", "serve", *models, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process, f"http://127.0.0.1:{port}/"
        finally:
            process.kill()


def _wait_for_models(address: str) -> None:
    while True:
        with urllib.request.urlopen(f"{address}api/v1/models") as answer:
            if b'"loading"' not in answer.read():
                return
        time.sleep(0.1)


def _go(page: Page, address: str) -> None:
    """Open an address from its beginning, until everything that it asks for is there."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("main > *")
    page.evaluate(_BUSY)


def _click(page: Page, selector: str) -> None:
    page.locator(selector).click()
    page.evaluate(_BUSY)


def _timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


def _heap(page: Page) -> float:
    """Megabytes of the page's objects that are in use."""
    tools = page.context.new_cdp_session(page)
    tools.send("HeapProfiler.collectGarbage")
    return tools.send("Runtime.getHeapUsage")["usedSize"] / 1e6


def _resident(process: int) -> float | None:
    """Megabytes that a process holds, where the system tells (Linux)."""
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        return None
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
    return None if found is None else int(found[1]) / 1e3
