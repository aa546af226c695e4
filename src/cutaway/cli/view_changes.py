"""`cutaway inspect … --show sweep` and `--show diff`: what a run loses when something in it is changed."""

import json
from functools import partial
from typing import TYPE_CHECKING

from cutaway.cli.terminal import columns, shows_unicode, write, write_table
from cutaway.cli.view_page import (
    heading,
    labelled,
    nats,
    paragraph,
    progress,
    remark,
    share,
    styled_words,
    title,
)
from cutaway.cli.view_request import Answer, Request
from cutaway.errors import CutawayError, brief
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.inspection.changes.comparison import Comparison
    from cutaway.inspection.changes.sweep import HeadSweep

CELL = 8  # columns of one head's effect
STYLES = {"equal": "", "delete": "red strike", "insert": "green", "replace": "yellow"}


def sweep(request: Request) -> Answer:
    from cutaway.inspection.changes.sweep import sweep as switch_off

    top, side = request.top(8), request.side
    found = switch_off(
        request.run(),
        sides=None if side is None else [side],
        observe=partial(progress, "heads switched off, layers"),
    )
    return Answer(found, partial(_show_sweep, found, top))


def _show_sweep(found: "HeadSweep", top: int) -> None:
    for place, (side, grid) in enumerate(found.effects.items()):
        (heading if place else title)(f"{side} attention: what the output loses without each head (nats)")
        _grid(grid)
    heading("The heads that the output depends on most")
    rows = [(each.side, f"{each.layer}.{each.head}", nats(each.effect)) for each in found.ranking[:top]]
    write_table(("side", "head", "effect"), rows, right=("head", "effect"))
    remark(
        f"Fall of the output's log-probability ({found.base:.2f} in all) with one head's result set to 0. Below 0: "
        "more probable without it. Dependence on this one head, whose work others may take over; not its purpose."
    )


def _grid(grid: "Tensor") -> None:
    """Layers down, heads across, in blocks as wide as the terminal."""
    size = max(1, (columns() - CELL) // CELL)
    for first in range(0, grid.shape[1], size):
        heads = range(first, min(first + size, grid.shape[1]))
        titles = [f"h{head}" for head in heads]
        rows = [
            (f"layer {layer}", *(nats(float(row[head])) for head in heads)) for layer, row in enumerate(grid)
        ]
        write_table(("", *titles), rows, right=titles)


def diff(request: Request) -> Answer:
    from cutaway.inspection.changes.comparison import compare

    given = request.options.change
    if not given:
        raise CutawayError(
            '--show diff needs a change: --change \'{"op": "head", "side": "cross", "layer": 0, "head": 0}\', or '
            "several of them"
        )
    run = request.run()
    found = compare(run, [each for text in given for each in _objects(text)])
    return Answer(found, partial(_show_diff, found, run.target is None))


def _objects(text: str) -> list[dict[str, object]]:
    """The JSON object of one --change, or the objects of a list."""
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise CutawayError(f"--change {brief(text)} is no JSON: {error}") from error
    listed = read if isinstance(read, list) else [read]
    for each in listed:
        if not isinstance(each, dict):
            raise CutawayError(f'--change: {brief(each)}, expected an object such as {{"op": "head", …}}')
    return listed


def _show_diff(found: "Comparison", both_ways: bool) -> None:
    from cutaway.inspection.changes.reading import write_change

    for change in found.changes:
        labelled("change", json.dumps(write_change(change), ensure_ascii=False).split(" "))
    if found.base is not None and found.changed is not None:
        heading("What the model writes")
        paragraph("without", found.base.text)
        paragraph("with", found.changed.text)
        if found.base.ids == found.changed.ids:
            write("the same, token by token")
        else:
            _show_edits(found)
    heading("How the tokens of the unchanged output fare")
    rows = [
        (truncate(piece, 20), share(before), share(after), nats(difference), f"{divergence:.3f}")
        for piece, before, after, difference, divergence in zip(
            found.pieces,
            found.base_log_probs.exp().tolist(),
            found.changed_log_probs.exp().tolist(),
            found.difference.tolist(),
            found.divergence.tolist(),
            strict=True,
        )
    ]
    titles = ("without", "with", "log", "divergence")
    write_table(("token", *titles), rows, right=titles)
    remark(
        f"Each token given {'the whole text' if both_ways else 'those before it'}; log: change of its log-probability "
        f"in nats, {nats(float(found.difference.sum()))} in all; divergence: KL of the whole distribution, in nats. A "
        "trained model has never met such changes: they show dependence, not purpose."
    )
    for departure in found.departures:
        first = departure.first(1e-5)
        if first is None:
            where = "does not move"
        else:
            farthest = float(departure.relative[-1].max())
            at = "at its input" if first == 0 else f"in layer {first - 1}"
            where = f"first moves {at}; at its end by up to {100 * farthest:.3g} % of its length"
        labelled(departure.side, ["residual", "stream", *where.split(" ")])


def _show_edits(found: "Comparison") -> None:
    """The pieces of both texts in one line: what went and what came."""
    cut, into = ("−", "→") if shows_unicode() else ("-", "->")
    parts: list[tuple[str, str]] = []
    for edit in found.token_edits:
        before, after = " ".join(edit.base_pieces), " ".join(edit.changed_pieces)
        text = {
            "equal": before,
            "delete": f"[{cut} {before}]",
            "insert": f"[+ {after}]",
            "replace": f"[{before} {into} {after}]",
        }[edit.kind]
        parts.append((text, STYLES[edit.kind]))
    write()
    styled_words(parts)
