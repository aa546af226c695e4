"""The sub-views of `cutaway inspect`, the options that each reads, and how one is shown, written and saved."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cutaway.cli.terminal import note, texts_from, write
from cutaway.cli.view_align import align
from cutaway.cli.view_attention import attention
from cutaway.cli.view_changes import diff, sweep
from cutaway.cli.view_explain import explain
from cutaway.cli.view_feed_forward import experts, neurons
from cutaway.cli.view_lens import lens
from cutaway.cli.view_neighbours import analogy, neighbours
from cutaway.cli.view_overview import overview
from cutaway.cli.view_request import Answer, Options, Request, View
from cutaway.cli.view_save import check_ending, plain, save
from cutaway.cli.view_svd import svd
from cutaway.errors import CutawayError
from cutaway.zoo import find


@dataclass(frozen=True)
class Entry:
    """What answers a view, the options it reads, and whether it needs a text."""

    ask: Callable[[Request], Answer]
    reads: tuple[str, ...]
    text: bool = True


VIEWS = {
    View.OVERVIEW: Entry(overview, ("target", "to", "top")),
    View.ALIGN: Entry(align, ("layer", "head", "target", "to", "top")),
    View.ATTENTION: Entry(attention, ("side", "layer", "head", "target", "to")),
    View.LENS: Entry(lens, ("layer", "target", "to", "top", "index")),
    View.NEURONS: Entry(neurons, ("side", "layer", "target", "to", "top", "name", "index")),
    View.EXPERTS: Entry(experts, ("layer", "target", "to")),
    View.NEIGHBOURS: Entry(neighbours, ("top", "name")),
    View.ANALOGY: Entry(analogy, ("target", "top", "name")),
    View.SVD: Entry(svd, ("side", "layer", "head", "top", "name"), text=False),
    View.EXPLAIN: Entry(explain, ("target", "to", "name", "index")),
    View.SWEEP: Entry(sweep, ("side", "target", "to", "top")),
    View.DIFF: Entry(diff, ("target", "to", "change")),
}


def show_view(
    model: str, text: str | None, view: View | None, options: Options, *, as_json: bool, out: Path | None
) -> None:
    """Show one view of a text (None: the overview), as JSON where asked for, its arrays in a file where asked for.

    Raises CutawayError for what does not go together, before any weights are read.
    """
    view = View.OVERVIEW if view is None else view
    entry = VIEWS[view]
    for name in options.given:
        if name not in entry.reads:
            readers = ", ".join(each for each, other in VIEWS.items() if name in other.reads)
            raise CutawayError(f"--{name} has no effect on --show {view}; it goes with {readers}")
    if entry.text and text is None:
        raise CutawayError(
            f'--show {view} needs a text after the model: cutaway inspect {model} "…" --show {view}'
        )
    if not entry.text and text is not None:
        raise CutawayError(f"--show {view} is about the model alone; leave the text out")
    if out is not None:
        check_ending(out)
    path = find(model)
    given = "" if text is None else texts_from(text)[0]

    from cutaway.checkpoint.folder import load

    request = Request(load(path), given, options, complete=as_json or out is not None)
    answer = entry.ask(request)
    if out is not None:
        names = save(out, model, view, answer.result)
        note(f"{out}: {', '.join(names[:6])}{f' and {len(names) - 6} more' if len(names) > 6 else ''}")
    if as_json:
        about = {"model": model, "text": text, "view": view.value, "result": plain(answer.result)}
        write(json.dumps(about, ensure_ascii=False, allow_nan=False))
    else:
        answer.show()
