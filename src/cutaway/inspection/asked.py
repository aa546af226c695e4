"""Options that several questions have, and the position that they ask about."""

from typing import Annotated

from cutaway.inspection.options import Option
from cutaway.inspection.outcome import usual_position
from cutaway.inspection.runs import Run, Tokens, position_in
from cutaway.inspection.wiring import Side
from cutaway.words import say

AttentionSide = Annotated[
    Side | None, Option(say("encoder, decoder, or cross: the decoder's attention to the source."))
]
OneLayer = Annotated[int | None, Option(say("One layer, from 0; -1 is the last."))]
OneHead = Annotated[int | None, Option(say("One head, from 0; -1 is the last."))]
Position = Annotated[
    int | None,
    Option(say("The position, from 0; -1 is the last; else the first word written, or first gap.")),
]
Parameter = Annotated[str | None, Option(say("A parameter's full name, where no head is named."))]


def position_asked(run: Run, tokens: Tokens, at: int | None) -> int:
    """The position in `tokens` that is asked about; None: the one that a reader asks about first."""
    return position_in(tokens, usual_position(run) if at is None else at)
