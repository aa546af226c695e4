"""Changes within one attention: its scale, mask and positions, its pattern, its heads."""

# Shapes: B batch, T queries, S keys, H heads, E head width.

import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from cutaway.inspection.changes.attention_schema import SetAttention, SetPattern
from cutaway.inspection.changes.edits import Clock, EditList
from cutaway.inspection.changes.places import Place
from cutaway.nn.attention import soft_cap
from cutaway.nn.position import Rotary
from cutaway.tap import Edit

Moved = Callable[[Tensor], Tensor]  # positions -> the positions that the model is told instead


class AttentionChanges:
    """All that is changed in the attention of one place. Settings (`unscaled`, `mask`, positions) become edits in
    `finish`; patterns and heads are edited in the order in which they are added."""

    def __init__(self, place: Place, clock: Clock, edits: EditList):
        self._place, self._clock, self._edits = place, clock, edits
        self._path, self._attn = place.attention_path, place.attention
        self.unscaled = False
        self.mask: Literal["open", "closed"] | None = None
        self.rotated: Moved | None = None
        self.biased: Moved | Literal["none"] | None = None  # how relative positions are told
        self.n_moved = 0  # positions from 0 on that `biased` may exchange

    def finish(self) -> None:
        if self.rotated is not None:
            self._rotate_by(self.rotated)
        if self.unscaled:
            scores = self._edits.keep(f"{self._path}.scores")
            self._edits.add(f"{self._path}.scaled", lambda _: scores())
        if self.mask is not None or self.biased is not None:
            scaled = self._edits.keep(f"{self._path}.scaled")
            self._edits.add(f"{self._path}.masked", lambda masked: self._masked(masked, scaled()))

    def _rotate_by(self, moved: Moved) -> None:
        stack = self._place.stack
        local = stack.local_rotary is not None and self._place.layer in stack.window_layers
        rotary = stack.local_rotary if local else stack.rotary
        assert rotary is not None, "checked when the change was read"
        for name in ("q", "k"):
            plain = self._edits.keep(f"{self._path}.{name}")

            def turned(x: Tensor, plain: Callable[[], Tensor] = plain) -> Tensor:
                return Rotary.rotate(plain(), *rotary.angles(moved(self._clock.positions(x.device))[None]))

            self._edits.add(f"{self._path}.{name}_rot", turned)

    def _masked(self, masked: Tensor, scaled: Tensor) -> Tensor:
        """The scores with another mask, or other relative positions: (B, H, T, S)."""
        n_queries, n_keys = masked.shape[-2:]
        keys = torch.arange(n_keys, device=masked.device)
        future = keys > keys[n_keys - n_queries :, None]
        hidden = masked == -math.inf
        if self.mask is not None:
            hidden = hidden & ~future if self.mask == "open" else hidden | future
        cap, bias = self._attn.softcap, self._bias(n_queries, n_keys, masked.device)
        capped = scaled if cap is None else soft_cap(scaled, cap)
        return (capped if bias is None else capped + bias).masked_fill(hidden, -math.inf)

    def _bias(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor | None:
        relative, biased = self._place.stack.relative, self.biased
        if relative is None or self._place.side == "cross" or isinstance(biased, str):
            return None
        if biased is None:
            return relative(n_queries, n_keys)
        count = max(n_keys, self.n_moved)
        told = biased(torch.arange(n_keys, device=device))
        return relative(count, count)[:, :, told[n_keys - n_queries :]][..., told]

    def set_pattern(self, change: SetPattern, heads: slice) -> None:
        if change.kind == "uniform":
            masked = self._edits.keep(f"{self._path}.masked")
            self._on_heads(heads, lambda pattern: _shared(masked()[:, heads] > -math.inf, pattern.dtype))
        elif change.kind == "argmax":
            self._on_heads(heads, _strongest)
        elif change.rows is not None:
            rows, renorm = change.rows, change.renorm
            self._on_heads(heads, lambda pattern: self._given(pattern, rows, renorm))
        else:
            back = 1 if change.kind == "previous" else 0
            self._on_heads(heads, lambda pattern: self._looking_back(pattern, back))

    def set_cells(self, change: SetAttention, heads: slice) -> None:
        self._on_heads(heads, lambda pattern: self._cells(pattern, change))

    def zero_head(self, heads: slice) -> None:
        self._on_heads(heads, torch.zeros_like, "z")

    def fix_head(self, heads: slice, values: Mapping[str, Tensor]) -> None:
        """At every position the (1, H, 1, E) vector that `values` will hold under this head's tap."""
        name = f"{self._path}.z"
        self._on_heads(heads, lambda z: values[name][:, heads].to(z).expand_as(z), "z")

    def _on_heads(self, heads: slice, edit: Edit, tap: str = "pattern") -> None:
        def edited(x: Tensor) -> Tensor:
            changed = x.clone()
            changed[:, heads] = edit(x[:, heads])
            return changed

        self._edits.add(f"{self._path}.{tap}", edited)

    def _queries(self, pattern: Tensor) -> Tensor:
        """(T,) positions of the queries. An encoder's and a decoder's own keys end where its queries do."""
        n_queries, n_keys = pattern.shape[-2:]
        if self._place.side == "cross":
            return self._clock.positions(pattern.device)
        return torch.arange(n_keys - n_queries, n_keys, device=pattern.device)

    def _looking_back(self, pattern: Tensor, distance: int) -> Tensor:
        keys = (self._queries(pattern) - distance).clamp(min=0)
        changed = torch.zeros_like(pattern)
        changed[:, :, torch.arange(len(keys), device=keys.device), keys] = 1.0
        return changed

    def _given(self, pattern: Tensor, rows: tuple[tuple[float, ...], ...], renorm: bool) -> Tensor:
        changed = pattern.clone()
        for t, query in enumerate(self._queries(pattern).tolist()):
            if query < len(rows):
                row = _row(rows[query], pattern)
                changed[:, :, t] = row / row.sum() if renorm and row.sum() > 0 else row
        return changed

    def _cells(self, pattern: Tensor, change: SetAttention) -> Tensor:
        changed, queries = pattern.clone(), self._queries(pattern)
        rows = torch.ones_like(queries, dtype=torch.bool) if change.q == "*" else queries == change.q
        if change.row is not None:
            given = _row(change.row, pattern).expand(int(rows.sum()), -1)  # (r, S)
            if self._place.side == "decoder":
                keys = torch.arange(given.shape[-1], device=given.device)
                given = given.masked_fill(keys > queries[rows, None], 0.0)
            total = given.sum(dim=-1, keepdim=True)
            changed[:, :, rows] = torch.where(total > 0, given / total, given) if change.renorm else given
            return changed
        assert change.k is not None and change.value is not None, "checked by the schema"
        if self._place.side == "decoder":
            rows = rows & (queries >= change.k)
        chosen = changed[:, :, rows]  # (B, h, r, S), a copy
        if change.renorm and chosen.numel():
            chosen[..., change.k] = 0.0
            rest = chosen.sum(dim=-1, keepdim=True)
            chosen = torch.where(rest > 0, chosen * ((1 - change.value) / rest.clamp(min=1e-30)), chosen)
        if chosen.numel():
            chosen[..., change.k] = change.value
        changed[:, :, rows] = chosen
        return changed


def _row(weights: tuple[float, ...], pattern: Tensor) -> Tensor:
    """Weights of keys as a row (S,) of a pattern; what goes beyond its keys is left out."""
    row = pattern.new_zeros(pattern.shape[-1])
    given = pattern.new_tensor(weights[: len(row)])
    row[: len(given)] = given
    return row


def _shared(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """The same weight for all visible keys, which sums to 1; 0 where none is visible."""
    return visible.to(dtype) / visible.sum(dim=-1, keepdim=True).clamp(min=1)


def _strongest(pattern: Tensor) -> Tensor:
    """All weight on the strongest key, the first of equal ones; a query that sees no key stays blind."""
    best = pattern.max(dim=-1, keepdim=True)
    return torch.zeros_like(pattern).scatter_(-1, best.indices, (best.values > 0).to(pattern.dtype))
