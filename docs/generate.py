"""Writes the pages that are made from the code: `python -m docs.generate` (or `make docs`). tests/test_docs.py
fails when they are stale."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.parity.reference import CASES, parity

from cutaway.checkpoint.architectures.registry import ARCHITECTURES
from cutaway.models.build import FAMILIES
from cutaway.tap import TAPS

DOCS = Path(__file__).parent


def vocabulary() -> str:
    """docs/vocabulary.md, from the table beside `tap`."""
    rows = "\n".join(f"| `{name}` | {shape} | {meaning} |" for name, (shape, meaning) in TAPS.items())
    return f"""<!-- made by docs/generate.py; do not edit -->
# The vocabulary of taps

Every intermediate value of a forward pass has a name. `Trace(model, watch=["decoder.layers.*.cross_attn.pattern"])`
records the values whose full names, module path and tap, match a pattern; `edit=` replaces them.

B batch, T queries, S keys, D width, H heads, K key/value heads, E head width, F feed-forward width,
X experts, A chosen experts of a token, V vocabulary. Inside an expert (`…mlp.experts.3.hidden`)
B is 1 and T counts the tokens it was given.

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


@cache
def parities() -> dict[str, float]:
    """For every model_type, the worst of its cases in tests/parity."""
    worst: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, case in enumerate(CASES):
            figure = parity(case, Path(folder) / str(i))
            worst[case.model_type] = max(worst.get(case.model_type, 0.0), figure)
    return worst


def checkpoints(page: Path, head: str, families: Mapping[str, str], yes: str) -> str:
    """docs/checkpoints.md in either language, its table made anew from the architectures and their parity."""
    before, _, after = re.split(r"(?<=<!-- made by docs/generate.py -->\n)(.*?)(?=<!-- end -->)",
                                page.read_text(encoding="utf-8"), flags=re.DOTALL)  # fmt: skip
    rows = "".join(
        f"| {families[str(a.fixed['family'])]} | `{a.model_type}` | `{a.class_name}` | {yes} | {yes} "
        f"| {parities()[a.model_type]:.0e} |\n"
        for a in {a.model_type: a for a in ARCHITECTURES}.values()
    )
    return f"{before}{head}\n|---|---|---|---|---|---|\n{rows}{after}"


def english() -> str:
    names = {name: name for name in FAMILIES}
    head = "| family | `model_type` | class in transformers | read | written | greatest difference |"
    return checkpoints(DOCS / "checkpoints.md", head, names, "yes")


def chinese() -> str:
    names = dict(zip(FAMILIES, ("编码器-解码器", "仅解码器", "仅编码器"), strict=True))
    head = "| 家族 | `model_type` | transformers 里的类 | 读 | 写 | 最大差 |"
    return checkpoints(DOCS / "zh" / "checkpoints.md", head, names, "能")


PAGES = {DOCS / "vocabulary.md": vocabulary, DOCS / "cli.md": commands, DOCS / "checkpoints.md": english,
         DOCS / "zh" / "checkpoints.md": chinese}  # fmt: skip

if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
