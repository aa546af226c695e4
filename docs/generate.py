"""Writes the pages that are made from the code: `python -m docs.generate` (or `make docs`). tests/test_docs.py
fails when they are stale."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tests.parity.reference import CASES, parity

from cutaway import find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.published import ARCHITECTURES
from cutaway.config import LARGEST, PIECES, Key
from cutaway.glossary import GLOSSARY
from cutaway.inspection import diff, run
from cutaway.inspection.changes.change import Change, Example
from cutaway.inspection.changes.lists import KINDS, kinds_in, spelled
from cutaway.inspection.changes.presets import Preset, presets
from cutaway.inspection.options import Parameter, Repeated
from cutaway.inspection.question import GROUPS, RUN_OPTIONS, all_questions
from cutaway.inspection.runs import Run
from cutaway.models.build import FAMILIES
from cutaway.tap import TAPS
from cutaway.train.recipe import Recipe
from cutaway.train.word_recipe import WordRecipe
from cutaway.words import LOCALES, Locale
from cutaway.zoo import TRANSLATOR

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


_CHANGES: dict[Locale, str] = {
    "en": """<!-- made by docs/generate.py; do not edit -->
# The kinds of change

A change is an object whose `op` names its kind. A list of them is the same in Python, in JSON, and on the command line,
where each stands after a `--change`:

```text
cutaway inspect diff "他昨天买了一本新书。" --change '{{"op": "head", "side": "cross", "layer": 3, "head": 1}}'
```

In Python `diff(run, changes)` compares a run with changes and without, `edits` gives the edits of taps for a forward
pass of your own, and `write` says what the model writes then. A list is checked as a whole before anything runs: an
error names the change, the key and the reason. An empty list changes nothing, to the bit.

Order is meaning: where two changes meet in the same value, the later one works on what the earlier one left; but
`norm`, `dropout` and `mask` come first wherever they stand. Positions count the tokens that a side reads, start and
control tokens included, in a forward pass and in decoding step by step alike. `"enc"` and `"dec"` are short for encoder
and decoder.

Below each kind stands a change, what the translator writes without it and with it (of 他昨天买了一本新书。 where no
other text is named), and by how many nats the log-probability of the first of these changes. A trained model has never
met such changes: they show dependence, not purpose.

`cutaway.inspection.changes.presets` has lists to begin with, as they are for a model's config; for the translator:

| | | look at | changes |
|---|---|---|---|
{presets}{kinds}""",
    "zh": """<!-- made by docs/generate.py; do not edit -->
# 改动的种类

一处改动是一个对象，`op` 指明它的种类。改动的列表在 Python、JSON 和命令行里写法相同；命令行里每处改动写在一个
`--change` 之后：

```text
cutaway inspect diff "他昨天买了一本新书。" --change '{{"op": "head", "side": "cross", "layer": 3, "head": 1}}'
```

在 Python 里，`diff(run, changes)` 比较改动前后的运行，`edits` 给出探点的编辑，供自己做前向计算，`write` 给出模型
此时写出的文字。列表在运行之前整体检查：出错时会指出是哪处改动、哪个键、什么原因。空列表什么也不改，逐位相同。

顺序有意义：两处改动遇到同一个值时，后面的在前面的结果上进行；但 `norm`、`dropout` 和 `mask` 不论写在哪里都最先
进行。位置按一侧读入的词元数，起始词元和控制词元也算在内，前向计算与逐步解码都是如此。`"enc"` 和 `"dec"` 是
encoder 和 decoder 的简写。

每个种类下面举出一处改动、翻译模型改动前后写出的文字（没有另外注明时，原文是“他昨天买了一本新书。”），以及原输出的
对数概率变化多少奈特。模型训练时从未遇到过这样的改动：这里反映的是依赖，不代表功能。

`cutaway.inspection.changes.presets` 里有现成的列表，按模型的配置给出；翻译模型的如下：

