"""`cutaway inspect MODEL TEXT`: a text's tokens, what the model makes of it, its strongest heads, where to go on."""

import json
from collections.abc import Iterator
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

from cutaway.cli.terminal import progress
from cutaway.cli.views.changes import HEADS_OFF
from cutaway.cli.views.request import Answer, Request, View
from cutaway.page.blocks import Code
from cutaway.page.locale import Both
from cutaway.text.display import truncate, width

if TYPE_CHECKING:
    from cutaway.inspection.runs.overview import Overview

LINE = 80  # columns of a command before it is continued on the next line
TEXT = 48  # columns of the text that a title repeats


def overview(request: Request) -> Answer:
    """A text at a glance."""
    from cutaway.inspection.pages.overview import overview_page
    from cutaway.inspection.runs.overview import overview as look

    top = request.top(5)
    found = look(request.run(), top, observe=partial(progress, HEADS_OFF))
    text = truncate(" ".join(request.text.split()), TEXT)
    title = Both(f"{found.model} reads {text}", f"{found.model} 读入 {text}")
    steps = [Code(about, _command(request, options)) for about, options in _steps(found)]
    steps.append(Code(Both("all views", "全部视图"), "cutaway inspect --help"))
    return Answer(found, overview_page(found, title, steps))


def _steps(found: "Overview") -> Iterator[tuple[Both, list[str]]]:
    """What to look at next: what it tells, and the options that ask for it."""
    first = found.heads[0]
    where = f"{first.layer}.{first.head}"
    if found.source is not None and found.target is not None:
        about = Both("where each word looked, and what it depends on", "每个词看向哪里，又依赖什么")
        yield about, [f"--show {View.ALIGN}"]
    about = Both(
        f"the strongest head, {where}: which token weighs which", f"影响最大的头 {where}：各词块之间的权重"
    )
    yield (
        about,
        [f"--show {View.ATTENTION}", f"--side {first.side} --layer {first.layer} --head {first.head}"],
    )
    if found.vector is None:
        about = Both("what each layer would say, were it the last", "假如在某一层结束，模型会说什么")
        yield about, [f"--show {View.LENS}"]
        if found.source is None or found.target is None:
            about = Both("which tokens it depends on, by gradients", "依赖哪些词块，按梯度计算")
            yield about, [f"--show {View.GRADIENTS}"]
    change = json.dumps({"op": "head", "side": first.side, "layer": first.layer, "head": first.head})
    about = Both(f"the same without head {where}", f"关掉头 {where} 之后")
    yield about, [f"--show {View.DIFF}", f"--change {quote(change)}"]
    about = Both("one number with its formula, worked out again", "一个数的公式，并重新计算")
    yield about, [f"--show {View.EXPLAIN}"]


def _command(request: Request, options: list[str]) -> str:
    """A whole command, in lines that a shell joins."""
    from cutaway.zoo import bundled

    path, given = request.loaded.path, request.options
    model = path.name if path in bundled() else quote(str(path))
    parts = [f"cutaway inspect {model}", _quoted(request.text), *options]
    parts += [
        f"--{name} {_quoted(value)}" for name, value in (("target", given.target), ("to", given.to)) if value
    ]
    lines = [parts[0]]
    for part in parts[1:]:
        if width(lines[-1]) + width(part) + 3 > LINE:
            lines.append(f"  {part}")
        else:
            lines[-1] += f" {part}"
    return " \\\n".join(lines)


def _quoted(text: str) -> str:
    """A text as an argument: in double quotes, which most texts can be read in, unless a shell sees more in them."""
    return quote(text) if any(mark in text for mark in '"$`\\!') else f'"{text}"'
