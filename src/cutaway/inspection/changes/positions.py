"""What a model is told about positions, changed where its kind of positions enters."""

from collections.abc import Callable

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.changes.attention import AttentionChanges, Moved
from cutaway.inspection.changes.attention_schema import SetPositions
from cutaway.inspection.changes.edits import Clock, EditList
from cutaway.inspection.changes.places import Place, Places
from cutaway.inspection.wiring import Side
from cutaway.nn.embedding import Embedding
from cutaway.tap import Edit


def change_positions(
    change: SetPositions,
    side: Side,
    places: Places,
    clock: Clock,
    edits: EditList,
    attention_at: Callable[[Place], AttentionChanges],
    where: str,
) -> None:
    """Change the positions of one side's stack. Raises CutawayError where that is none, with the reason."""
    config, length = places.model.config, places.length(side)
    if config.position == "none":
        raise CutawayError(
            "{where}: this model is told no positions, so there are none to change", where=where
        )
    if config.position in ("relative", "alibi") and change.set == "shift":
        raise CutawayError(
            "{where}: set is 'shift', but this model's positions are distances ({position}), which "
            "a shift of all tokens leaves as they are; use none or shuffle",
            where=where,
            position=config.position,
        )
    by, absolute = change.by or 0, config.position in ("learned", "sinusoidal")
    if absolute and length + by > config.max_len:
        raise CutawayError(
            "{where}: by is {by}, expected at most {max_len}: the text has {length} tokens and the "
            "model {max_len2} positions",
            where=where,
            by=by,
            max_len=config.max_len - length,
            length=length,
            max_len2=config.max_len,
        )
    moved = _moved(change, length)
    if absolute:
        path, embedding = places.embedding(side)
        limit = config.max_len if change.set == "shift" else None
        told = None if change.set == "none" else moved
        edits.add(f"{path}.position", _other_vectors(embedding, clock, told, limit))
        return
    for place in places.places(side, "*", (side,), where):
        attention = attention_at(place)
        if config.position == "rotary":
            attention.rotated = moved
        else:
            attention.biased = "none" if change.set == "none" else moved
            attention.n_moved = length


def _moved(change: SetPositions, length: int) -> Moved:
    if change.set == "none":
        return torch.zeros_like
    if change.set == "shift":
        return lambda positions: positions + (change.by or 0)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(change.seed or 0))

    def shuffled(positions: Tensor) -> Tensor:
        inside = order.to(positions.device)[positions.clamp(max=length - 1)]
        return torch.where(positions < length, inside, positions)

    return shuffled


def _other_vectors(embedding: Embedding, clock: Clock, moved: Moved | None, limit: int | None) -> Edit:
    """The vectors of other positions, in the place of (B | 1, T, D) position vectors; None: 0."""

    def edited(vectors: Tensor) -> Tensor:
        if moved is None:
            return torch.zeros_like(vectors)
        positions = moved(clock.positions(vectors.device))
        if limit is not None and int(positions[-1]) >= limit:
            raise CutawayError(
                "position {position} was reached by a shift, but this model has only {limit} "
                "positions; shift less, or write less",
                position=int(positions[-1]),
                limit=limit,
            )
        assert embedding.positions is not None, "checked: the model adds position vectors"
        return embedding.positions(positions + embedding.offset)[None].to(vectors).expand_as(vectors)

    return edited