| | | 看什么 | 改动 |
|---|---|---|---|
{presets}{kinds}""",
}
_COLUMNS: dict[Locale, str] = {
    "en": "| key | value | default | meaning |",
    "zh": "| 键 | 取值 | 默认 | 含义 |",
}
_TYPES: dict[Locale, dict[object, str]] = {
    "en": {int: "whole number", float: "number", str: "text", bool: "true or false", tuple: "list of: {}",
           dict: "table of: {}", "or": " or ", "needed": "needed", "none": "no bundled model has experts"},
    "zh": {int: "整数", float: "数", str: "文字", bool: "true 或 false", tuple: "列表，各项为{}",
           dict: "表，各值为{}", "or": " 或 ", "needed": "必填", "none": "内置模型都没有专家"},
}  # fmt: skip


def changes(locale: Locale) -> str:
    """docs/changes.md in either language, from the classes of changes; each example is tried."""
    kinds = ""
    for group, module in KINDS:
        kinds += f"\n## {group.said(locale)}\n"
        for kind in kinds_in(module):
            keys = [
                (f"`{spelled(field.name)}`", _values(_hint(kind, field.name), locale),
                 _default(field.default, locale), field.metadata["key"].about.said(locale))
                for field in fields(kind)
            ]  # fmt: skip
            kinds += f"\n### `{kind.op}`\n\n{kind.about.said(locale)}\n\n"
            kinds += f"{_COLUMNS[locale]}\n|---|---|---|---|\n{_rows(keys)}\n"
            kinds += f"`{_written({'op': kind.op, **kind.example.change})}` · {_tried(kind, locale)}\n"
    lists = [
        (each.title.said(locale), each.about.said(locale), each.look.said(locale), _listed(each, locale))
        for each in presets(_opened(TRANSLATOR).config)
    ]
    return _CHANGES[locale].format(kinds=kinds, presets=_rows(lists))


def _listed(preset: Preset, locale: Locale) -> str:
    """The changes of a preset; of one that a run has to tell, where they come from."""
    swept: dict[Locale, str] = {"en": "the first of `sweep`", "zh": "`sweep` 排在最前的头"}
    return swept[locale] if preset.changes is None else f"`{_written(preset.changes)}`"


def _hint(kind: type[Change], field: str) -> Any:
    """The type of a field; of `side`, what this kind takes."""
    hint = get_type_hints(kind)[field]
    if field != "side":
        return hint
    return Literal[*(each for each in get_args(get_args(hint)[0]) if each in (*kind.allowed, "*"))]


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _default(default: object, locale: Locale) -> str:
    if default is MISSING:
        return _TYPES[locale]["needed"]
    return "" if default in (None, ()) else f"`{_written(default)}`"


def _values(hint: Any, locale: Locale) -> str:
    """A type in words."""
    words, parts = _TYPES[locale], get_args(hint)
    if get_origin(hint) is Literal:
        return words["or"].join(f"`{_written(each)}`" for each in parts)
    if get_origin(hint) is tuple:
        return words[tuple].format(_values(parts[0], locale))
    if get_origin(hint) is dict:
        return words[dict].format(_values(parts[1], locale))
    if parts:
        return words["or"].join(_values(each, locale) for each in parts if each is not NoneType)
    return words[hint]


@cache
def _read(model: str, text: str) -> Run:
    return run(_opened(model), text)


@cache
def _opened(model: str) -> Loaded:
    return load(find(model))


@cache
def _effect(kind: type[Change]) -> str:
    """What the example's model writes without the change and with it, and the change of its log-probability."""
    example = kind.example
    model = example.model or TRANSLATOR
    other = None if example.other is None else _read(model, example.other)
    found = diff(_read(model, example.text), [{"op": kind.op, **example.change}], other=other)
    assert found.base is not None and found.changed is not None
    written = found.changed.text or "∅"
    text = "" if example.text == Example.text else f"{example.text} "
    text += "" if example.other is None else f"`--other {example.other}` "
    return f"{text}{found.base.text} → {written} ({float(found.difference.sum()):+.1f})"


def _tried(kind: type[Change], locale: Locale) -> str:
    return str(_TYPES[locale]["none"]) if kind.example.model is None else _effect(kind)


