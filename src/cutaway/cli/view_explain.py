"""`cutaway inspect … --show explain`: one number of a run, its formula, and where each operand comes from."""

from functools import partial
from typing import TYPE_CHECKING

from cutaway.cli.terminal import write, write_table
from cutaway.cli.view_page import labelled, number, remark, title
from cutaway.cli.view_request import Answer, Request
from cutaway.cli.view_save import plain
from cutaway.errors import CutawayError

if TYPE_CHECKING:
    from cutaway.inspection.arithmetic.explain import Explanation
    from cutaway.inspection.arithmetic.record import Operand
    from cutaway.inspection.runs.run import Run

SHOWN = 3  # numbers of a line of operands


def explain(request: Request) -> Answer:
    from cutaway.inspection.arithmetic.explain import Arithmetic

    run = request.run()
    name, index = request.options.name, request.index
    if name is None:
        if index:
            raise CutawayError("--index without --name: of which value? --name head.logits, for one")
        name, index = "head.logits", _chosen(run)
    arithmetic = Arithmetic(run)
    if not index and (shape := tuple(arithmetic.tensor(name).shape)):
        example = ",".join(["0"] * (len(shape) - 1) + [str(shape[-1] - 1)])
        raise CutawayError(
            f"{name} has the shape {' × '.join(map(str, shape))}: name one number of it by --index, such as {example}"
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
    return Answer(result, partial(_show, found))


def _chosen(run: "Run") -> tuple[int, int, int]:
    """The logit of the last token that was written, or of the one that fills the first gap."""
    from cutaway.inspection.runs.forced import forced_tokens, masked_positions

    logits, _ = run.forward()
    written = forced_tokens(run, logits)
    position = [*(masked_positions(run) if run.target is None else []), len(written.ids) - 1][0]
    return 0, position, written.ids[position]


def _show(found: "Explanation") -> None:
    title(f"{found.name}[{','.join(map(str, found.index))}] = {number(found.recorded)}")
    labelled("formula", found.formula.split(" "))
    if not found.operands:
        return
    rows = [
        (operand.symbol, _numbers(operand), _place(operand) or operand.meaning) for operand in found.operands
    ]
    write()
    write_table(("operand", "value in this run", "from"), rows)
    write()
    labelled("worked out", [f"{found.result:.9g}", "in float64 from these operands"])
    labelled("the run had", [f"{found.recorded:.9g}"])
    verdict = "within" if found.agrees else "beyond"
    labelled(
        "difference",
        [f"{found.difference:.2g},", f"{verdict} the {found.tolerance:.2g} that rounding explains"],
    )
    if found.note:
        remark(found.note)
    remark("Where an operand comes from: the same command with its name and a full index.")


def _numbers(operand: "Operand") -> str:
    """The first numbers of a line, and how many there are."""
    values = operand.values.flatten().tolist()
    shown = " ".join(map(number, values[:SHOWN]))
    return f"{shown} … ({len(values):,})" if len(values) > SHOWN else shown


def _place(operand: "Operand") -> str:
    if operand.name is None:
        return ""
    index = ",".join(str(plain(each)) for each in operand.index)
    return f"{operand.name}[{index}]" if index else operand.name
