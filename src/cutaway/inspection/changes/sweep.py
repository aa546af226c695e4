"""Every attention head switched off in turn, ranked by what the output loses."""

# Shapes: R heads at once, T tokens, D width, H heads, E head width, L layers.

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cutaway.errors import CutawayError, brief, nearest
from cutaway.inspection.changes.edits import as_it_is, mean_over_tokens
from cutaway.inspection.changes.places import Place, Places
from cutaway.inspection.outcome import forced_tokens, log_probs_of, output_of
from cutaway.inspection.pages.changes import sweep_page
from cutaway.inspection.runs import Run
from cutaway.inspection.sentences import cosine_distance, sentence_vectors
from cutaway.inspection.wiring import SIDES, Side, output_head
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.embedding import token_positions
from cutaway.nn.head import Head
from cutaway.nn.stack import Stack
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit, Trace
from cutaway.words import Phrase

_TOKENS = 8192  # of all rows that are computed at once


Unit = Literal["nats", "1 - cosine"]


@dataclass(frozen=True)
class HeadEffect:
    """`effect`: what the output loses without this head, in the unit of its `HeadSweep`."""

    side: Side
    layer: int
    head: int
    effect: float


@dataclass(frozen=True, repr=False)
class HeadSweep(Drawn):
    """`effects` holds for each side a grid (L, H): Σ_t log p(y_t) - log p(y_t | head off), in nats, y the run's output
    in forced decoding (see `forced.Forced`); `base` is Σ_t log p(y_t). Negative: the output grows more probable without
    the head. `ranking` lists all heads, the strongest fall first.

    The output of a model without output head is the text's sentence vector v, made as `cutaway.embed` makes it. There
    `unit` is "1 - cosine", an effect is 1 - cos(v, v without the head) (see `sentence.cosine_distance`), and `base` is
    0, the distance of v from itself.

    Michel et al. 2019, §3.2 rank heads so, by BLEU. A trained model meets a missing head out of distribution, and heads
    stand in for one another: an effect shows dependence on this one head alone, not its purpose.
    """

    base: float
    set: Literal["zero", "mean"]
    effects: dict[Side, Tensor]
    ranking: tuple[HeadEffect, ...]
    output: Phrase  # what it is, in words
    unit: Unit = "nats"

    def page(self) -> Page:
        return sweep_page(self)


def sweep(
    run: Run,
    *,
    sides: Iterable[Side] | None = None,
    set: Literal["zero", "mean"] = "zero",
    observe: Callable[[int, int], None] | None = None,
) -> HeadSweep:
    """Switch off every head of `sides` (all that the model has, unless given) one at a time: its output z becomes 0, or
    at every position the mean over the tokens of the unchanged run (see `schema.HeadOff`).

    Each layer's heads run as rows of one batch, from that layer's stored input on: the blocks before are not computed
    again. The numbers are those of one full forward pass a head but for rounding. Memory: every layer's input, L·T·D
    values, and a batch of at most 8,192 tokens (at least one head's) through the blocks.

    `observe` is called after each layer with how many are done and how many there are; what it raises ends the sweep.
    """
    places = Places(run)
    chosen = _chosen(places, sides)
    if set not in ("zero", "mean"):
        raise CutawayError(
            "set is {set}{hint}, expected zero or mean",
            set=brief(set),
            hint=nearest(str(set), ("zero", "mean")),
        )
    blocks = [place for side in chosen for place in places.places(side, "*", (side,), "sweep")]
    with torch.no_grad():
        rest = _Rest(run, blocks, set)
        output = (_words if isinstance(run.model.head, Head) else _vector)(run, rest.base)
        grids: dict[Side, list[Tensor]] = {side: [] for side in chosen}
        for done, place in enumerate(blocks, start=1):
            heads = list(range(run.model.config.n_heads))
            rows = [output.lost(rest.without(place, some)) for some in rest.batches(heads)]
            grids[place.side].append(torch.cat(rows))
            if observe is not None:
                observe(done, len(blocks))
    effects: dict[Side, Tensor] = {side: torch.stack(grid) for side, grid in grids.items()}
    listed = [
        HeadEffect(side, layer, head, effect)
        for side, grid in effects.items()
        for layer, row in enumerate(grid.tolist())
        for head, effect in enumerate(row)
    ]
    ranking = tuple(sorted(listed, key=lambda each: -each.effect))
    return HeadSweep(output.base, set, effects, ranking, output_of(run), output.unit)


