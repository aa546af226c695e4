"""Takes the pages' pictures of the explorer: `python -m docs.screenshots` (or `make screenshots`).

A real server of the bundled translator, a real browser (CUTAWAY_CHROMIUM, or chromium on PATH), a real sentence.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import ViewportSize, sync_playwright

FOLDER = Path(__file__).parent / "pictures"
SENTENCE = quote("她的妹妹在北京工作。")
LANGUAGES = {"": "en", ".zh": "zh"}
# Of each picture the place, and what is there once the answer is.
PLACES = {
    "explorer": ("#/?hide=4", "text=Kyoto"),
    "flow": (
        '#/flow?side="decoder"&at=4&layer=3&head=0&number=decoder.layers.3.cross_attn.pattern[0,0,4,5]',
        "[data-explained]",
    ),
}
SIZE = ViewportSize(width=1280, height=700)


def main() -> None:
    """Write explorer.png, the first screen with one character covered, flow.png, a number of a token's way, and both in
    Chinese (.zh.png)."""
    browser = os.environ.get("CUTAWAY_CHROMIUM") or shutil.which("chromium")
    if browser is None:
        sys.exit("error: no Chromium on PATH and none named by CUTAWAY_CHROMIUM; install one")
    command = [sys.executable, "-m", "cutaway", "serve", "translate-zh-en"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        sync_playwright() as playwright,
    ):
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        shown = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = shown.new_page(viewport=SIZE, device_scale_factor=1, reduced_motion="reduce")
        for ending, locale in LANGUAGES.items():
            for name, (place, there) in PLACES.items():
                page.goto("about:blank")
                page.goto(f"{address}{place}&lang={locale}&text={SENTENCE}")
                page.locator(there).first.wait_for(timeout=60_000)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=FOLDER / f"{name}{ending}.png")
        shown.close()
        server.terminate()


if __name__ == "__main__":
    main()
