"""`cutaway inspect … --show neighbours`, `analogy`, `projection` and `drift`: a model's tokens as points in space."""

import dataclasses
from typing import TYPE_CHECKING, Literal

from cutaway.cli.views.request import Answer, Request, SideName
from cutaway.errors import CutawayError, nearest

if TYPE_CHECKING:
    from cutaway.inspection.geometry.vectors import TableName, VectorTable

TABLES: tuple[Literal["embedding"], Literal["unembedding"]] = ("embedding", "unembedding")
AROUND_ONE = 30  # nearest tokens that are drawn around a single one


def neighbours(request: Request) -> Answer:
    """The tokens nearest to one."""
    from cutaway.inspection.geometry.vectors import neighbours as find

    found = find(_table(request), _point(request.text), top=request.top(10))
    return Answer(found, found.page())


def analogy(request: Request) -> Answer:
    """a is to b as ? is to c."""
    from cutaway.inspection.geometry.analogy import analogy as solve

    words = [word for word in request.text.split() if word not in ("-", "+", "−")]
    if len(words) != 3:
        raise CutawayError(
            "the text has {count} words, expected three of a - b + c, such as 'king - man + woman'",
            count=len(words),
        )
    a, b, c = map(_point, words)
    target = request.options.target
    found = solve(
        _table(request), a, b, c, expected=None if target is None else _point(target), top=request.top(10)
    )
    return Answer(found, found.page())


def projection(request: Request) -> Answer:
    """Tokens drawn flat: those named, and with --top, or around a single one, the nearest of each."""
    from cutaway.inspection.geometry.token_map import token_map

    words = request.text.split()
    if not words:
        raise CutawayError(
            "the text is empty, expected tokens with spaces between them: one, whose nearest are drawn, or several"
        )
    around = 0 if len(words) > 1 and request.options.top is None else request.top(AROUND_ONE)
    if len(words) == 2 and around == 0:
        raise CutawayError(
            "the text names 2 tokens, expected one or at least 3; or draw the nearest of each as well: --top 10"
        )
    found = token_map(_table(request), [_point(word) for word in words], around=around)
    return Answer(found, found.page())


def drift(request: Request) -> Answer:
    """One word on its way through the layers, in two sentences."""
    from cutaway.inspection.geometry.context_drift import context_drift

    options = request.options
    if options.other is None:
        raise CutawayError("--show drift needs a second text with the same word: --other '…'")
    if options.name is None:
        raise CutawayError("--show drift needs the word that both texts have: --name WORD")
    if options.side == SideName.CROSS:
        raise CutawayError("--side is cross, which is attention: a word is followed in encoder or decoder")
    side = request.side
    pair = request.loaded.config.family == "encoder-decoder"
    # What a decoder reads are tokens of the target, whose table is the output's.
    table: TableName = "unembedding" if pair and side == "decoder" else "embedding"
    top = request.top(5)
    first, second = request.run(), dataclasses.replace(request, text=options.other).run()
    found = context_drift(first, second, options.name, side=side, top=top, table=table)
    return Answer(found, found.page())


def _point(word: str) -> str | int:
    """A piece, or an id written as `#123`."""
    return int(word[1:]) if word[:1] == "#" and word[1:].isdecimal() else word


def _table(request: Request) -> "VectorTable":
    from cutaway.inspection.geometry.vectors import table_of

    given = request.options.name
    for name in TABLES:
        if given in (None, name):
            return table_of(request.loaded, name)
    raise CutawayError(
        "--name is {given!r}{hint}, expected embedding or unembedding",
        given=given,
        hint=nearest(str(given), TABLES),
    )
