"""Changes within attention: heads, patterns, the scale, the mask."""

# Shapes: B batch, T queries, S keys, H heads, E head width.

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from cutaway.config import checked, key
from cutaway.errors import CutawayError
from cutaway.inspection.changes.change import (
    ANY_SIDE,
    LAYER,
    ONLY,
    BlockChange,
    Building,
    Example,
    Sides,
    mean_over_tokens,
)
from cutaway.inspection.wiring import SIDES, All, Place, Side, one_of
from cutaway.nn.attention import soft_cap
from cutaway.tap import Edit
from cutaway.words import Phrase, say


@checked
class HeadChange(BlockChange):
    """A change of some heads."""

    allowed = SIDES

    head: All | int = key(say('the head, from 0; -1 is the last, "*" all'))

    def heads(self, place: Place) -> slice:
        if self.head == "*":
            return slice(None)
        only = one_of(say("head"), self.head, place.attention.n_heads)
        return slice(only, only + 1)

    def check(self, building: Building) -> None:
        for place in self.places(building):
            self.heads(place)

    def add(self, building: Building, place: Place, tap: str, edit: Edit) -> None:
        """An edit of the heads alone, at a tap (B, H, …) of the attention."""
        heads = self.heads(place)

        def edited(x: Tensor) -> Tensor:
            changed = x.clone()
            changed[:, heads] = edit(x[:, heads])
            return changed

        building.add(f"{place.attention_path}.{tap}", edited)


@checked
class HeadOff(HeadChange):
    """Zero or mean ablation (Wang et al. 2023, §3.1, average over other texts instead)."""

    op = "head"
    title = say("head off")
    about = say("An attention head writes nothing, or at every position its mean over the text's tokens.")
    example = Example({"side": "cross", "layer": 3, "head": 1})

    set: Literal["zero", "mean"] = key(
        say("zero, or the mean over the tokens of the unchanged run"), default="zero"
    )

    def edit_at(self, building: Building, place: Place) -> None:
        if self.set == "zero":
            self.add(building, place, "z", torch.zeros_like)
            return
        mean, heads = building.measured(f"{place.attention_path}.z", mean_over_tokens), self.heads(place)
        self.add(building, place, "z", lambda z: mean()[:, heads].to(z).expand_as(z))


@checked
class SetAttention(HeadChange):
    """Cells of a pattern. With `renorm` the row sums to 1 again: beside a cell the other weights are scaled by
    (1 - value) / their sum (where they are all 0 they stay so), a row is divided by its sum."""

    op = "attn"
    title = say("one attention weight set")
    about = say(
        "A query gives one key another weight, or all keys the weights of a row; the row sums to 1 again."
    )
    example = Example({"side": "cross", "layer": 3, "head": "*", "q": 1, "k": 8, "value": 1})

    q: All | int = key(say('the position of the query, from 0; "*" all'), ge=0)
    k: int | None = key(say("the position of the key"), default=None, ge=0)
    value: float | None = key(say("the weight that `k` gets, 0 to 1"), default=None, ge=0)
    row: tuple[float, ...] | None = key(
        say(
            "in the place of `k` and `value`: the weights of all keys, in order; those it does not reach get 0, "
            "as do a decoder's keys after the query"
        ),
        default=None,
        ge=0,
    )
    renorm: bool = key(say("whether the row is made to sum to 1 again"), default=True)

    def __post_init__(self) -> None:
        if (self.row is None) == (self.k is None) or (self.k is None) != (self.value is None):
            raise CutawayError("expected either `k` and `value` (a cell) or `row` (all keys)")
        if self.renorm and self.value is not None and self.value > 1:
            raise CutawayError(
                "value is {value}, expected 0 to 1 where the row is renormalised", value=self.value
            )

    def check(self, building: Building) -> None:
        super().check(building)
        for side in self.sides(building):
            building.check_position("q", self.q, side)
            building.check_position("k", self.k, "encoder" if side == "cross" else side)
            query = None if self.q == "*" else self.q
            if side == "decoder" and self.k is not None and query is not None and self.k > query:
                raise CutawayError(
                    "key {k} comes after query {q}, and a decoder does not see later tokens; "
                    "choose a key at or before the query",
                    k=self.k,
                    q=query,
                )
            if self.row is not None:
                _check_row(building, "row", self.row, side, query)

    def edit_at(self, building: Building, place: Place) -> None:
        clock, causal = building.clocks[place.side], place.side == "decoder"
        self.add(building, place, "pattern", lambda p: self._cells(p, clock.positions(p.device), causal))

    def _cells(self, pattern: Tensor, queries: Tensor, causal: bool) -> Tensor:
        """pattern (B, h, T, S) of queries at positions (T,)."""
        changed = pattern.clone()
        rows = queries >= 0 if self.q == "*" else queries == self.q
        if self.row is not None:
            given = _row(self.row, pattern).expand(int(rows.sum()), -1)  # (r, S)
            if causal:
                keys = torch.arange(given.shape[-1], device=given.device)
                given = given.masked_fill(keys > queries[rows, None], 0.0)
            changed[:, :, rows] = _summing_to_one(given) if self.renorm else given
            return changed
        assert self.k is not None and self.value is not None, "checked when it was made"
        if causal:
            rows = rows & (queries >= self.k)
        chosen = changed[:, :, rows]  # (B, h, r, S), a copy
        if chosen.numel():
            if self.renorm:
                chosen[..., self.k] = 0.0
                chosen = _summing_to_one(chosen, 1 - self.value)
            chosen[..., self.k] = self.value
            changed[:, :, rows] = chosen
        return changed


