"""The page in a real browser, before a real server of the bundled models."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import hatch_build
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    CDPSession,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    sync_playwright,
)  # fmt: skip

from cutaway import zoo
from cutaway.checkpoint.folder import Loaded, load

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--font-render-hinting=none",
]  # fmt: skip
WIDE, PHONE = (1280, 800), (390, 844)
SECONDS = 20.0
WORDS, WORDS_ZH = "words-en", "words-zh"


def find_browser() -> str | None:
    """CUTAWAY_CHROMIUM, or a Chromium on PATH; Playwright's own are never installed."""
    return os.environ.get("CUTAWAY_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = find_browser()
    if executable is None:
        reason = (
            "no Chromium on PATH and none named by CUTAWAY_CHROMIUM: install one, e.g. apt install chromium"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield launched
        launched.close()


# The page's policy lets no function wait by itself: that would make code of a text.
AT_REST = """async (most) => {
  const moves = () => document.getAnimations().some((each) => each.playState === "running");
  const ends = performance.now() + most;
  while (document.querySelector("[aria-busy=true]") || moves()) {
    if (performance.now() > ends) return false;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return true;
}"""


@dataclass
class Server:
    """`cutaway serve` in a process of its own, which can be killed and started again on its port."""

    port: int
    models: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self, ready: bool = True) -> None:
        command = [sys.executable, "-m", "cutaway", "serve", *self.models, "--port", str(self.port)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8", "PYTHONUTF8": "1"}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        told = self.process.stdout.readline()
        assert self.address in told, f"cutaway serve said {told!r}"
        if ready:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        ends = time.monotonic() + 120
        while b'"loading"' in self.get("api/v1/models"):
            assert time.monotonic() < ends, "the models are not opened"
            time.sleep(0.05)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.address + path, timeout=60) as response:
            return response.read()

    def post(self, path: str, body: str) -> bytes:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.address + path, body.encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def built() -> None:
    assert hatch_build.is_fresh(ROOT), (
        "the page is not built from these sources; `make test` builds it, and so does `python hatch_build.py page`"
    )


@pytest.fixture(scope="session")
def server(built: None, browser: Browser, translator: Path) -> Iterator[Server]:
    """One for all tests of a worker, with the bundled models open, and a tiny one that writes what it does not know as
    bytes, the last."""
    running = Server(free_port(), (zoo.TRANSLATOR, zoo.MASKED, zoo.POET, WORDS, WORDS_ZH, str(translator)))
    running.start()
    yield running
    running.kill()


@pytest.fixture
def own_server(built: None, browser: Browser) -> Iterator[Server]:
    """One that a test may kill."""
    running = Server(free_port(), (zoo.POET,))
    yield running
    running.kill()


@dataclass
class Screen:
    """A page of the explorer, and what a reader does with it."""

    page: Page
    server: Server
    told: list[str] = field(default_factory=list)  # errors on the console or thrown, requests to elsewhere
    asked: list[str] = field(default_factory=list)  # the questions that were sent, in order, as "name body"

    def go(self, place: str = "") -> "Screen":
        """Open a place, in this tab and from its beginning, until its answer is there."""
        self.page.goto("about:blank")
        self.page.goto(self.server.address + place)
        return self.settle()

    def settle(self) -> "Screen":
        """Until nothing is computed any more and all that moves has come to rest."""
        self.page.wait_for_selector(
            ".stage, .why, .told, .ask, .flow, .output, .heads, .search, .lab, .space",
            timeout=SECONDS * 1000,
        )
        assert self.page.evaluate(AT_REST, SECONDS * 1000), "it is still busy"
        return self

    @property
    def hash(self) -> str:
        return urllib.parse.unquote(self.page.evaluate("location.hash"))

    def read(self) -> list[str]:
        """The words that the model reads, as they stand there."""
        return self.page.locator("[data-source] bdi").all_inner_texts()

    def written(self) -> list[str]:
        return self.page.locator("[data-target] bdi").all_inner_texts()

    def source(self, at: int) -> Locator:
        return self.page.locator(f"[data-source='{at}']")

    def target(self, at: int) -> Locator:
        return self.page.locator(f"[data-target='{at}']")

    def covered(self) -> list[int]:
        found = self.page.locator("[data-source][aria-pressed=true]")
        return [int(each.get_attribute("data-source") or -1) for each in found.all()]

    def lit(self) -> int:
        return int(self.page.locator("[data-target][aria-pressed=true]").get_attribute("data-target") or -1)

    def said(self) -> list[str]:
        """The sentences below the words."""
        return self.page.locator(".said p.told").all_inner_texts()

    def focused(self) -> str:
        """What the element that has the focus is called: by a name of its own, its word, or all that it says."""
        return self.page.evaluate(
            "(({ activeElement: each }) => each.getAttribute('aria-label') ?? "
            "(each.querySelector('bdi') ?? each).textContent.trim())(document)"
        )

    def overflow(self) -> float:
        """How far the page reaches beyond the window's right edge, in pixels."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def field(self) -> Locator:
        return self.page.locator("#text")

    def type(self, text: str) -> "Screen":
        """Type a text in place of the one that is there, and run it."""
        self.field().fill(text)
        self.field().press("Enter")
        return self.settle()

    def forgive(self, pattern: str) -> None:
        """What went wrong on purpose. Everything else that was told stays a fault."""
        self.told[:] = [each for each in self.told if not re.search(pattern, each)]

    def devtools(self) -> CDPSession:
        return self.page.context.new_cdp_session(self.page)


Open = Callable[..., Screen]


@pytest.fixture
def open_screen(browser: Browser, server: Server) -> Iterator[Open]:
    """Opens pages, each with a store of its own. When the test ends they must have had no error, and nothing from
    anywhere else (B70, B71)."""
    contexts: list[BrowserContext] = []
    screens: list[Screen] = []

    def opened(
        place: str = "",
        *,
        lang: str = "en",
        theme: str = "light",
        size: tuple[int, int] = WIDE,
        on: Server = server,
        go: bool = True,
    ) -> Screen:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            locale={"en": "en-GB", "zh": "zh-CN"}[lang],
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(SECONDS * 1000)
        contexts.append(context)
        screen = Screen(context.new_page(), on)
        screens.append(screen)
        watch(screen)
        return screen.go(place) if go else screen

    yield opened
    told = [each for screen in screens for each in screen.told]
    for context in contexts:
        context.close()
    assert not told, "\n".join(told)


def watch(screen: Screen) -> None:
    """Note what a page asks and what goes wrong in it. A policy that is violated is told on the console."""

    def requested(request: Request) -> None:
        if not request.url.startswith((screen.server.address, "data:", "blob:", "about:")):
            screen.told.append(f"a request to {request.url}")
        if "/answers/" in request.url:
            screen.asked.append(f"{request.url.rsplit('/', 1)[1]} {request.post_data}")

    def said(message: ConsoleMessage) -> None:
        # A question whose place a newer one took is answered so, and a browser tells it.
        if message.type in {"error", "warning"} and "status of 429" not in message.text:
            screen.told.append(f"console: {message.text}")

    screen.page.on("request", requested)
    screen.page.on("pageerror", lambda error: screen.told.append(f"thrown: {error}"))
    screen.page.on("console", said)


@cache
def opened_model(name: str) -> Loaded:
    """A bundled model in this process: what the page shows is held against it."""
    return load(zoo.find(name))
