"""What several questions have in common: options, the position that is asked about, taps that are read, progress."""

from collections.abc import Iterator, Sequence
from typing import Annotated, TypeVar

from cutaway.inspection.options import Option, Progress
from cutaway.inspection.outcome import usual_position
from cutaway.inspection.runs import ReadingStack, Run, Tokens, position_in
from cutaway.inspection.wiring import Side, StackName, stack_entry
from cutaway.words import Phrase, say

T = TypeVar("T")

AttentionSide = Annotated[
    Side | None, Option(say("encoder, decoder, or cross: the decoder's attention to the source."))
]
FirstStack = Annotated[StackName | None, Option(say("encoder or decoder; the first stack unless given."))]
OneLayer = Annotated[int | None, Option(say("One layer, from 0; -1 is the last."))]
OneHead = Annotated[int | None, Option(say("One head, from 0; -1 is the last."))]
Position = Annotated[
    int | None,
    Option(say("The position, from 0; -1 is the last; else the first word written, or first gap.")),
]
LogitToken = Annotated[
    int | str | None, Option(say("The token whose logit it is; the one written there unless given."))
]


def reported(items: Sequence[T], what: Phrase, progress: Progress | None) -> Iterator[T]:
    """The items one by one; after each, `progress` hears how many are done."""
    for done, item in enumerate(items, start=1):
        yield item
        if progress is not None:
            progress(what, done, len(items))


def stream_taps(stack: ReadingStack) -> list[str]:
    """The taps of a stack's residual stream: what enters the first block, then what leaves each."""
    posts = [f"{stack.name}.layers.{layer}.resid_post" for layer in range(len(stack.stack.layers))]
    return [stack_entry(stack.name), *posts]


def position_asked(run: Run, tokens: Tokens, at: int | None) -> int:
    """The position in `tokens` that is asked about; None: the one that a reader asks about first."""
    return position_in(tokens, usual_position(run) if at is None else at)
