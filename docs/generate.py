"""Writes the pages that are made from the code: `python docs/generate.py` (or `make docs`). tests/test_docs.py
fails when they are stale."""

import os
import re
import subprocess
import sys
from pathlib import Path

from cutaway.tap import TAPS

DOCS = Path(__file__).parent


def vocabulary() -> str:
    """docs/vocabulary.md, from the table beside `tap`."""
    rows = "\n".join(f"| `{name}` | {shape} | {meaning} |" for name, (shape, meaning) in TAPS.items())
    return f"""<!-- made by docs/generate.py; do not edit -->
# The vocabulary of taps

Every intermediate value of a forward pass has a name. `Trace(model, watch=["decoder.layers.*.cross_attn.pattern"])`
records the values whose full names, module path and tap, match a pattern; `edit=` replaces them.

B batch, T queries, S keys, D width, H heads, K key/value heads, E head width, F feed-forward width, V vocabulary.

| name | shape | what it is |
|---|---|---|
{rows}
"""


def commands() -> str:
    """docs/cli.md, from each command's own --help."""
    main = _help()
    names = re.findall(r"^  (\w+)  ", main[main.index("Commands:") :], re.MULTILINE)
    parts = [("cutaway", main)]
    for name in names:
        text = _help(name)
        parts.append((f"cutaway {name}", text))
        if "Commands:" in text:
            inner = re.findall(r"^  (\w+)  ", text[text.index("Commands:") :], re.MULTILINE)
            parts += [(f"cutaway {name} {sub}", _help(name, sub)) for sub in inner]
    body = "\n".join(f"## {title}\n\n```text\n{text.strip()}\n```\n" for title, text in parts)
    return f"<!-- made by docs/generate.py; do not edit -->\n# The command line\n\n{body}"


def _help(*command: str) -> str:
    environment = os.environ | {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "cutaway", *command, "--help"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


PAGES = {DOCS / "vocabulary.md": vocabulary, DOCS / "cli.md": commands}

if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