@checked
class SetPattern(HeadChange):
    """A whole pattern: `identity` and `previous` put all weight on the token itself, or on the one before it (the
    first: on itself), `argmax` on the strongest key. Rows are used as given unless `renorm`."""

    op = "pattern"
    title = say("attention pattern replaced")
    about = say("A head weighs all keys alike, or one key only, or as given rows say.")
    example = Example({"side": "cross", "layer": "*", "head": "*", "kind": "uniform"})

    kind: Literal["uniform", "identity", "previous", "argmax", "given"] = key(
        say(
            "uniform: every key in sight weighs the same; identity, previous: all weight on the token itself, or on "
            "the one before it; argmax: on the strongest key; given: `rows`"
        )
    )
    rows: tuple[tuple[float, ...], ...] | None = key(
        say(
            "kind given: for each query from position 0 on its keys' weights, missing ones 0; later queries keep theirs"
        ),
        default=None,
        ge=0,
    )
    renorm: bool = key(say("kind given: whether a row is divided by its sum"), default=False)

    def __post_init__(self) -> None:
        if self.renorm and self.kind != "given":
            raise CutawayError(
                "kind is {kind!r}, whose rows sum to 1: `renorm` belongs to kind 'given'", kind=self.kind
            )
        if (self.kind == "given") != (self.rows is not None):
            raise CutawayError(
                "kind is {kind!r}: `rows` belongs to kind 'given', and only there", kind=self.kind
            )

    def check(self, building: Building) -> None:
        super().check(building)
        for side in self.sides(building):
            if side == "cross" and self.kind in ("identity", "previous"):
                raise CutawayError(
                    "kind is {kind!r}, but in cross-attention queries and keys are different texts; use uniform, "
                    "argmax or given",
                    kind=self.kind,
                )
            for query, row in enumerate(self.rows or ()):
                _check_row(building, f"rows[{query}]", row, side, query)

    def edit_at(self, building: Building, place: Place) -> None:
        clock, heads = building.clocks[place.side], self.heads(place)
        masked = building.keep(f"{place.attention_path}.masked") if self.kind == "uniform" else None

        def edited(pattern: Tensor) -> Tensor:
            queries = clock.positions(pattern.device)
            match self.kind:
                case "uniform":
                    assert masked is not None
                    visible = masked()[:, heads] > -math.inf
                    return visible.to(pattern.dtype) / visible.sum(dim=-1, keepdim=True).clamp(min=1)
                case "identity":
                    return _on_one(pattern, queries)
                case "previous":
                    return _on_one(pattern, (queries - 1).clamp(min=0))
                # the first of equal ones; a query that sees no key stays blind
                case "argmax":
                    best = pattern.max(dim=-1, keepdim=True)
                    seen = (best.values > 0).to(pattern.dtype)
                    return torch.zeros_like(pattern).scatter_(-1, best.indices, seen)
                case "given":
                    changed, rows = pattern.clone(), self.rows or ()
                    for t, query in enumerate(queries.tolist()):
                        if query < len(rows):
                            row = _row(rows[query], pattern)
                            changed[:, :, t] = _summing_to_one(row) if self.renorm else row
                    return changed

        self.add(building, place, "pattern", edited)


