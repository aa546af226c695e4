"""Every attention head switched off in turn, ranked by what the output loses."""

# Shapes: R heads at once, T tokens, D width, H heads, E head width, L layers, V vocabulary.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from cutaway.inspection.asked import AttentionSide, reported
from cutaway.inspection.changes.change import as_it_is, mean_over_tokens
from cutaway.inspection.options import Option, Progress
from cutaway.inspection.outcome import forced_tokens, log_probs_of, output_of
from cutaway.inspection.page_parts import array, numbers_to
from cutaway.inspection.question import question
from cutaway.inspection.runs import Run
from cutaway.inspection.sentences import cosine_distance, sentence_vectors
from cutaway.inspection.terms import ATTENTIONS, HEAD, LAYER, NATS, SIDES, left, right
from cutaway.inspection.wiring import Place, Side, places, sides, stack_entry, stack_result
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.embedding import token_positions
from cutaway.nn.head import Head
from cutaway.nn.stack import Stack
from cutaway.page.blocks import Atlas, Bar, Heading, Matrix, Page, Table, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import nats
from cutaway.tap import Edit, Trace
from cutaway.words import Phrase, say

Unit = Literal["nats", "1 - cosine"]
Setting = Literal["zero", "mean"]
_TOKENS = 8192  # of all rows that are computed at once


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
    in forced decoding (see `outcome.Forced`); `base` is Σ_t log p(y_t). Negative: the output grows more probable
    without the head. `ranking` lists all heads, the strongest fall first.

    The output of a model without output head is the text's sentence vector v, made as `cutaway.embed` makes it. There
    `unit` is "1 - cosine", an effect is 1 - cos(v, v without the head) (see `sentences.cosine_distance`), and `base` is
    0, the distance of v from itself.

    Michel et al. 2019, §3.2 rank heads so, by BLEU. A trained model meets a missing head out of distribution, and heads
    stand in for one another: an effect shows dependence on this one head alone, not its purpose.
    """

    base: float
    set: Setting
    effects: dict[Side, Tensor]
    ranking: tuple[HeadEffect, ...]
    output: Phrase  # what it is, in words
    told: Phrase  # what an effect is
    unit: Unit
    top: int  # heads that its page lists

    @property
    def heads(self) -> tuple[HeadEffect, ...]:
        """The first `top` of the ranking."""
        return self.ranking[: self.top]

    def page(self) -> Page:
        return _page(self)


@question(say("Every attention head switched off in turn, ranked by what the output loses."), "changes")
def sweep(
    run: Run,
    *,
    side: AttentionSide = None,
    set: Annotated[
        Setting, Option(say("What a head's result becomes: 0, or its mean over the tokens."))
    ] = "zero",
    top: Annotated[int, Option(say("Heads that are listed."), at_least=1)] = 8,
    progress: Progress | None = None,
) -> HeadSweep:
    """Switch off every head of a side (all that the model has, unless given) one at a time: its output z becomes 0, or
    at every position the mean over the tokens of the unchanged run (see `changes.attention_changes.HeadOff`).

    Each layer's heads run as rows of one batch, from that layer's stored input on: the blocks before are not computed
    again. The numbers are those of one full forward pass a head but for rounding. Memory: every layer's input, L·T·D
    values, and a batch of at most 8,192 tokens (at least one head's) through the blocks.

    `progress` is called after each layer; what it raises ends the sweep.
    """
    return Stored(run, side, set).sweep(top, progress)


class Stored:
    """One unchanged pass of a run, with what is needed to go on from any of its blocks without a head."""

    def __init__(self, run: Run, side: Side | None = None, set: Setting = "zero"):
        self._run, self._model = run, run.model
        self._set: Setting = set
        chosen = sides(run.model) if side is None else (side,)
        self._blocks = [place for each in chosen for place in places(run.model, each)]
        watch: dict[str, Edit] = {f"{place.path}.resid_pre": as_it_is for place in self._blocks}
        if isinstance(run.model, EncoderDecoder):
            watch |= {stack_result("encoder"): as_it_is, stack_entry("decoder"): as_it_is}
        if set == "mean":
            watch |= {f"{place.attention_path}.z": mean_over_tokens for place in self._blocks}
        self.states, self._trace = run.hidden(watch)  # (T, D), the last hidden states
        self.logits: Tensor | None = None  # (T, V), where the model has an output head
        if isinstance(run.model.head, Head):
            with torch.no_grad():
                self.logits = run.checked(run.model.head(self.states[None])[0])

    def sweep(self, top: int, progress: Progress | None) -> HeadSweep:
        tokens = sum(len(each) for each in (self._run.source, self._run.target) if each is not None)
        at_once = max(1, _TOKENS // tokens)
        grids: dict[Side, list[Tensor]] = {place.side: [] for place in self._blocks}
        with torch.no_grad():
            unit, base, lost = self._judged()
            for place in reported(self._blocks, say("heads switched off, layers"), progress):
                batches = torch.arange(place.attention.n_heads).split(at_once)
                grids[place.side].append(torch.cat([lost(self._without(place, some)) for some in batches]))
        effects: dict[Side, Tensor] = {side: torch.stack(grid) for side, grid in grids.items()}
        listed = [
            HeadEffect(side, layer, head, effect)
            for side, grid in effects.items()
            for layer, row in enumerate(grid.tolist())
            for head, effect in enumerate(row)
        ]
        ranking = tuple(sorted(listed, key=lambda each: -each.effect))
        output = output_of(self._run)
        told = _told(unit, base, self._set, output)
        return HeadSweep(base, self._set, effects, ranking, output, told, unit, top)

    def _judged(self) -> tuple[Unit, float, Callable[[Tensor], Tensor]]:
        """What the output is judged by, its value, and what changed last hidden states (R, T, D) lose of it: (R,)."""
        run, base = self._run, self.states[None]
        if self.logits is None:
            (vector,) = sentence_vectors(run.loaded, base)
            return "1 - cosine", 0.0, lambda now: cosine_distance(vector, sentence_vectors(run.loaded, now))
        forced = forced_tokens(run, self.logits)

        def total(states: Tensor) -> Tensor:
            return log_probs_of(run.model, states, forced).double().sum(dim=1)

        whole = total(base)
        return "nats", float(whole), lambda states: whole - total(states)

    def _without(self, place: Place, heads: Tensor) -> Tensor:
        """(R, T, D): the last hidden states without each of the heads (R,) of a block."""
        name = f"{place.attention_path}.z"

        def off(z: Tensor) -> Tensor:
            changed, some = z.clone(), heads.to(z.device)
            instead = self._trace[name][0, some] if self._set == "mean" else 0.0  # (R, 1, E)
            changed[torch.arange(len(some), device=z.device), some] = instead
            return changed

        with Trace(self._model, edit={name: off}):
            return self._rest(place, len(heads))

    def _rest(self, place: Place, rows: int) -> Tensor:
        """(R, T, D): the output stack's result, from the block's stored input on."""

        def onward(stack: Stack, name: str, memory: Tensor | None, first: int = 0) -> Tensor:
            x = self._trace[name].expand(rows, -1, -1)
            return stack(x, token_positions(None, x.shape[1], 0, x.device), memory=memory, first=first)

        memory = None
        if isinstance(self._model, EncoderDecoder) and place.side != "encoder":
            memory = self._trace[stack_result("encoder")].expand(rows, -1, -1)
        result = onward(place.stack, f"{place.path}.resid_pre", memory, place.layer)
        if isinstance(self._model, EncoderDecoder) and place.side == "encoder":
            return onward(self._model.decoder, stack_entry("decoder"), result)
        return result


# Its page.

# What an effect is counted in, and how much of its own unit that is.
UNITS: dict[Unit, tuple[Phrase, float]] = {"nats": (NATS, 1.0), "1 - cosine": (say("1 − cosine, ‰"), 1000.0)}


def _told(unit: Unit, base: float, set: Setting, output: Phrase) -> Phrase:
    """What an effect is, and is not."""
    done = say("result set to 0")
    if set == "mean":
        done = say("result replaced by its mean over the tokens")
    what = say(
        "1 minus the cosine between the text's vector and what it is with one head's {done}, "
        "in thousandths: 0 where it points the same way.",
        done=done,
    )
    if unit == "nats":
        what = say(
            "Fall of the output's log-probability ({base:.2f} in all) with one head's {done}. "
            "Below 0: more probable without it.",
            base=base,
            done=done,
        )
    return say(
        "{what} The output: {output}. Dependence on this one head, whose work others may take over; not its purpose.",
        what=what,
        output=output,
    )


def _page(found: HeadSweep) -> Page:
    (title, first), *others = effect_maps(found)
    return page(
        title,
        [
            first,
            *(block for title, matrix in others for block in (Heading(title), matrix)),
            Heading(say("The heads that the output depends on most")),
            ranking(found.heads, found.unit),
            found.told,
        ],
    )


def effect_maps(found: HeadSweep, drawn: bool = False) -> list[tuple[Phrase, Matrix]]:
    """For each side a title and the effects of its heads, layers down, with one scale for all."""
    unit, scale = UNITS[found.unit]
    greatest = scale * max(float(grid.abs().max()) for grid in found.effects.values())
    maps = []
    for side, grid in found.effects.items():
        what = say(
            "{attentions}: what the output loses without each head ({unit})",
            attentions=ATTENTIONS[side],
            unit=unit,
        )
        layers, heads = numbers_to(len(grid)), [f"h{head}" for head in range(grid.shape[1])]
        drawing = Matrix(
            scale * array(grid), layers, heads, LAYER, HEAD, unit, "signed", drawn, greatest or None
        )
        maps.append((what, drawing))
    return maps


def effect_atlas(found: HeadSweep) -> Matrix | Atlas:
    """The effects of all heads with one scale for all sides."""
    maps = [matrix for _, matrix in effect_maps(found, drawn=True)]
    if len(maps) == 1:
        return maps[0]
    strongest = list(found.effects).index(found.ranking[0].side)
    return Atlas([ATTENTIONS[side] for side in found.effects], maps, len(maps), strongest)


def ranking(heads: Sequence[HeadEffect], unit: Unit) -> Table:
    """Heads with their effects, the strongest as the longest bar."""
    counted, scale = UNITS[unit]
    longest = max((each.effect for each in heads), default=0.0)
    rows = []
    for each in heads:
        bar = Bar(each.effect / longest if longest > 0 else 0.0)
        rows.append((SIDES[each.side], f"{each.layer}.{each.head}", nats(scale * each.effect), bar))
    effect = say("effect ({counted})", counted=counted)
    columns = (left(say("attention")), right(say("layer.head")), right(effect), left(""))
    return Table(columns, rows)
