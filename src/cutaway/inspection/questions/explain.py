"""Why is this number what it is? Any number of a run with its formula, its operands, and where they come from."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from cutaway.errors import CutawayError
from cutaway.inspection.arithmetic.explanation import Arithmetic, Explanation, Link
from cutaway.inspection.arithmetic.formula import Operand
from cutaway.inspection.options import Option
from cutaway.inspection.outcome import usual_position, written_token
from cutaway.inspection.page_parts import folded
from cutaway.inspection.question import Suggesting, Suggestion, question
from cutaway.inspection.runs import Run, position_in
from cutaway.page.blocks import Block, Code, Heading, Line, Matrix, Page, Prose, page
from cutaway.page.numbers import number
from cutaway.words import Text, listed, say

SHOWN, FIRST = 16, 8  # numbers of a line that are all written, and how many of a longer one
DRAWN = 4096  # numbers up to which a line is drawn as a heat map
WIDE = 64  # columns after which a name is broken, at a dot
ASKED = 3  # operands that are asked about next


@dataclass(frozen=True, repr=False)
class Explain(Explanation, Suggesting):
    """One number of a run, and with `chain` what it comes from, step by step, down to a token's id, a position or a
    constant: each step goes on from the value that counts most (`Arithmetic.chain`)."""

    chain: tuple[Link, ...] = ()

    def page(self) -> Page:
        return _page(self)

    def suggestions(self) -> Iterator[Suggestion]:
        if not self.chain and self.operands:
            way = say("the whole way, down to the token's id")
            yield Suggestion(way, "explain", {**_options(self.name, self.index), "chain": True})
        for operand in islice((each for each in self.operands if each.name is not None), ASKED):
            place = 0 if operand.element is None else operand.element[1]
            symbol = operand.symbol if operand.element is None else operand.element[0]
            name, index = next(islice(operand.parents, place, None))
            about = say("where {symbol} comes from", symbol=symbol)
            yield Suggestion(about, "explain", _options(name, index))


def _options(name: str, index: tuple[int, ...]) -> dict[str, object]:
    return {"name": name, "index": index} if index else {"name": name}


@question(say("Why one number is what it is: its formula, its operands, where they come from."), "causes")
def explain(
    run: Run,
    name: Annotated[
        str | None,
        Option(say("The full name of a value or parameter; else the probability of the word written first.")),
    ] = None,
    index: Annotated[
        tuple[int, ...],
        Option(say("The place of one number in it: 0,1,2,-1; the batch of one is the first.")),
    ] = (),
    *,
    chain: Annotated[
        bool, Option(say("Follow what counts most, step by step, down to the token's id."))
    ] = False,
) -> Explain:
    """Why the number at `index` of the value `name` is what it is, in this run.

    `name` is any full tap name (`decoder.layers.3.self_attn.pattern`; the index is into the tap's tensor, the batch of
    1 included), the name of a parameter or fixed table, of the ids (`ids`, or `source` and `target`), or one of these:

    * after the logits: `probabilities`, `log_probabilities` (1, T, V); `token_loss` (1, T) and `loss` (), the
      training loss of the run's outcome with label smoothing 0.1 (Szegedy et al. 2016, §7; Vaswani et al. 2017, §5.4);
      `score` (), the outcome's log-probability divided by the length penalty (Wu et al. 2016, §7). `Arithmetic` takes
      other settings, and the hypothesis of a search.
    * of a model without output head, what `cutaway.embed` makes of its last hidden states: `pooled` (1, D), and
      `sentence_vector` (1, D) where the model's folder wants vectors of length 1.
    * between taps, where the model has such a value: `….self_attn.q_proj` and `k_proj` before a head's norm, `….mlp.up`
      of a gated network, `….self_residual.sum` before a post-norm, `….self_residual.out_norm`, `embed.sum` before the
      embedding's norm, `head.dense` and `head.norm` of a masked model, `decoder.rotary.cos` and `.sin` (T, E).

    The run's values are recorded at the first call and kept as long as `run` is; after a change of the model's
    parameters make another Run. Raises CutawayError for names and indices that this run does not have.
    """
    if name is None and index:
        raise CutawayError("index without name: of which value? head.logits, for one")
    arithmetic = run.kept(Arithmetic)
    if name is None:
        name, index = _usual(run, arithmetic)
    if chain:
        first, *links = arithmetic.chain(name, index)
        return Explain(**vars(first.number), chain=tuple(links))
    return Explain(**vars(arithmetic.explain(name, index)))


def _usual(run: Run, arithmetic: Arithmetic) -> tuple[str, tuple[int, ...]]:
    """What a reader asks about first: how probable the word is that was written, or a vector's first component."""
    if "probabilities" not in arithmetic.names:
        return "sentence_vector" if "sentence_vector" in arithmetic.names else "pooled", (0, 0)
    position = position_in(run.outcome, usual_position(run))
    word = written_token(run, arithmetic.tensor("head.logits")[0, position], position)
    return "probabilities", (0, position, word)


