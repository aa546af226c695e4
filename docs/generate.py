"""Writes the pages that are made from the code: `python -m docs.generate` (or `make docs`). tests/test_docs.py
fails when they are stale."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

from tests.parity.reference import CASES, parity

from cutaway.checkpoint.published import ARCHITECTURES
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


# Prints the help of every command; a process of its own, since help is in the language of the environment.
_HELP = """
from typer.main import get_command
from cutaway.cli.main import app

def walk(name, command, above=None):
    context = command.make_context(name, [], above, resilient_parsing=True)
    print(f"## {context.command_path}\\n\\n```text\\n{command.get_help(context)}\\n```\\n")
    for inner in getattr(command, "commands", {}).items():
        walk(*inner, context)

walk("cutaway", get_command(app))
"""


def commands(title: str, locale: str) -> str:
    """docs/cli.md in either language, from each command's own --help."""
    settings = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "LC_ALL": locale, "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _HELP],
        env=os.environ | settings, capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    body = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
    return f"<!-- made by docs/generate.py; do not edit -->\n# {title}\n\n{body}\n"


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


PAGES = {
    DOCS / "vocabulary.md": vocabulary,
    DOCS / "cli.md": partial(commands, "The command line", "C.UTF-8"),
    DOCS / "zh" / "cli.md": partial(commands, "命令行", "zh_CN.UTF-8"),
    DOCS / "checkpoints.md": english,
    DOCS / "zh" / "checkpoints.md": chinese,
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
