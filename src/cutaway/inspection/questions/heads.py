"""Every head of a side on one sheet: a small map of each, by maxima where the text is long, and all its measures."""

# Shapes: L layers, H heads, T queries, S keys, R and C cells of a small map down and across, M measures.

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from cutaway.inspection.asked import AttentionSide
from cutaway.inspection.options import Option
from cutaway.inspection.patterns import head_maps, heads_of
from cutaway.inspection.question import question
from cutaway.inspection.questions.attention import Frame, measured
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.terms import ATTENTIONS, NATS, TOKENS, WEIGHT, left, right
from cutaway.inspection.wiring import Side, sides
from cutaway.page.blocks import Page, Table, page
from cutaway.page.drawn import Drawn
from cutaway.words import Phrase, say

UNITS = {"entropy": NATS, "distance": TOKENS}


@dataclass(frozen=True)
class MeasuredHeads:
    """One of `Measures` of every head, (L, H), in words; `uniform` (L,) is that of a head that weighs all keys that a
    query sees alike."""

    name: str
    title: Phrase
    about: Phrase
    unit: Phrase
    values: Tensor
    uniform: Tensor


@dataclass(frozen=True, repr=False)
class HeadSheet(Drawn):
    """All heads of one side, as much of each as a small picture needs.

    A cell of `maps` (L, H, R, C) is the greatest weight among `cell` queries and `cell` keys, so that a thin line is
    not lost; where `cell` is 1 the maps are the patterns themselves. `shared` heads next to each other have the same
    keys and values (grouped-query attention, Ainslie et al. 2023), and in layer l a query sees no more than
    `windows[l]` keys, None: all.
    """

    side: Side
    sides: tuple[Side, ...]  # all that the model has
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    shared: int
    windows: tuple[int | None, ...]
    cell: int
    maps: Tensor
    measures: tuple[MeasuredHeads, ...]
    queries: Tokens
    keys: Tokens
    rows: tuple[str, ...]

    def page(self) -> Page:
        return _page(self)


@question(say("Every head of a side on one sheet: a small map of each, and all its measures."), "attention")
def heads(
    run: Run,
    *,
    side: AttentionSide = None,
    most: Annotated[
        int,
        Option(
            say(
                "Rows and columns of a small map at most; in a longer text a cell is the greatest weight of several."
            ),
            at_least=1,
        ),
    ] = 32,
) -> HeadSheet:
    """From one forward pass, of which no pattern is kept as a whole.

    Raises CutawayError for a side that there is not.
    """
    where = heads_of(run, side)
    frame = Frame(run, where)
    cell = math.ceil(max(len(where.queries), len(where.keys)) / most)
    visible: dict[str, Tensor] = {}
    found: dict[str, Tensor] = {}

    def sees(path: str) -> Callable[[Tensor], Tensor]:
        def reduce(masked: Tensor) -> Tensor:
            visible[path] = masked[0, 0] > float("-inf")
            return visible[path]

        return reduce

    def looks(path: str) -> Callable[[Tensor], Tensor]:
        def reduce(pattern: Tensor) -> Tensor:
            found[path] = frame.measured(pattern[0], visible[path])
            return max_pool2d(pattern[0], cell, ceil_mode=True)

        return reduce

    paths = [place.attention_path for place in where.places]
    # the mask of a layer is met before its pattern
    masks = {f"{path}.masked": sees(path) for path in paths}
    trace = run.seen(masks | {f"{path}.pattern": looks(path) for path in paths})
    values = torch.stack([found[path] for path in paths])
    named, uniform = frame.named(values[:, 1:]), frame.named(values[:, 0])
    config = run.model.config
    return HeadSheet(
        side=where.side,
        sides=sides(run.model),
        layers=where.layers,
        heads=where.heads,
        shared=where.places[0].attention.groups,
        windows=tuple(config.window if layer in config.window_layers else None for layer in where.layers),
        cell=cell,
        maps=torch.stack([trace[f"{path}.pattern"] for path in paths]),
        measures=tuple(
            MeasuredHeads(
                each.field,
                each.name,
                each.about,
                UNITS.get(each.field, WEIGHT),
                getattr(named, each.field),
                getattr(uniform, each.field),
            )
            for each in measured(named)
        ),
        queries=where.queries,
        keys=where.keys,
        rows=where.rows,
    )


# Its page.


def _page(found: HeadSheet) -> Page:
    what = ATTENTIONS[found.side]
    rows, keys = (names[:: found.cell] for names in (found.rows, found.keys.pieces))
    about = say(
        "Means over the queries of this text. uniform: a head that weighs all keys it sees alike, in the same layer. "
        "Scores of this text, not what a head is for."
    )
    pooled = say(
        "A cell is the greatest weight among {cell} queries and {cell} keys, of which the first one is named.",
        cell=found.cell,
    )
    return page(
        say("Every head of {what}", what=what),
        [
            head_maps(found.maps, found.layers, found.heads, rows, keys),
            pooled if found.cell > 1 else None,
            _most(found),
            about,
        ],
    )


def _most(found: HeadSheet) -> Table:
    """Of each measure the head that has most of it."""
    rows = []
    for each in found.measures:
        layer, head = divmod(int(each.values.argmax()), len(found.heads))
        most, alike = (f"{float(value):.2f}" for value in (each.values[layer, head], each.uniform[layer]))
        name = f"{found.layers[layer]}.{found.heads[head]}"
        rows.append((each.title, name, most, alike, each.about))
    columns = (left(say("measure")), left(say("most in head")), right(say("value")), right(say("uniform")))
    return Table((*columns, left(say("what it means"))), rows)