# Its page.


def _page(found: Explain) -> Page:
    blocks: list[Block | Text | None] = [
        Prose(say("what it is"), found.meaning) if found.meaning else None,
        Prose(say("where"), found.where) if found.where else None,
    ]
    if found.formula:
        blocks += [
            # Each of its definitions on a line of its own.
            Prose(say("formula"), found.formula.replace(",  ", "\n")),
            Heading(say("What goes in")),
            *(block for operand in found.operands for block in _operand(operand)),
            Heading(say("Worked out again")),
            *_agreement(found),
        ]
    if found.note is not None:
        blocks.append(say("{note}.", note=found.note))
    if found.chain:
        steps = zip([found, *(link.number for link in found.chain)], found.chain, strict=False)
        blocks.append(Heading(say("Where it comes from, step by step")))
        blocks += [*(_step(link, before) for before, link in steps), _COUNTS]
    heat = [_heat_map(each) for each in found.operands if SHOWN < each.values.numel() <= DRAWN]
    if heat:
        blocks += [Heading(say("The operands, number by number")), *heat]
    if found.python:
        blocks += [Heading(say("In Python")), Code(say("The same number"), found.python)]
    place = _named(found.name, found.index)
    return page(say("Why {place} = {value}", place=place, value=number(found.recorded)), blocks)


_COUNTS = say(
    "Each step goes on with the value of this run, no weight of the model, that counts most: of a softmax or a "
    "norm the number's own element, of a sum the greatest term. One way back of very many."
)


def _operand(operand: Operand) -> Iterator[Block]:
    """What an operand is called, its numbers, and where they stand."""
    values = operand.values.flatten().tolist()
    shown = list(map(number, values if len(values) <= SHOWN else values[:FIRST]))
    if len(shown) < len(values):
        shown.append(f"… ({len(values):,})")
    yield Line(operand.symbol, shown)
    if operand.element is not None:
        symbol, place = operand.element
        yield Line(symbol, [number(values[place])])
    place = "" if operand.name is None else _named(operand.name, operand.index)
    if place and operand.meaning:
        yield Prose("", say("{place}: {meaning}", place=place, meaning=operand.meaning))
    else:
        yield Prose("", place or operand.meaning)


def _step(link: Link, before: Explanation) -> Prose:
    """A value of the way back: as what the one before it read it, where it stands unless that is the same, and its own
    formula."""
    found = link.number
    place = _named(found.name, found.index)
    lines: list[Text] = [say("{symbol} is {place}", symbol=link.symbol, place=place)]
    lines += [found.where] if found.where and found.where != before.where else []
    # What μ and σ are has been said above, or can be asked.
    lines += [found.formula.partition(",  ")[0] if found.formula else found.note or ""]
    return Prose(number(found.recorded), listed(lines, "\n"))


def _agreement(found: Explanation) -> Iterator[Prose]:
    apart, bound = f"{found.difference:.2g}", f"{found.tolerance:.2g}"
    verdict = say("{apart}, beyond the {bound} that rounding explains", apart=apart, bound=bound)
    if found.agrees:
        verdict = say("{apart}, within the {bound} that rounding explains", apart=apart, bound=bound)
    yield Prose(say("worked out"), say("{result:.9g} in float64 from these operands", result=found.result))
    yield Prose(say("the run had"), f"{found.recorded:.9g}")
    yield Prose(say("difference"), verdict)


def _named(name: str, index: tuple[int | slice, ...]) -> str:
    """A value's name with its index, broken at a dot where it is long, never in the index."""
    places = ",".join(map(_place, index))
    lines = [""]
    for part in (f"{name}[{places}]" if index else name).replace(".", ".\n").split("\n"):
        if len(lines[-1]) + len(part) > WIDE:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _place(index: int | slice) -> str:
    if isinstance(index, int):
        return str(index)
    return f"{'' if index.start is None else index.start}:{'' if index.stop is None else index.stop}"


def _heat_map(operand: Operand) -> Matrix:
    symbol = operand.symbol.partition("[")[0]
    return folded(operand.values.flatten(), symbol, say("{symbol} in this run", symbol=symbol))
