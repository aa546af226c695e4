"""Dropout switched on where training has it: on what sublayers write, and on what enters a stack's first block."""

# Shapes: B batch, T tokens, D width.

import hashlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.changes import residual
from cutaway.inspection.changes.edits import Clock, EditList
from cutaway.inspection.changes.places import STACKS, Places
from cutaway.inspection.changes.schema import SetDropout
from cutaway.nn.norm import SandwichNorm
from cutaway.tap import Edit


def drop_out(
    change: SetDropout, places: Places, clocks: Mapping[str, Clock], edits: EditList, where: str
) -> None:
    """Add the edits of one change. Raises CutawayError where no rate is given and the model has none of its own."""
    config = places.model.config
    rate = config.dropout if change.rate is None else change.rate
    if not rate:
        raise CutawayError(
            "{where}: this model's config has no dropout (dropout is 0), so it gives no rate: add "
            "`rate`, such as 0.1",
            where=where,
        )
    for place in places.places(change.side, "*", STACKS, where, "*"):
        clock = clocks[place.side]
        if place.layer == 0:
            entering = f"{place.path}.resid_pre"
            edits.add(entering, _Dropout(rate, change.seed, entering, config.d_model, clock))
        for part in residual.parts(place):
            norm, out, after = residual.sublayer(place, part)
            dropped = _Dropout(rate, change.seed, out, config.d_model, clock)
            if isinstance(norm, SandwichNorm):  # it drops what the second norm has made of `out`
                edits.add(after, _on_the_step(edits.keep(residual.before(place, part)), dropped))
            else:
                edits.add(out, dropped)


class _Dropout:
    """An edit of x (B, T, D) at the positions of the present call, for one place, whose `name` is in its draws."""

    def __init__(self, rate: float, seed: int, name: str, width: int, clock: Clock):
        digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=4).digest()
        self._generator = torch.Generator().manual_seed(int.from_bytes(digest))
        self._rate, self._width, self._clock = rate, width, clock
        self._kept: list[Tensor] = []  # of each position from 0: (D,)

    def __call__(self, x: Tensor) -> Tensor:
        while len(self._kept) < self._clock.end:
            self._kept.append(torch.rand(self._width, generator=self._generator) >= self._rate)
        kept = torch.stack(self._kept[self._clock.start : self._clock.end]).to(x.device)
        return torch.where(kept, x / (1 - self._rate), 0.0)


def _on_the_step(before: Callable[[], Tensor], edit: Edit) -> Edit:
    """An edit of what a sublayer has added to the residual stream, at the stream after it."""

    def edited(x: Tensor) -> Tensor:
        return before() + edit(x - before())

    return edited