# Prints the help of every command; a process of its own, since help is in the language of the environment.
_HELP = """
from typer.main import get_command
from cutaway.cli.main import app

def walk(name, command, above=None):
    context = command.make_context(name, [], above, resilient_parsing=True)
    print(f"## {context.command_path}\\n\\n```text\\n{command.get_help(context)}\\n```\\n")
    if hasattr(command, "list_commands"):
        questions = context.command_path == "cutaway inspect"
        for inner in ["lens"] if questions else command.list_commands(context):
            walk(inner, command.get_command(context, inner), context)

walk("cutaway", get_command(app))
"""


def commands(title: str, about: str, locale: str) -> str:
    """docs/cli.md in either language, from each command's own --help; of the questions one stands for all."""
    settings = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "LC_ALL": locale, "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _HELP],
        env=os.environ | settings, capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    body = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
    return f"<!-- made by docs/generate.py; do not edit -->\n# {title}\n\n{about}\n\n{body}\n"


_REFERENCE: dict[Locale, dict[str, str]] = {
    "en": {
        "title": "The questions",
        "asked": "Each is a function of `cutaway.inspection`, a command `cutaway inspect NAME`, and an entry that a "
        "server offers, all made from one declaration. A question of a text takes a run, `run(loaded, text)`; one of "
        "the model takes what `load` opens.",
        "run": "How the run of a text is made",
        "of run": "Every question of a text has these options too; in Python they are those of `run`.",
        "text": "Asked of a text.", "model": "Asked of the model.", "files": "Asked of the model's files.",
        "needs": "Needs {}.", "head": "| option | type | default | meaning |", "must": "must be given",
        "another": "a text", "objects": "a list of objects",
    },
    "zh": {
        "title": "可以问的问题",
        "asked": "每个问题都是 `cutaway.inspection` 的一个函数、一条命令 `cutaway inspect 名称`，"
        "也是服务端提供的一个入口，三者出自同一处声明。"
        "问一段文字的问题接受一次运行 `run(loaded, text)`；问模型的问题接受 `load` 打开的模型。",
        "run": "一段文字的运行怎样产生",
        "of run": "每个问文字的问题都还有这些选项；在 Python 里它们是 `run` 的参数。",
        "text": "问的是一段文字。", "model": "问的是模型。", "files": "问的是模型的文件。",
        "needs": "需要{}。", "head": "| 选项 | 类型 | 默认值 | 含义 |", "must": "必须给出",
        "another": "一段文字", "objects": "对象的列表",
    },
}  # fmt: skip


def questions(locale: Locale) -> str:
    """docs/questions.md in either language: every question as its function declares it."""
    words = _REFERENCE[locale]
    parts = [f"<!-- made by docs/generate.py; do not edit -->\n# {words['title']}\n\n{words['asked']}\n"]
    for group, title in GROUPS.items():
        parts.append(f"\n## {title.said(locale)}\n")
        for each in all_questions():
            if each.group == group:
                needs = [words["needs"].format(need.what.said(locale)) for need in each.needs]
                about = ("" if locale == "zh" else " ").join(
                    [each.about.said(locale), words[each.subject], *needs]
                )
                parts.append(f"\n### `{each.name}`\n\n{about}\n{_options(each.parameters, locale)}")
    parts.append(f"\n## {words['run']}\n\n{words['of run']}\n{_options(RUN_OPTIONS, locale)}")
    return "".join(parts)


def _options(parameters: Iterable[Parameter], locale: Locale) -> str:
    """A table of options: name, type, default and bounds, meaning."""
    words, rows = _REFERENCE[locale], list[list[str]]()
    for each in parameters:
        bounds = [f"≥ {each.option.at_least:g}"] if each.option.at_least is not None else []
        bounds += [f"≤ {each.option.at_most:g}"] if each.option.at_most is not None else []
        default = words["must"] if each.required else f"`{each.default!r}`"
        kind = words["another"] if each.is_text else _type(each)
        if isinstance(each.option, Repeated):
            kind = words["objects"]
        rows.append([f"`{each.name}`", kind, " ".join([default, *bounds]), each.option.about.said(locale)])
    return f"\n{words['head']}\n|---|---|---|---|\n{_rows(rows)}" if rows else ""


def _type(parameter: Parameter) -> str:
    """As a reader of Python knows it; the choices of one that has some."""
    kind = parameter.kind
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    spelled = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return f"`{spelled}`".replace(" | ", " or ")


