"""The page of one number: its formula, its operands, and how well the two agree."""

from typing import TYPE_CHECKING

from cutaway.inspection.terms import left
from cutaway.page.blocks import Block, Code, Heading, Matrix, Page, Prose, Remark, Table, page
from cutaway.page.numbers import number
from cutaway.words import Phrase, Text, say

if TYPE_CHECKING:
    import numpy as np

    from cutaway.inspection.arithmetic.explain import Explanation
    from cutaway.inspection.arithmetic.record import Operand

SHOWN = 3  # numbers of a line of operands
DRAWN = 4096  # numbers up to which an operand is drawn as a heat map
ROW = 32  # numbers in a row of it


def explanation_page(found: "Explanation", code: str, more: Remark | None = None) -> Page:
    """`code` makes the same number in Python; empty where there is none. `more`: what to ask next."""
    index = f"[{','.join(map(str, found.index))}]" if found.index else ""
    blocks: list[Block] = []
    if found.formula:
        columns = (
            left(say("operand")),
            left(say("value in this run")),
            left(say("from")),
        )
        rows = [(operand.symbol, _numbers(operand), _origin(operand)) for operand in found.operands]
        blocks += [
            Prose(say("formula"), found.formula),
            Heading(say("What goes in")),
            Table(columns, rows),
            Heading(say("Worked out again")),
            *_agreement(found),
        ]
    if found.note is not None:
        note = found.note
        blocks.append(Remark(say("{note}.", note=note)))
    if more is not None and found.operands:
        blocks.append(more)
    heat = [_heat_map(each) for each in found.operands if SHOWN + 1 <= each.values.numel() <= DRAWN]
    if heat:
        blocks += [Heading(say("The operands, number by number")), *heat]
    if code:
        blocks.append(Code(say("The same number in Python"), code, drawn=True))
    return page(f"{found.name}{index} = {number(found.recorded)}", blocks)


def _agreement(found: "Explanation") -> tuple[Prose, Prose, Prose]:
    apart, bound = f"{found.difference:.2g}", f"{found.tolerance:.2g}"
    if found.agrees:
        verdict = say("{apart}, within the {bound} that rounding explains", apart=apart, bound=bound)
    else:
        verdict = say("{apart}, beyond the {bound} that rounding explains", apart=apart, bound=bound)
    result = f"{found.result:.9g}"
    return (
        Prose(
            say("worked out"),
            say("{result} in float64 from these operands", result=result),
        ),
        Prose(say("the run had"), f"{found.recorded:.9g}"),
        Prose(say("difference"), verdict),
    )


def _numbers(operand: "Operand") -> str:
    """The first numbers of a line, and how many there are."""
    values = operand.values.flatten().tolist()
    shown = " ".join(map(number, values[:SHOWN]))
    return f"{shown} … ({len(values):,})" if len(values) > SHOWN else shown


def _origin(operand: "Operand") -> Text:
    """Where an operand stands, and what it is."""
    if operand.name is None:
        return operand.meaning
    index = ",".join(map(_place, operand.index))
    place = f"{operand.name}[{index}]" if index else operand.name
    if not operand.meaning:
        return place
    return say("{place}: {meaning}", place=place, meaning=operand.meaning)


def _place(index: int | slice) -> str:
    if isinstance(index, int):
        return str(index)
    return f"{'' if index.start is None else index.start}:{'' if index.stop is None else index.stop}"


def _heat_map(operand: "Operand") -> Matrix:
    values, place = operand.values.numpy(), say("place")
    unit = say("{symbol} in this run", symbol=operand.symbol)
    if values.ndim == 1:
        return line_map(values, operand.symbol, unit)
    values = values.reshape(-1, values.shape[-1])
    rows, columns = (list(map(str, range(size))) for size in values.shape)
    return Matrix(values, rows, columns, place, place, unit, "signed", drawn=True)


def line_map(values: "np.ndarray", symbol: str, unit: Phrase) -> Matrix:
    """A line of numbers as a heat map, in rows of equal length."""
    across = next(size for size in range(min(len(values), ROW), 0, -1) if len(values) % size == 0)
    firsts = [f"{symbol}[{first}…]" for first in range(0, len(values), across)]
    offsets = [f"+{n}" for n in range(across)]
    row, offset = say("first of the row"), say("places after it")
    return Matrix(values.reshape(-1, across), firsts, offsets, row, offset, unit, "signed", drawn=True)
