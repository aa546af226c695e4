"""`cutaway inspect … --show explain`: one number of a run, its formula, and where each operand comes from."""

from typing import TYPE_CHECKING

from cutaway.cli.views.request import Answer, Request
from cutaway.errors import CutawayError
from cutaway.page.blocks import Remark
from cutaway.words import say

if TYPE_CHECKING:
    from cutaway.inspection.runs.run import Run

MORE = Remark(say("Where an operand comes from: the same command with --name and a full --index."))


def explain(request: Request) -> Answer:
    """One number: the one that was named, else the logit of the last token or first gap; of a model without output head
    the first component of its sentence vector."""
    from cutaway.inspection.arithmetic.explain import Arithmetic
    from cutaway.inspection.pages.explanation import explanation_page

    run = request.run()
    arithmetic = Arithmetic(run)
    name, index = request.options.name, request.index
    if name is None:
        if index:
            raise CutawayError("--index without --name: of which value? --name head.logits, for one")
        name, index = _chosen(run, arithmetic.names)
    if not index and (shape := tuple(arithmetic.tensor(name).shape)):
        example = ",".join(["0"] * (len(shape) - 1) + [str(shape[-1] - 1)])
        raise CutawayError(
            "{name} has the shape {shape}: name one number of it by --index, such as {example}",
            name=name,
            shape=" × ".join(map(str, shape)),
            example=example,
        )
    found = arithmetic.explain(name, index)
    result = {
        "name": found.name,
        "index": found.index,
        "formula": found.formula,
        "operands": found.operands,
        "result": found.result,
        "recorded": found.recorded,
        "difference": found.difference,
        "tolerance": found.tolerance,
        "agrees": found.agrees,
        "note": found.note,
        "python": found.as_python(),
    }
    return Answer(result, explanation_page(found, found.as_python(), MORE))


def _chosen(run: "Run", names: tuple[str, ...]) -> tuple[str, tuple[int, ...]]:
    from cutaway.inspection.runs.forced import usual_position, written_token
    from cutaway.inspection.runs.selection import place

    if "head.logits" not in names:
        return "sentence_vector" if "sentence_vector" in names else "pooled", (0, 0)
    logits, _ = run.forward()
    position = place(run.outcome, usual_position(run))
    return "head.logits", (0, position, written_token(run, logits[position], position))
