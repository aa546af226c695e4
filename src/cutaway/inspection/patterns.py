"""What the heads of a side weigh: attention patterns and the steps that lead to them, of chosen layers and heads."""

# Shapes: l layers and h heads that were asked for, T queries, S keys.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.options import check_choice
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.terms import KEY, QUERY, READS_WRITES, WEIGHT
from cutaway.inspection.wiring import Place, Side, chosen, places, sides
from cutaway.page.blocks import Atlas, Matrix, Scale
from cutaway.words import Text, names_of, say

Stage = Literal["scores", "scaled", "masked", "pattern"]


@dataclass(frozen=True)
class Heads:
    """Some heads of some layers on one side of a model, and the tokens between which they attend."""

    side: Side
    places: tuple[Place, ...]
    heads: tuple[int, ...]
    queries: Tokens
    keys: Tokens
    # What a query is to a reader: the token read, and in a decoder what is written after it.
    rows: tuple[str, ...]

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(place.layer for place in self.places)

    def taps(self, name: str) -> list[str]:
        """The full name of one tap in each layer."""
        return [f"{place.attention_path}.{name}" for place in self.places]


@dataclass(frozen=True)
class Patterns:
    """One step of attention, softmax(q·k · scale + bias) (Vaswani et al. 2017, §3.2.1), of every head asked for.

    `values[i, j, t, s]` is of layer `layers[i]`, head `heads[j]`, query t and key s, without unit. Stage "scores" is
    q·k; "scaled" that times the attention scale (1/√E as a rule); "masked" that (softly capped in Gemma 2) plus mask
    and position bias, -inf where the query may not see the key; "pattern" its softmax over the keys: every row sums
    to 1. Exact: the numbers that this run's forward pass went on with. In a decoder, query t stands at the place
    where token t was read and token t + 1 is predicted.
    """

    side: Side
    stage: Stage
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    values: Tensor  # (l, h, T, S)
    queries: Tokens
    keys: Tokens
    rows: tuple[str, ...]

    def of(self, layer: int, head: int) -> Tensor:
        """(T, S) of one head. Raises CutawayError when it was not asked for."""
        for what, number, there in ((say("layer"), layer, self.layers), (say("head"), head, self.heads)):
            if number not in there:
                raise CutawayError(
                    "{what} {number} was not asked for, expected one of {there}",
                    what=what,
                    number=number,
                    there=names_of(there),
                )
        return self.values[self.layers.index(layer), self.heads.index(head)]


def heads_of(
    run: Run,
    side: Side | None = None,
    layers: Sequence[int] | int | None = None,
    heads: Sequence[int] | int | None = None,
) -> Heads:
    """Heads of a side, by default all heads of all layers, of cross-attention where there is some; -1 is the last.

    Raises CutawayError for a side that this model lacks, and for a layer or a head out of range.
    """
    side = sides(run.model)[-1] if side is None else side
    there = places(run.model, side, layers)
    queries = run.source if side == "encoder" else run.target
    keys = run.target if side == "decoder" else run.source
    assert queries is not None and keys is not None
    wanted = chosen(say("head"), heads, there[0].attention.n_heads)
    return Heads(side, there, wanted, queries, keys, row_labels(run, side))


def row_labels(run: Run, side: Side) -> tuple[str, ...]:
    """What stands at each position of a side: the token read, and in a model that writes `read → written`."""
    tokens = run.source if side == "encoder" else run.target
    assert tokens is not None
    if side == "encoder" or tokens is run.outcome:
        return tuple(tokens.pieces)
    return tuple(f"{read} → {out}" for read, out in zip(tokens.pieces, run.outcome.pieces, strict=True))


def patterns(
    run: Run,
    side: Side | None = None,
    layers: Sequence[int] | int | None = None,
    heads: Sequence[int] | int | None = None,
    stage: Stage = "pattern",
) -> Patterns:
    """One stage of attention; `side`, `layers` and `heads` as in `heads_of`. Only what is asked for is kept.

    Raises CutawayError for a side, layer, head or stage that there is not.
    """
    check_choice("stage", stage, Stage)
    where = heads_of(run, side, layers, heads)
    taps = where.taps(stage)
    trace = run.seen(dict.fromkeys(taps, only(where.heads)))
    return patterns_in(where, torch.stack([trace[name] for name in taps]), stage)


def patterns_in(where: Heads, values: Tensor, stage: Stage = "pattern") -> Patterns:
    """Values (l, h, T, S) that were recorded of these heads."""
    side, layers, heads = where.side, where.layers, where.heads
    return Patterns(side, stage, layers, heads, values, where.queries, where.keys, where.rows)


def only(heads: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """A reducer for a trace: (1, H, T, S) -> (h, T, S) of these heads, and nothing else kept."""
    wanted = list(heads)
    return lambda pattern: pattern[0, wanted]


def head_maps(
    values: Tensor,
    layers: Sequence[int],
    heads: Sequence[int],
    rows: Sequence[str],
    keys: Sequence[str],
    *,
    scale: Scale = "weight",
    unit: Text = WEIGHT,
    across: Text = KEY,
) -> Matrix | Atlas:
    """values (l, h, T, S) drawn: one heat map, or an atlas of the heads, a layer in a row."""
    down = READS_WRITES if any(" → " in row for row in rows) else QUERY
    patterns = values.detach().cpu().double().flatten(0, 1).numpy()
    maps = [Matrix(pattern, rows, keys, down, across, unit, scale) for pattern in patterns]
    if len(maps) == 1:
        return maps[0]
    return Atlas([f"{layer}.{head}" for layer in layers for head in heads], maps, len(heads))