@cache
def parities() -> dict[str, float]:
    """For every model_type, the worst of its cases in tests/parity."""
    worst: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, case in enumerate(CASES):
            figure = parity(case, Path(folder) / str(i))
            worst[case.model_type] = max(worst.get(case.model_type, 0.0), figure)
    return worst


def _around(page: Path) -> tuple[str, str]:
    """What stands before and after the part of a page that is made here."""
    marks = r"(?<=<!-- made by docs/generate.py -->\n).*?(?=<!-- end -->)"
    before, after = re.split(marks, page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return before, after


def checkpoints(page: Path, head: str, families: Mapping[str, str], yes: str) -> str:
    """docs/checkpoints.md in either language, its table made anew from the architectures and their parity."""
    before, after = _around(page)
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


def training(page: Path, locale: Locale, recipe: type = Recipe) -> str:
    """A page in either language, with every key of a recipe as its class declares it."""
    before, after = _around(page)
    return before + "".join(_tables(recipe, "", "[{}]", locale)) + after


def _tables(cls: type, path: str, heading: str, locale: Locale) -> Iterator[str]:
    """One table of keys for each table of a recipe; `path` leads to it: "data.validation"."""
    hints, rows, inner = get_type_hints(cls), list[tuple[str, ...]](), list[str]()
    for field in fields(cls):
        hint, known, here = hints[field.name], field.metadata["key"], f"{path}.{field.name}".removeprefix(".")
        kinds = [hint, *get_args(hint)]
        tables = [kind for kind in kinds if is_dataclass(kind) and isinstance(kind, type)]
        if tables:
            several = "[[{}]]" if get_origin(hint) is tuple else "[{}]"
            inner += _tables(tables[0], here, several, locale)
            continue
        default = None if field.default in (MISSING, PIECES) else field.default
        needed = field.default is MISSING and field.default_factory is MISSING
        value = ", ".join([_values(hint, locale), *_bounds(known)])
        shown = _default(MISSING if needed else default, locale)
        rows.append((f"`{field.name}`", value, shown, known.about.said(locale)))
    if rows:
        title = f"\n### `{heading.format(path)}`\n\n"
        yield f"{title}{_COLUMNS[locale]}\n|---|---|---|---|\n{_rows(rows)}"
    yield from inner


def _bounds(known: Key) -> list[str]:
    bounds = (
        ("≥", known.ge),
        (">", known.gt),
        ("≤", known.le if known.le < LARGEST else None),
        ("<", known.lt),
    )
    return [f"{sign} {bound:,}" for sign, bound in bounds if bound is not None]


PAGES = {
    DOCS / "training.md": partial(training, DOCS / "training.md", "en"),
    DOCS / "zh" / "training.md": partial(training, DOCS / "zh" / "training.md", "zh"),
    DOCS / "word-vectors.md": partial(training, DOCS / "word-vectors.md", "en", WordRecipe),
    DOCS / "zh" / "word-vectors.md": partial(training, DOCS / "zh" / "word-vectors.md", "zh", WordRecipe),
    DOCS / "vocabulary.md": partial(vocabulary, "en"),
    DOCS / "zh" / "vocabulary.md": partial(vocabulary, "zh"),
    DOCS / "questions.md": partial(questions, "en"),
    DOCS / "zh" / "questions.md": partial(questions, "zh"),
    DOCS / "cli.md": partial(
        commands,
        "The command line",
        "Each command's own `--help`. Of the questions of `cutaway inspect`, `lens` stands for all: what is "
        "below `--model` is the same everywhere, the options of each are in [questions](questions.md).",
        "C.UTF-8",
    ),
    DOCS / "zh" / "cli.md": partial(
        commands,
        "命令行",
        "各条命令的 `--help`。`cutaway inspect` 的各个问题以 `lens` 为例：`--model` 以下的选项处处相同，"
        "各自的选项见[全部问题](questions.md)。",
        "zh_CN.UTF-8",
    ),
    DOCS / "changes.md": partial(changes, "en"),
    DOCS / "zh" / "changes.md": partial(changes, "zh"),
    DOCS / "checkpoints.md": english,
    DOCS / "zh" / "checkpoints.md": chinese,
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
