"""Which tokens of the input a prediction depends on: gradient x input and integrated gradients, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cutaway.inspection.asked import Position
from cutaway.inspection.input_gradients import (
    MOST_POINTS,
    Asked,
    InputAttribution,
    Quantity,
    gradient_x_input,
    integrated_gradients,
)
from cutaway.inspection.options import Option, Progress
from cutaway.inspection.outcome import usual_position
from cutaway.inspection.question import WORDS, question
from cutaway.inspection.runs import Run
from cutaway.inspection.terms import SOURCE, TARGET, TOKEN, left, right
from cutaway.page.blocks import Block, Heading, Page, Prose, Shaded, Table, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import nats, number
from cutaway.words import Phrase, say

TOLERANCE = 0.02  # what the integral may miss: an answer in a few seconds, which says how much it missed


@dataclass(frozen=True, repr=False)
class Gradients(Drawn):
    """One number by two methods, both defined in `InputAttribution`."""

    gradient_x_input: InputAttribution
    integrated: InputAttribution

    def page(self) -> Page:
        return _page([self.gradient_x_input, self.integrated])


@question(say("Which tokens a probability depends on, by gradients."), "causes", WORDS)
def gradients(
    run: Run,
    *,
    at: Position = None,
    token: Annotated[
        int | str | None,
        Option(say("The token whose probability it is; the one written there unless given.")),
    ] = None,
    quantity: Annotated[
        Quantity, Option(say("Whether its log-probability or its logit is taken apart."))
    ] = "log_prob",
    baseline: Annotated[
        int | str | None,
        Option(say("The token that the integral's path starts from; vectors of zeros unless given.")),
    ] = None,
    tolerance: Annotated[
        float, Option(say("The part of the difference that the integral may miss."), at_least=1e-6, at_most=1)
    ] = TOLERANCE,
    most_points: Annotated[
        int, Option(say("Points at most at which the gradient is taken for the integral."), at_least=12)
    ] = MOST_POINTS,
    progress: Progress | None = None,
) -> Gradients:
    """Both methods. Raises CutawayError for a model without output head, a position out of range, or a token that is
    not one."""
    asked = Asked.of(run, usual_position(run) if at is None else at, token, quantity)
    return Gradients(
        gradient_x_input(asked),
        integrated_gradients(
            asked, baseline=baseline, tolerance=tolerance, most_points=most_points, progress=progress
        ),
    )


# Its page.

_METHODS = {"gradient x input": say("grad × input"), "integrated gradients": say("integrated")}
_QUANTITIES = {"logit": (say("logit"), say("logits")), "log_prob": (say("log-probability"), say("nats"))}
_NOT = say(
    "A share depends on the path chosen between two points of the space of vectors, where no words lie; another start "
    "gives other shares."
)


def _page(found: Sequence[InputAttribution]) -> Page:
    """The same number by several methods, side by side."""
    first = found[0]
    blocks: list[Block] = []
    for name, tokens in first.tokens.items():
        if len(first.tokens) > 1:
            blocks.append(Heading(_reads(first, name)))
        blocks += [_shaded(each, name) for each in found]
        columns = (left(TOKEN), *(right(_METHODS[each.method]) for each in found))
        shares = [map(nats, each.shares[name].tolist()) for each in found]
        blocks.append(Table(columns, list(zip(tokens.pieces[: _read(first, name)], *shares, strict=False))))
    cautions = [
        say("{methods}: {approximate}.", methods=_METHODS[each.method], approximate=each.approximate)
        for each in found
    ]
    title = say(
        "What the {what} of '{token}' at token {position}, '{piece}', depends on",
        what=_QUANTITIES[first.quantity][0],
        token=first.token,
        position=first.position,
        piece=first.tokens[first.side].pieces[first.position],
    )
    return page(title, [*blocks, *map(_sums, found), *cautions, _NOT])


def _shaded(found: InputAttribution, name: str) -> Shaded:
    """A text in the colours of its shares, on one scale for both texts."""
    end, (_, unit) = _read(found, name), _QUANTITIES[found.quantity]
    pieces, shares = found.tokens[name].pieces[:end], found.shares[name].tolist()[:end]
    greatest = max(float(each.abs().max()) for each in found.shares.values())
    return Shaded(_METHODS[found.method], pieces, shares, unit, drawn=True, greatest=greatest)


def _read(found: InputAttribution, name: str) -> int:
    """How many tokens of a side can count: a decoder's mask hides what stands after the predicting one."""
    return found.position + 1 if name == "decoder" else len(found.tokens[name])


def _reads(found: InputAttribution, name: str) -> Phrase:
    """What the tokens of a side are to a reader."""
    if len(found.tokens) == 1:
        return TOKEN
    if name == "encoder":
        return SOURCE
    if _read(found, name) == len(found.tokens[name]):
        return TARGET
    return say("{target}, up to token {last}", target=TARGET, last=found.position)


def _sums(found: InputAttribution) -> Prose:
    """What the shares add up to, and what they should."""
    method, total, value = _METHODS[found.method], nats(found.total), number(found.value)
    if found.baseline_value is None or found.difference is None:
        return Prose(method, say("sum {total}; value {value}", total=total, value=value))
    start = say("zeros") if found.baseline == "zero" else say("{baseline}", baseline=found.baseline)
    before, gain = number(found.baseline_value), nats(found.value - found.baseline_value)
    told = say(
        "sum {total}; value {value} minus {before} at {start} is {gain}, and the sum misses {difference} of it",
        total=total, value=value, before=before, start=start, gain=gain, difference=nats(found.difference),
    )  # fmt: skip
    return Prose(method, told)
