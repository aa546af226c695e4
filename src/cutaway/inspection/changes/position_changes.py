"""What a model is told about positions, changed where its kind of positions enters."""

# Shapes: B batch, T tokens, S keys, H heads, D width, E head width.

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from cutaway.config import checked, key
from cutaway.errors import CutawayError
from cutaway.inspection.changes.attention_changes import biased
from cutaway.inspection.changes.change import ANY_SIDE, Building, Change, Example, Sides
from cutaway.inspection.wiring import Place, Side, places
from cutaway.nn.position import Rotary
from cutaway.words import say


@checked
class SetPositions(Change):
    """Added vectors are replaced (none: 0). Rotary queries and keys are rotated by other angles (none: those of
    position 0). Relative and ALiBi bias is left out or taken at the permuted positions; a shift is no change to them.
    A permutation is one of the run's positions; those that decoding adds keep theirs."""

    op = "pos"
    title = say("other positions")
    about = say(
        "The model is told no positions, positions further on, or those of the text in another order."
    )
    example = Example({"side": "encoder", "set": "shuffle", "seed": 1})

    side: Sides | None = key(ANY_SIDE, default=None)
    set: Literal["none", "shift", "shuffle"] = key(
        say("none: no positions; shift: all are `by` further on; shuffle: a permutation drawn with `seed`")
    )
    by: int | None = key(say("set shift: how far"), default=None, ge=0)
    seed: int | None = key(say("set shuffle: a whole number; each gives its own order"), default=None, ge=0)

    def __post_init__(self) -> None:
        for set, name, value in (("shift", "by", self.by), ("shuffle", "seed", self.seed)):
            if (self.set == set) != (value is not None):
                here = {"given": self.set, "name": name, "set": set}
                raise CutawayError(
                    "set is {given!r}: `{name}` belongs to set {set!r}, and only there", **here
                )

    def check(self, building: Building) -> None:
        kind, most = building.config.position, building.config.max_len
        if kind == "none":
            raise CutawayError(
                "this model is told no positions, so there are none to change; choose another change"
            )
        if kind in ("relative", "alibi") and self.set == "shift":
            raise CutawayError(
                "set is 'shift', but this model's positions are distances ({kind}), which a shift of all tokens "
                "leaves as they are; use none or shuffle",
                kind=kind,
            )
        for side in building.sides(self.side or "*", self.allowed):
            length = building.length(side)
            if building.stacks[side].embedding.positions is not None and length + (self.by or 0) > most:
                raise CutawayError(
                    "by is {by}, expected at most {left}: the text has {length} tokens and the model {most} positions",
                    by=self.by,
                    left=most - length,
                    length=length,
                    most=most,
                )

    def edit(self, building: Building) -> None:
        for side in building.sides(self.side or "*", self.allowed):
            stack, length = building.stacks[side], building.length(side)
            if self.set != "none":
                tell_vectors(building, side, lambda at, length=length: self._within(building, at, length))
            elif stack.embedding.positions is not None:
                building.add(f"{stack.embedding_name}.position", torch.zeros_like)
            tell_rotations(building, side, lambda at, length=length: self._told(at, length))
            for place in places(building.model, side):
                if place.stack.relative is not None and self.set != "shift":
                    self._bias(building, place)

    def _told(self, positions: Tensor, length: int) -> Tensor:
        """Positions -> those that the model is told instead; `length` tokens belong to the run."""
        if self.set == "none":
            return torch.zeros_like(positions)
        if self.by is not None:
            return positions + self.by
        order = torch.randperm(length, generator=torch.Generator().manual_seed(self.seed or 0))
        inside = order.to(positions.device)[positions.clamp(max=length - 1)]
        return torch.where(positions < length, inside, positions)

    def _within(self, building: Building, positions: Tensor, length: int) -> Tensor:
        """`_told`, where there is a vector of each position that is told."""
        told, most = self._told(positions, length), building.config.max_len
        if int(told[-1]) >= most:
            raise CutawayError(
                "position {position} was reached by a shift, but this model has only {most} positions; shift less, "
                "or write less",
                position=int(told[-1]),
                most=most,
            )
        return told

    def _bias(self, building: Building, place: Place) -> None:
        relative, length = place.stack.relative, building.length(place.side)
        scaled = building.keep(f"{place.attention_path}.scaled")
        assert relative is not None, "checked: the positions are distances"

        def edited(masked: Tensor) -> Tensor:
            n_queries, n_keys = masked.shape[-2:]
            bias = None
            if self.set == "shuffle":
                told = self._told(torch.arange(n_keys, device=masked.device), length)
                count = max(n_keys, length)
                bias = relative(count, count)[:, :, told[n_keys - n_queries :]][..., told]
            return biased(place, scaled(), bias).masked_fill(masked == -torch.inf, -torch.inf)

        building.add(f"{place.attention_path}.masked", edited)


Renumbered = Callable[[Tensor], Tensor]  # positions (T,) -> those that the model is told instead


def tell_vectors(building: Building, side: Side, renumbered: Renumbered) -> None:
    """Where position vectors are added, add those of other positions."""
    stack, clock = building.stacks[side], building.clocks[side]
    table, offset = stack.embedding.positions, stack.embedding.offset
    if table is None:
        return

    def edited(vectors: Tensor) -> Tensor:  # (B | 1, T, D)
        positions = renumbered(clock.positions(vectors.device))
        return table(positions + offset)[None].to(vectors).expand_as(vectors)

    building.add(f"{stack.embedding_name}.position", edited)


def tell_rotations(building: Building, side: Side, renumbered: Renumbered) -> None:
    """Where queries and keys are rotated, rotate them by the angles of other positions."""
    clock = building.clocks[side]
    for place in places(building.model, side):
        if place.rotary is None:
            continue
        rotary = building.model.get_submodule(place.rotary)
        assert isinstance(rotary, Rotary), "found by its name"
        for name in ("q", "k"):
            plain = building.keep(f"{place.attention_path}.{name}")

            def turned(x: Tensor, plain: Callable[[], Tensor] = plain, rotary: Rotary = rotary) -> Tensor:
                return Rotary.rotate(plain(), *rotary.angles(renumbered(clock.positions(x.device))[None]))

            building.add(f"{place.attention_path}.{name}_rot", turned)