@checked
class NoScale(BlockChange):
    """Vaswani et al. 2017, §3.2.1, tell why the scale is there."""

    op = "scale"
    title = say("no 1/√d")
    about = say("Scores q·k enter the softmax without the division by √d.")
    example = Example({"side": "decoder"})
    allowed = SIDES
    default_side = "*"

    side: Sides | None = key(ANY_SIDE, default=None)
    layer: All | int = key(LAYER, default="*")
    set: Literal["none"] = key(ONLY, default="none")

    def check(self, building: Building) -> None:
        if any(place.attention.scale == 1.0 for place in self.places(building)):
            raise CutawayError(
                "this model does not scale its scores (its attention scale is 1), so there is no scale to take away"
            )

    def edit_at(self, building: Building, place: Place) -> None:
        building.pass_on(f"{place.attention_path}.scores", f"{place.attention_path}.scaled")


@checked
class SetMask(BlockChange):
    """A sliding window and padding stay."""

    op = "mask"
    title = say("what is in sight")
    about = say(
        "A decoder's tokens also see those after them (open), or an encoder's see none of those (closed)."
    )
    example = Example({"set": "closed"})
    turn = 2  # a change of positions works on what is in sight

    side: Sides | None = key(say("`decoder` for open, `encoder` for closed; need not be given"), default=None)
    layer: All | int = key(LAYER, default="*")
    set: Literal["open", "closed"] = key(
        say("open: a decoder without its mask; closed: an encoder with a decoder's")
    )

    def places(self, building: Building) -> list[Place]:
        side: Side = "decoder" if self.set == "open" else "encoder"
        return building.places(self.side or side, self.layer, (side,))

    def edit_at(self, building: Building, place: Place) -> None:
        path, relative = place.attention_path, place.stack.relative
        scaled = building.keep(f"{path}.scaled")

        def edited(masked: Tensor) -> Tensor:  # (B, H, T, S)
            n_queries, n_keys = masked.shape[-2:]
            keys = torch.arange(n_keys, device=masked.device)
            later = keys > keys[n_keys - n_queries :, None]
            if self.set == "closed":
                return masked.masked_fill(later, -math.inf)
            bias = None if relative is None else relative(n_queries, n_keys)
            return torch.where(later, biased(place, scaled(), bias), masked)

        building.add(f"{path}.masked", edited)

    @property
    def caveat(self) -> Phrase | None:
        if self.set == "closed":
            return None
        return say(
            "With the mask open, a token sees itself and those after it here, where the whole text is given. What "
            "the model writes it writes word by word: there the mask can only open what stands in the prompt."
        )


def biased(place: Place, scaled: Tensor, bias: Tensor | None) -> Tensor:
    """What an attention makes of its scaled scores (B, H, T, S) but for the mask: capped, with a bias of positions."""
    cap = place.attention.softcap
    capped = scaled if cap is None else soft_cap(scaled, cap)
    return capped if bias is None else capped + bias


def _check_row(building: Building, name: str, row: Sequence[float], side: Side, query: int | None) -> None:
    """A row of weights must not reach beyond the keys, nor in a decoder beyond the query."""
    most = building.config.max_len if side == "decoder" else building.length("encoder")
    if len(row) > most:
        raise CutawayError(
            "{name} has {count} weights, expected at most {most}, one a key",
            name=name,
            count=len(row),
            most=most,
        )
    if side == "decoder" and query is not None and any(row[query + 1 :]):
        raise CutawayError(
            "{name} gives weight to keys after query {query}, which a decoder does not see; set those weights to 0",
            name=name,
            query=query,
        )


def _row(weights: Sequence[float], pattern: Tensor) -> Tensor:
    """Weights of keys as a row (S,) of a pattern; what goes beyond its keys is left out."""
    row = pattern.new_zeros(pattern.shape[-1])
    given = pattern.new_tensor(weights[: len(row)])
    row[: len(given)] = given
    return row


def _summing_to_one(rows: Tensor, total: float = 1.0) -> Tensor:
    """Rows (…, S) scaled to sum to `total`; one that is all 0 stays so."""
    sums = rows.sum(dim=-1, keepdim=True)
    return torch.where(sums > 0, rows * (total / sums.clamp(min=1e-30)), rows)


def _on_one(pattern: Tensor, keys: Tensor) -> Tensor:
    """All weight of query t on key number `keys[t]`."""
    changed = torch.zeros_like(pattern)
    changed[:, :, torch.arange(len(keys), device=keys.device), keys] = 1.0
    return changed
