"""`cutaway inspect … --show sweep` and `--show diff`: what a run loses when something in it is changed."""

import json
from functools import partial

from cutaway.cli.terminal import progress
from cutaway.cli.views.request import Answer, Request
from cutaway.errors import CutawayError, brief
from cutaway.words import say

HEADS_OFF = say("heads switched off, layers")


def sweep(request: Request) -> Answer:
    """Every head switched off in turn."""
    from cutaway.inspection.changes.sweep import sweep as switch_off
    from cutaway.inspection.pages.changes import RANKED, sweep_page

    top, side = request.top(RANKED), request.side
    found = switch_off(
        request.run(),
        sides=None if side is None else [side],
        observe=partial(progress, HEADS_OFF),
    )
    return Answer(found, sweep_page(found, top))


def diff(request: Request) -> Answer:
    """The same run under changes and without; a change `resid` takes from "other" what --other's run had there."""
    from cutaway.inspection.changes.comparison import compare

    given = request.options.change
    if not given:
        raise CutawayError(
            '--show diff needs a change: --change \'{"op": "head", "side": "cross", "layer": 0, "head": 0}\', or '
            "several of them"
        )
    changes = [each for text in given for each in _objects(text)]
    runs = {}
    takes = any(change.get("from") == "other" for change in changes)
    if takes and request.options.other is None:
        raise CutawayError(
            'a change takes from "other", a run of another text: give that text by --other "…"'
        )
    if request.options.other is not None:
        if not takes:
            raise CutawayError(
                '--other has no effect: no change takes from it (op "resid" with "from": "other")'
            )
        runs["other"] = request.with_text(request.options.other).run()
    found = compare(request.run(), changes, runs=runs)
    return Answer(found, found.page())


def _objects(text: str) -> list[dict[str, object]]:
    """The JSON object of one --change, or the objects of a list."""
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise CutawayError("--change {text} is no JSON: {error}", text=brief(text), error=error) from error
    listed = read if isinstance(read, list) else [read]
    for each in listed:
        if not isinstance(each, dict):
            raise CutawayError(
                '--change: {each}, expected an object such as {{"op": "head", …}}', each=brief(each)
            )
    return listed
