"""Edits of the residual stream and of what is written into it: blocks, norms, neurons, experts, output."""

# Shapes: B batch, T tokens, D width, F feed-forward width, X experts, A chosen experts, V vocabulary.

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cutaway.inspection.changes.edits import Clock, EditList
from cutaway.inspection.changes.places import Place
from cutaway.nn.norm import PostNorm, PreNorm, SandwichNorm
from cutaway.tap import Edit

# A block's sublayers: the owners of their taps, and the name of the residual stream after each.
_SUBLAYERS = {
    "attention": ("self_residual", "self_attn", "resid_mid"),
    "cross": ("cross_residual", "cross_attn", "resid_cross"),
    "ffn": ("mlp_residual", "mlp", "resid_post"),
}


def parts(place: Place) -> list[str]:
    """The sublayers of a block, in order."""
    return [name for name in _SUBLAYERS if name != "cross" or place.block.cross]


def sublayer(place: Place, part: str) -> tuple[PreNorm, str, str]:
    """A sublayer's norm, and the full names of what it writes and of the residual stream after it."""
    residual, module, after = _SUBLAYERS[part]
    norm = place.block.get_submodule(residual)
    assert isinstance(norm, PreNorm)
    return norm, f"{place.path}.{module}.out", f"{place.path}.{after}"


def before(place: Place, part: str) -> str:
    """The full name of the residual stream that a sublayer adds to."""
    names = ["resid_pre", *(_SUBLAYERS[each][2] for each in parts(place))]
    return f"{place.path}.{names[parts(place).index(part)]}"


def skip(edits: EditList, place: Place, part: str | None) -> None:
    """Let a sublayer, or with None the whole block, pass its input on."""
    last = part or "ffn"
    entering = edits.keep(f"{place.path}.resid_pre" if part is None else before(place, last))
    edits.add(f"{place.path}.{_SUBLAYERS[last][2]}", lambda _: entering())


def no_norm(edits: EditList, place: Place, part: str) -> None:
    """Take a sublayer's norm off: before it, and where it stands after the sublayer, there."""
    norm, written, after = sublayer(place, part)
    entering = edits.keep(before(place, part))
    if not isinstance(norm, PostNorm):
        edits.add(f"{place.path}.{_SUBLAYERS[part][0]}.normed", lambda _: entering())
    if isinstance(norm, PostNorm | SandwichNorm):
        out = edits.keep(written)
        edits.add(after, lambda _: entering() + out())


def no_final_norm(edits: EditList, place: Place) -> None:
    """Take the stack's last norm off; `place` is its last block."""
    last = edits.keep(f"{place.path}.resid_post")
    edits.add(f"{place.path.partition('.')[0]}.normed", lambda _: last())


def at_token(clock: Clock, token: int | str, edit: Edit) -> Edit:
    """An edit of one position of (B, T, …), or of all."""

    def edited(x: Tensor) -> Tensor:
        rows = clock.rows(token, x.shape[1])
        changed = x.clone()
        changed[:, rows] = edit(x[:, rows])
        return changed

    return edited


def set_neuron(n: int, value: float | None, scale: float | None) -> Edit:
    """An edit of `hidden` (B, T, F); one of `value` and `scale` is given."""

    def edited(hidden: Tensor) -> Tensor:
        changed = hidden.clone()
        if value is not None:
            changed[..., n] = value
        elif scale is not None:
            changed[..., n] = hidden[..., n] * scale
        return changed

    return edited


def ban_experts(banned: Sequence[int]) -> Edit:
    """An edit of the router's scores (B, T, X)."""

    def edited(router: Tensor) -> Tensor:
        changed = router.clone()
        changed[..., list(banned)] = -math.inf
        return changed

    return edited


def force_experts(forced: Sequence[int]) -> Edit:
    """An edit of the chosen experts' numbers (B, T, A): the forced ones first, then the best of the others."""

    def edited(chosen: Tensor) -> Tensor:
        first = chosen.new_tensor(list(forced))
        order = torch.isin(chosen, first).byte().argsort(dim=-1, stable=True)  # those not forced come first
        others = chosen.gather(-1, order)[..., : chosen.shape[-1] - len(first)]
        return torch.cat([first.expand(*chosen.shape[:-1], -1), others], dim=-1)

    return edited


def patched(value: Callable[[], Tensor]) -> Edit:
    """An edit that puts the vector (D,) in the place of every row it is given."""
    return lambda x: value().to(x).expand_as(x)


def only(allowed: int) -> Edit:
    """An edit of logits (B, T, V): -inf for all but one id."""

    def edited(logits: Tensor) -> Tensor:
        changed = torch.full_like(logits, -math.inf)
        changed[..., allowed] = logits[..., allowed]
        return changed

    return edited


def without(banned: Sequence[int]) -> Edit:
    """An edit of logits (B, T, V): -inf for these ids."""
    return lambda logits: logits.index_fill(-1, torch.tensor(list(banned), device=logits.device), -math.inf)
