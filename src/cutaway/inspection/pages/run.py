"""Page of a run: what is about to be asked of."""

from typing import TYPE_CHECKING

from cutaway.inspection.pages.words import FAMILIES, SOURCE
from cutaway.page.blocks import Line, Page, Prose, Remark, page
from cutaway.words import say

if TYPE_CHECKING:
    from cutaway.inspection.runs.run import Run

TOKENS = say("tokens")


def run_page(run: "Run") -> Page:
    name = run.loaded.name
    read = run.target if run.source is None else run.source
    written = run.source is not None and run.target is not None
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    family = FAMILIES[run.model.config.family]
    size = say("{family}, {parameters:,} parameters", family=family, parameters=parameters)
    return page(
        say("A text on its way through {name}", name=name),
        [
            Line(SOURCE if written else TOKENS, [] if read is None else read.pieces),
            Line(say("writes"), run.outcome.pieces) if written else None,
            Prose(say("model"), size),
            Remark(
                say(
                    "Ask it: overview(run), patterns(run, side), lens(run), compare(run, changes), "
                    "explain(run, name, index) … of cutaway.inspection."
                )
            ),
        ],
    )
