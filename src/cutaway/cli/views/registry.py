"""The sub-views of `cutaway inspect`, the options that each reads, and how one is shown, written and saved."""

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cutaway import __version__
from cutaway.cli.terminal import note, texts_from, write, write_page
from cutaway.cli.views.align import align
from cutaway.cli.views.attention import attention, rollout, values
from cutaway.cli.views.attribution import gradients, logit, similarity
from cutaway.cli.views.changes import diff, sweep
from cutaway.cli.views.explain import explain
from cutaway.cli.views.feed_forward import experts, neurons
from cutaway.cli.views.geometry import analogy, drift, neighbours, projection
from cutaway.cli.views.lens import lens
from cutaway.cli.views.overview import overview
from cutaway.cli.views.request import Answer, Options, Request, View
from cutaway.cli.views.saving import ENDINGS, check_ending, plain, save
from cutaway.cli.views.svd import rank, svd
from cutaway.errors import CutawayError
from cutaway.page.blocks import Caption, Page
from cutaway.page.figures import write_figures
from cutaway.page.html import document
from cutaway.words import Locale, said, say
from cutaway.zoo import find


@dataclass(frozen=True)
class Entry:
    """What answers a view, the options it reads, and whether it needs a text."""

    ask: Callable[[Request], Answer]
    reads: tuple[str, ...]
    text: bool = True


VIEWS = {
    View.OVERVIEW: Entry(overview, ("target", "to", "top")),
    View.ALIGN: Entry(align, ("layer", "head", "target", "to", "top", "gold")),
    View.ATTENTION: Entry(attention, ("side", "layer", "head", "target", "to")),
    View.ROLLOUT: Entry(rollout, ("side", "target", "to")),
    View.VALUES: Entry(values, ("side", "layer", "head", "target", "to")),
    View.LENS: Entry(lens, ("layer", "target", "to", "top", "index")),
    View.NEURONS: Entry(neurons, ("side", "layer", "target", "to", "top", "name", "index")),
    View.EXPERTS: Entry(experts, ("layer", "target", "to")),
    View.NEIGHBOURS: Entry(neighbours, ("top", "name")),
    View.ANALOGY: Entry(analogy, ("target", "top", "name")),
    View.PROJECTION: Entry(projection, ("top", "name")),
    View.DRIFT: Entry(drift, ("side", "to", "top", "name", "other")),
    View.SVD: Entry(svd, ("side", "layer", "head", "top", "name"), text=False),
    View.RANK: Entry(rank, ("side", "layer", "head", "target", "to", "name", "ranks")),
    View.LOGIT: Entry(logit, ("target", "to", "top", "name", "index", "against")),
    View.GRADIENTS: Entry(gradients, ("target", "to", "name", "index", "against")),
    View.SIMILARITY: Entry(similarity, ("top", "other")),
    View.EXPLAIN: Entry(explain, ("target", "to", "name", "index")),
    View.SWEEP: Entry(sweep, ("side", "target", "to", "top")),
    View.DIFF: Entry(diff, ("target", "to", "change", "other")),
}


@dataclass(frozen=True)
class Outputs:
    """Where an answer goes beside the terminal, or in its place; None where it does not."""

    as_json: bool = False
    save: Path | None = None
    svg: Path | None = None
    html: Path | None = None

    def check(self) -> None:
        """CutawayError for a file whose name does not say how to write it, or that has no folder."""
        for option, path, endings in (
            ("save", self.save, ENDINGS), ("svg", self.svg, (".svg",)), ("html", self.html, (".html", ".htm")),
        ):  # fmt: skip
            if path is not None:
                check_ending(option, path, endings)


def show_view(
    model: str, text: str | None, view: View | None, options: Options, outputs: Outputs, locale: Locale
) -> None:
    """Show one view of a text (None: the overview), as JSON where asked for, its arrays and drawings in files where
    asked for.

    Raises CutawayError for what does not go together, before any weights are read.
    """
    view = View.OVERVIEW if view is None else view
    entry = VIEWS[view]
    for name in options.given:
        if name not in entry.reads:
            readers = ", ".join(each for each, other in VIEWS.items() if name in other.reads)
            raise CutawayError(
                "--{name} has no effect on --show {view}; it goes with {readers}",
                name=name,
                view=view,
                readers=readers,
            )
    if entry.text and text is None:
        raise CutawayError(
            '--show {view} needs a text after the model: cutaway inspect {model} "…" --show {view}',
            view=view,
            model=model,
        )
    if not entry.text and text is not None:
        raise CutawayError("--show {view} is about the model alone; leave the text out", view=view)
    outputs.check()
    path = find(model)
    given = "" if text is None else texts_from(text)[0]

    from cutaway.checkpoint.folder import load

    about = _about(model, text, view, options)
    answer = entry.ask(Request(load(path), given, options, complete=outputs != Outputs()))
    if outputs.save is not None:
        names = save(outputs.save, about, answer.result, locale)
        rest = said(say(" and {count} more", count=len(names) - 6), locale) if len(names) > 6 else ""
        note(f"{outputs.save}: {', '.join(names[:6])}{rest}")
    page = _captioned(answer.page, model, text)
    if outputs.svg is not None:
        for written in write_figures(outputs.svg, page, locale):
            _note_size(written)
    if outputs.html is not None:
        outputs.html.write_text(document(page, locale), encoding="utf-8")
        _note_size(outputs.html)
    if outputs.as_json:
        answered = {"model": model, "text": text, "view": view.value, "result": plain(answer.result, locale)}
        write(json.dumps(answered, ensure_ascii=False, allow_nan=False))
    else:
        write_page(answer.page, locale)


def _about(model: str, text: str | None, view: View, options: Options) -> dict[str, str]:
    """What a file came from: enough to ask again."""
    given = {name: getattr(options, name) for name in options.given}
    about = {"view": view.value, "model": model, "text": text, "cutaway": __version__}
    if given:
        about["options"] = json.dumps(given, ensure_ascii=False)
    return {name: value for name, value in about.items() if value is not None}


def _captioned(page: Page, model: str, text: str | None) -> Page:
    command = shlex.join(["cutaway", *sys.argv[1:]])
    today = datetime.now().astimezone().date().isoformat()
    return page.captioned(Caption(model=model, text=text, command=command, date=today))


def _note_size(path: Path) -> None:
    note(f"{path}: {path.stat().st_size / 1000:,.0f} kB")
