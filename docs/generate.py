"""Writes the pages that are made from the code: `python -m docs.generate` (or `make docs`). tests/test_docs.py
fails when they are stale."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path

from tests.parity.reference import CASES, parity

from cutaway.checkpoint.architectures.registry import ARCHITECTURES
from cutaway.glossary import GLOSSARY
from cutaway.models.build import FAMILIES
from cutaway.tap import TAPS
from cutaway.words import LOCALES, Locale

DOCS = Path(__file__).parent


_VOCABULARY: dict[Locale, str] = {
    "en": """<!-- made by docs/generate.py; do not edit -->
# The vocabulary

## Taps

Every intermediate value of a forward pass has a name. `Trace(model, watch=["decoder.layers.*.cross_attn.pattern"])`
records the values whose full names, module path and tap, match a pattern; `edit=` replaces them.

B batch, T queries, S keys, D width, H heads, K key/value heads, E head width, F feed-forward width,
X experts, A chosen experts of a token, V vocabulary. Inside an expert (`…mlp.experts.3.hidden`)
B is 1 and T counts the tokens it was given.

| name | shape | what it is |
|---|---|---|
{taps}
## Glossary

In the order in which a text passes through a model; the Chinese is the one word that cutaway uses for the term.

| term | Chinese | symbol | what it means |
|---|---|---|---|
{terms}""",
    "zh": """<!-- made by docs/generate.py; do not edit -->
# 名称与术语

## 探点

前向计算的每个中间值都有名字。`Trace(model, watch=["decoder.layers.*.cross_attn.pattern"])` 记录全名
（模块路径加探点名）与模式匹配的值；用 `edit=` 可以替换它们。

B 批大小，T 查询，S 键，D 模型宽度，H 头，K 键/值头，E 头的宽度，F 前馈网络的宽度，X 专家，A 每个词元选用的专家，
V 词表。在专家内部（`…mlp.experts.3.hidden`）B 为 1，T 是分给它的词元数。

| 名称 | 形状 | 含义 |
|---|---|---|
{taps}
## 术语

按文字通过模型的先后排列；中文一栏是 cutaway 对该术语唯一的译法。

| 术语 | 英文 | 符号 | 含义 |
|---|---|---|---|
{terms}""",
}


def vocabulary(locale: Locale) -> str:
    """docs/vocabulary.md in either language, from the table beside `tap` and from the glossary."""
    taps = [(f"`{name}`", shape, meaning.said(locale)) for name, (shape, meaning) in TAPS.items()]
    terms = [
        (*(each.term.said(language) for language in sorted(LOCALES, key=lambda other: other != locale)),
         each.symbol, each.about.said(locale))
        for each in GLOSSARY.values()
    ]  # fmt: skip
    return _VOCABULARY[locale].format(taps=_rows(taps), terms=_rows(terms))


def _rows(cells: Iterable[Iterable[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


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
    DOCS / "vocabulary.md": partial(vocabulary, "en"),
    DOCS / "zh" / "vocabulary.md": partial(vocabulary, "zh"),
    DOCS / "cli.md": partial(commands, "The command line", "C.UTF-8"),
    DOCS / "zh" / "cli.md": partial(commands, "命令行", "zh_CN.UTF-8"),
    DOCS / "checkpoints.md": english,
    DOCS / "zh" / "checkpoints.md": chinese,
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
