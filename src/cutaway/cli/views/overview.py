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
from cutaway.text.display import truncate, width
from cutaway.words import Phrase, say

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
    title = say("{model} reads {text}", model=found.model, text=text)
    steps = [Code(about, _command(request, options)) for about, options in _steps(found)]
    steps.append(Code(say("all views"), "cutaway inspect --help"))
    return Answer(found, overview_page(found, title, steps))


def _steps(found: "Overview") -> Iterator[tuple[Phrase, list[str]]]:
    """What to look at next: what it tells, and the options that ask for it."""
    first = found.heads[0]
    where = f"{first.layer}.{first.head}"
    if found.source is not None and found.target is not None:
        about = say("where each word looked, and what it depends on")
        yield about, [f"--show {View.ALIGN}"]
    about = say("the strongest head, {where}: which token weighs which", where=where)
    yield (
        about,
        [f"--show {View.ATTENTION}", f"--side {first.side} --layer {first.layer} --head {first.head}"],
    )
    if found.vector is None:
        about = say("what each layer would say, were it the last")
        yield about, [f"--show {View.LENS}"]
        if found.source is None or found.target is None:
            about = say("which tokens it depends on, by gradients")
            yield about, [f"--show {View.GRADIENTS}"]
    change = json.dumps({"op": "head", "side": first.side, "layer": first.layer, "head": first.head})
    about = say("the same without head {where}", where=where)
    yield about, [f"--show {View.DIFF}", f"--change {quote(change)}"]
    about = say("one number with its formula, worked out again")
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