@dataclass(frozen=True)
class _Output:
    """What a run's output is judged by."""

    unit: Unit
    base: float
    lost: Callable[[Tensor], Tensor]  # the last hidden states (R, T, D) of changed runs -> (R,) fp64


def _words(run: Run, base: Tensor) -> _Output:
    """base (1, T, D): the last hidden states of the unchanged run."""
    forced = forced_tokens(run, run.checked(output_head(run.model)(base)[0]))

    def total(states: Tensor) -> Tensor:
        return log_probs_of(run.model, states, forced).double().sum(dim=1)

    whole = total(base)
    return _Output("nats", float(whole), lambda states: whole - total(states))


def _vector(run: Run, base: Tensor) -> _Output:
    """base (1, T, D) as in `_words`."""
    (vector,) = sentence_vectors(run.loaded, base)
    return _Output(
        "1 - cosine", 0.0, lambda states: cosine_distance(vector, sentence_vectors(run.loaded, states))
    )


def _chosen(places: Places, sides: Iterable[Side] | None) -> list[Side]:
    if sides is None:
        there: list[Side] = [side for side in SIDES if side in places.stacks]
        return there
    found: list[Side] = [side for each in sides for side in places.sides(each, SIDES, "sweep")]
    if not found:
        raise CutawayError(
            "sides is empty, expected one or more of {stacks}", stacks=", ".join(places.stacks)
        )
    return list(dict.fromkeys(found))


class _Rest:
    """What is left of a forward pass from a block on, with what the unchanged pass has stored at its borders."""

    def __init__(self, run: Run, blocks: list[Place], set: Literal["zero", "mean"]):
        self._run, self._model = run, run.model
        self._borders = {f"{place.path}.resid_pre" for place in blocks}
        watch: dict[str, Edit] = dict.fromkeys(self._borders, as_it_is)
        if isinstance(self._model, EncoderDecoder):
            watch |= dict.fromkeys(("encoder.normed", _FIRST_OF_DECODER), as_it_is)
        if set == "mean":
            watch |= {f"{place.attention_path}.z": mean_over_tokens for place in blocks}
        self._mean = set == "mean"
        states, self._trace = run.hidden(watch)
        self.base = states[None]  # (1, T, D)

    def batches(self, heads: list[int]) -> Iterator[list[int]]:
        """The heads in groups whose rows fit into one batch."""
        tokens = sum(len(each) for each in (self._run.source, self._run.target) if each is not None)
        size = max(1, _TOKENS // tokens)
        for first in range(0, len(heads), size):
            yield heads[first : first + size]

    def without(self, place: Place, heads: list[int]) -> Tensor:
        """(R, T, D): the last hidden states without each of the heads of a block."""
        name = f"{place.attention_path}.z"

        def off(z: Tensor) -> Tensor:
            rows, changed = torch.arange(len(heads), device=z.device), z.clone()
            instead = self._trace[name][0, heads] if self._mean else 0.0  # (R, 1, E)
            changed[rows, heads] = instead
            return changed

        with Trace(self._model, edit={name: off}):
            return self._hidden(place, len(heads))

    def _hidden(self, place: Place, rows: int) -> Tensor:
        """(R, T, D): the last stack's result, from the block's stored input on."""
        x = self._rows(f"{place.path}.resid_pre", rows)
        rest = stack_from(place.stack, place.layer)
        if place.side == "encoder":
            result = rest(x, self._positions(x))
            if not isinstance(self._model, EncoderDecoder):
                return result
            x = self._rows(_FIRST_OF_DECODER, rows)
            return self._model.decoder(x, self._positions(x), memory=result)
        memory = self._rows("encoder.normed", rows) if isinstance(self._model, EncoderDecoder) else None
        return rest(x, self._positions(x), memory=memory)

    def _rows(self, name: str, rows: int) -> Tensor:
        return self._trace[name].expand(rows, -1, -1)

    @staticmethod
    def _positions(x: Tensor) -> Tensor:
        return token_positions(None, x.shape[1], 0, x.device)


_FIRST_OF_DECODER = "decoder.layers.0.resid_pre"


def stack_from(stack: Stack, first: int) -> Stack:
    """The same stack without the blocks before number `first`: its own forward, over the same modules."""
    same = {id(child): child for child in stack.children()}
    same[id(stack.layers)] = nn.ModuleList(list(stack.layers)[first:])
    rest = copy.deepcopy(stack, same)
    rest.window_layers = frozenset(layer - first for layer in stack.window_layers if layer >= first)
    return rest
