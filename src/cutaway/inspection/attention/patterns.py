"""What each head of a stack weighs, token by token: patterns, and the steps that lead to them."""

# Shapes: l layers and h heads that were asked for, T queries, S keys.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cutaway.errors import CutawayError, nearest
from cutaway.inspection.pages.attention import patterns_page
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.wiring import Side, places, sides, stack_of
from cutaway.nn.attention import Attention
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn

Stage = Literal["scores", "scaled", "masked", "pattern"]
STAGES: tuple[Stage, ...] = ("scores", "scaled", "masked", "pattern")


@dataclass(frozen=True)
class Place:
    """Some heads of some layers on one side of a model, and the tokens between which they attend.

    Side "encoder" is self-attention of the encoder, "decoder" self-attention of the decoder, "cross" the decoder's
    attention to the encoder's result.
    """

    side: Side
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    modules: tuple[tuple[str, Attention], ...]  # full name and module of each of `layers`
    queries: Tokens
    keys: Tokens

    def taps(self, name: str) -> list[str]:
        """The full name of one tap in each layer."""
        return [f"{path}.{name}" for path, _ in self.modules]


@dataclass(frozen=True, repr=False)
class Patterns(Drawn):
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

    def page(self) -> Page:
        return patterns_page(self)

    def of(self, layer: int, head: int) -> Tensor:
        """(T, S) of one head. Raises CutawayError when it was not asked for."""
        chosen("layer", [layer], self.layers)
        chosen("head", [head], self.heads)
        return self.values[self.layers.index(layer), self.heads.index(head)]


def place(
    run: Run, side: Side | None, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> Place:
    """Find the attention modules of a side; None stands for the last side there is (cross-attention in a pair), all
    layers, or all heads. -1 is the last layer or head.

    Raises CutawayError for a side that this family has not, and for a layer or a head out of range.
    """
    side = sides(run.model)[-1] if side is None else side
    layers_there = stack_of(run.model, side).layers
    numbers = chosen("layer", _from_start(layers, len(layers_there)), range(len(layers_there)))
    modules = [(each.attention_path, each.attention) for each in places(run.model, side, numbers)]
    queries = run.source if side == "encoder" else run.target
    keys = run.target if side == "decoder" else run.source
    assert queries is not None and keys is not None
    n_heads = run.loaded.config.n_heads
    return Place(
        side,
        numbers,
        chosen("head", _from_start(heads, n_heads), range(n_heads)),
        tuple(modules),
        queries,
        keys,
    )


def _from_start(numbers: Sequence[int] | None, count: int) -> Sequence[int] | None:
    """Numbers from 0 for those that count from the end."""
    return None if numbers is None else [n + count if -count <= n < 0 else n for n in numbers]


def patterns(
    run: Run,
    side: Side | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    stage: Stage = "pattern",
) -> Patterns:
    """One stage of attention; `side`, `layers` and `heads` as in `place`. Only what is asked for is kept.

    Raises CutawayError for a side, layer, head or stage that there is not.
    """
    if stage not in STAGES:
        raise CutawayError(
            "stage is {stage!r}{hint}, expected one of {stages}",
            stage=stage,
            hint=nearest(stage, STAGES),
            stages=", ".join(STAGES),
        )
    where = place(run, side, layers, heads)
    taps = where.taps(stage)
    _, trace = run.hidden(dict.fromkeys(taps, only(where.heads)))
    values = torch.stack([trace[name] for name in taps])
    return Patterns(where.side, stage, where.layers, where.heads, values, where.queries, where.keys)


def only(heads: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """A reducer for a trace: (1, H, T, S) -> (h, T, S) of these heads, and nothing else kept."""
    wanted = list(heads)
    return lambda pattern: pattern[0, wanted]


def chosen(what: str, wanted: Sequence[int] | None, there: Sequence[int]) -> tuple[int, ...]:
    """The numbers of `wanted` once each is known to be among those there, in their order; None: all of them.

    Raises CutawayError that names the number, those there are, and the nearest.
    """
    if wanted is None:
        return tuple(there)
    if not wanted:
        raise CutawayError(
            "no {what} was asked for, expected at least one of {numbers}", what=what, numbers=_numbers(there)
        )
    for number in wanted:
        if number not in there:
            close = min(there, key=lambda each: abs(each - number))
            raise CutawayError(
                "{what} {number} is not there: expected one of {numbers} (nearest: {close})",
                what=what,
                number=number,
                numbers=_numbers(there),
                close=close,
            )
    if len(set(wanted)) < len(wanted):
        raise CutawayError("{what}s are {wanted}, expected each once", what=what, wanted=list(wanted))
    return tuple(wanted)


def _numbers(there: Sequence[int]) -> str:
    if len(there) > 1 and list(there) == list(range(there[0], there[-1] + 1)):
        return f"{there[0]} to {there[-1]}"
    return ", ".join(map(str, there))
