"""Changes to a model's forward pass, as edits of its taps: the same modules run, with other values in between.

A trained model meets these changes out of distribution: an effect shows that the output depends on what was changed,
not what that is for.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.changes import residual
from cutaway.inspection.changes.attention import AttentionChanges
from cutaway.inspection.changes.attention_schema import (
    HeadOff,
    NoScale,
    SetAttention,
    SetMask,
    SetPattern,
    SetPositions,
)
from cutaway.inspection.changes.dropout import drop_out
from cutaway.inspection.changes.edits import Clock, EditList, mean_over_tokens
from cutaway.inspection.changes.places import STACKS, Place, Places
from cutaway.inspection.changes.positions import change_positions
from cutaway.inspection.changes.reading import Changes, read_changes
from cutaway.inspection.changes.schema import (
    Change,
    NoNorm,
    PatchResidual,
    SetDropout,
    SetEmbedding,
    SetExperts,
    SetNeuron,
    SetOutput,
    SetTemperature,
    SkipAttention,
    SkipFeedForward,
    SkipLayer,
)
from cutaway.inspection.changes.tokens import TokenChanges
from cutaway.inspection.runs import Run
from cutaway.inspection.wiring import SIDES, Side
from cutaway.nn.stack import Stack
from cutaway.tap import Edit


def edits(changes: Changes, run: Run, runs: Mapping[str, Run] | None = None) -> dict[str, Edit]:
    """The edits of taps, by full name, that carry out `changes` (see `changes.schema`) in the model of `run`.

    They serve one forward pass of the run, `run.forward(watch, edits(changes, run))`, or one decoding of its text in a
    cache, under `Trace(run.model, edit=edits(changes, run))`: make them anew for the next. Positions and masks are
    those of a single text without padding; several rows of it, such as a beam's hypotheses, are all changed alike. An
    empty list gives no edits. Changes to patterns let attention take the explicit product in the place of the fused
    kernel, which rounds otherwise (differences of about 1e-6 of a value's size).

    `runs` are the runs that `resid` changes name in `from`. Raises CutawayError for a change that this model cannot be
    given, naming it and the reason; nothing has run by then but what `mean` and `from` measure.
    """
    listed = read_changes(changes)
    if not listed:
        return {}
    making = _Making(run, runs or {})
    for i, change in sorted(enumerate(listed), key=lambda each: _stage(each[1])):
        making.add(change, f"changes[{i}] ({change.op})")
    return making.finish()


def _stage(change: Change) -> int:
    """Norms, then dropout make the values that all others change: those two come first wherever they stand."""
    return 0 if isinstance(change, NoNorm) else 1 if isinstance(change, SetDropout) else 2


class _Making:
    def __init__(self, run: Run, runs: Mapping[str, Run]):
        self._run, self._places = run, Places(run)
        self._edits = EditList()
        self._clocks: dict[str, Clock] = {"encoder": Clock(), "decoder": Clock()}
        self._clocks["cross"] = self._clocks["decoder"]
        self._attentions: dict[str, AttentionChanges] = {}
        self._means: dict[str, Tensor] = {}  # heads' mean outputs by tap, filled in `finish`
        self._tokens = TokenChanges(self._places, self._clocks, self._edits, runs)
        for side in STACKS:
            if side in self._places.stacks:
                self._watch_positions(side)

    def _watch_positions(self, side: Side) -> None:
        name = f"{self._places.embedding(side)[0]}.embed"
        if side == "decoder":
            self._edits.add(name, self._clocks["decoder"].advance)
        else:
            self._edits.add(name, self._clocks["encoder"].restart)
            self._edits.add(name, self._clocks["decoder"].reset)

    def finish(self) -> dict[str, Edit]:
        for attention in self._attentions.values():
            attention.finish()
        self._tokens.finish()
        if self._means:
            _, trace = self._run.forward(dict.fromkeys(self._means, mean_over_tokens))
            self._means.update({name: trace[name] for name in self._means})
        return self._edits.built()

    def add(self, change: Change, where: str) -> None:
        places, edits = self._places, self._edits
        match change:
            case HeadOff() | SetPattern() | SetAttention() | NoScale():
                for place in places.places(change.side, change.layer, SIDES, where, self._all_of(change)):
                    self._change_attention(change, place, where)
            case SetMask():
                self._set_mask(change, where)
            case SetPositions():
                for side in places.sides(change.side, STACKS, where, "*"):
                    clock = self._clocks[side]
                    change_positions(change, side, places, clock, edits, self._attention_at, where)
            case SkipLayer():
                for place in places.places(change.side, change.layer, STACKS, where):
                    residual.skip(edits, place, None)
            case SkipFeedForward():
                for place in places.places(change.side, change.layer, STACKS, where):
                    residual.skip(edits, place, "ffn")
            case SkipAttention():
                for place in places.places(change.side, change.layer, SIDES, where):
                    residual.skip(edits, place, "cross" if place.side == "cross" else "attention")
            case NoNorm():
                self._no_norm(change, where)
            case SetNeuron():
                self._tokens.set_neuron(change, where)
            case SetExperts():
                self._tokens.set_experts(change, where)
            case PatchResidual():
                self._tokens.patch(change, where)
            case SetEmbedding():
                self._tokens.set_embedding(change, where)
            case SetOutput():
                self._tokens.set_output(change, where)
            case SetTemperature():
                self._tokens.set_temperature(change, where)
            case SetDropout():
                drop_out(change, places, self._clocks, edits, where)

    @staticmethod
    def _all_of(change: Change) -> str | None:
        return "*" if isinstance(change, NoScale) else None

    def _attention_at(self, place: Place) -> AttentionChanges:
        path = place.attention_path
        if path not in self._attentions:
            self._attentions[path] = AttentionChanges(place, self._clocks[place.side], self._edits)
        return self._attentions[path]

    def _change_attention(
        self, change: HeadOff | SetPattern | SetAttention | NoScale, place: Place, where: str
    ) -> None:
        attention = self._attention_at(place)
        if isinstance(change, NoScale):
            if place.attention.scale == 1.0:
                raise CutawayError(
                    "{where}: this model does not scale its scores (its attention scale is 1), so there is "
                    "no scale to take away",
                    where=where,
                )
            attention.unscaled = True
            return
        heads = self._places.heads(change.head, where)
        if isinstance(change, HeadOff):
            if change.set == "zero":
                attention.zero_head(heads)
            else:
                self._means.setdefault(f"{place.attention_path}.z", torch.empty(0))
                attention.fix_head(heads, self._means)
        elif isinstance(change, SetPattern):
            if place.side == "cross" and change.kind in ("identity", "previous"):
                raise CutawayError(
                    "{where}: kind is {kind!r}, but in cross-attention queries and keys are different "
                    "texts; use uniform, argmax or given",
                    where=where,
                    kind=change.kind,
                )
            for t, row in enumerate(change.rows or ()):
                self._check_row(row, place.side, t, f"{where}.rows[{t}]")
            attention.set_pattern(change, heads)
        else:
            keys: Side = "encoder" if place.side == "cross" else place.side
            self._places.check_position(change.q, place.side, where, "q")
            self._places.check_position(change.k, keys, where, "k")
            q = change.q if isinstance(change.q, int) else None
            if place.side == "decoder" and None not in (q, change.k) and (change.k or 0) > (q or 0):
                raise CutawayError(
                    "{where}: key {k} comes after query {q}, and a decoder does not see later tokens",
                    where=where,
                    k=change.k,
                    q=q,
                )
            if change.row is not None:
                self._check_row(change.row, place.side, q, f"{where}.row")
            attention.set_cells(change, heads)

    def _check_row(self, row: Sequence[float], side: Side, query: int | None, where: str) -> None:
        most = self._places.model.config.max_len if side == "decoder" else self._places.length("encoder")
        if len(row) > most:
            raise CutawayError(
                "{where} has {count} weights, expected at most {most}, one a key",
                where=where,
                count=len(row),
                most=most,
            )
        if side == "decoder" and query is not None and any(row[query + 1 :]):
            raise CutawayError(
                "{where} gives weight to keys after query {query}, which a decoder does not see",
                where=where,
                query=query,
            )

    def _set_mask(self, change: SetMask, where: str) -> None:
        side: Side = "decoder" if change.set == "open" else "encoder"
        for place in self._places.places(change.side, change.layer, (side,), where, side):
            self._attention_at(place).mask = change.set

    def _no_norm(self, change: NoNorm, where: str) -> None:
        n_changed = 0
        for place in self._places.places(change.side, change.layer, STACKS, where):
            for part in residual.parts(place):
                if change.part in (part, "*"):
                    residual.no_norm(self._edits, place, part)
                    n_changed += 1
            last = place.layer == len(place.stack.layers) - 1
            if (
                change.part in ("final", "*")
                and change.layer == "*"
                and last
                and _has_final_norm(place.stack)
            ):
                residual.no_final_norm(self._edits, place)
                n_changed += 1
        if not n_changed:
            why = (
                "it is the stack's, leave `layer` out" if change.layer != "*" else "this model has none there"
            )
            raise CutawayError("{where}: part is {part!r}, but {why}", where=where, part=change.part, why=why)


def _has_final_norm(stack: Stack) -> bool:
    return not isinstance(stack.norm, torch.nn.Identity)
