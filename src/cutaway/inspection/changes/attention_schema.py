"""Changes within attention, and of the positions it is told. One class is one kind, see `changes.schema`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

Sides = Literal["encoder", "decoder", "cross", "*"]
All = Literal["*"]


@dataclass(frozen=True, kw_only=True)
class HeadOff:
    """An attention head's output z (T, E) becomes 0, or at every position the mean over the tokens of the unchanged
    run (mean ablation; Wang et al. 2023, §3.1, average over other texts instead)."""

    op: ClassVar[str] = "head"
    side: Sides | None = None
    layer: All | int
    head: All | int
    set: Literal["zero", "mean"] = "zero"


@dataclass(frozen=True, kw_only=True)
class SetAttention:
    """Cells of a pattern: query `q` gives key `k` the weight `value`, or all keys the weights of `row`, in their order
    (keys that it does not reach get 0, and so do a decoder's keys after the query).

    With `renorm` the row sums to 1 again: beside a cell the other weights are scaled by (1 - value) / their sum (where
    they are all 0 they stay so), a row is divided by its sum.
    """

    op: ClassVar[str] = "attn"
    side: Sides | None = None
    layer: All | int
    head: All | int
    q: All | int
    k: int | None = None
    value: float | None = None
    row: tuple[float, ...] | None = None
    renorm: bool = True

    def __post_init__(self) -> None:
        if (self.row is None) == (self.k is None) or (self.k is None) != (self.value is None):
            raise ValueError("expected either k and value (a cell) or row (all keys)")
        weights = self.row if self.row is not None else (self.value or 0.0,)
        _check_weights("row" if self.row is not None else "value", weights)
        if self.renorm and self.value is not None and self.value > 1:
            raise ValueError(f"value is {self.value}, expected 0 to 1 where the row is renormalised")


@dataclass(frozen=True, kw_only=True)
class SetPattern:
    """A whole pattern. `uniform`: every key that the mask shows weighs the same. `identity`, `previous`: all weight on
    the token itself, or on the one before it (the first: on itself). `argmax`: all weight on the strongest key.
    `given`: `rows`, one a query from position 0, each with its keys' weights (missing ones are 0); later queries keep
    theirs. Rows are used as given, or with `renorm` divided by their sum."""

    op: ClassVar[str] = "pattern"
    side: Sides | None = None
    layer: All | int
    head: All | int
    kind: Literal["uniform", "identity", "previous", "argmax", "given"]
    rows: tuple[tuple[float, ...], ...] | None = None
    renorm: bool = False

    def __post_init__(self) -> None:
        if self.renorm and self.kind != "given":
            raise ValueError(f"kind is {self.kind!r}, whose rows sum to 1: `renorm` belongs to kind 'given'")
        if (self.kind == "given") != (self.rows is not None):
            raise ValueError(f"kind is {self.kind!r}: `rows` belongs to kind 'given', and only there")
        for i, row in enumerate(self.rows or ()):
            _check_weights(f"rows[{i}]", row)


@dataclass(frozen=True, kw_only=True)
class NoScale:
    """Scores q·k enter the softmax as they are, without the division by √E (Vaswani et al. 2017, §3.2.1)."""

    op: ClassVar[str] = "scale"
    side: Sides | None = None
    layer: All | int = "*"
    set: Literal["none"] = "none"


@dataclass(frozen=True, kw_only=True)
class SetMask:
    """`open`: a decoder's queries also see the keys after them (in decoding step by step there are none but within the
    prompt). `closed`: an encoder's queries see no key after them. A sliding window and padding stay."""

    op: ClassVar[str] = "mask"
    side: Sides | None = None
    layer: All | int = "*"
    set: Literal["open", "closed"]


@dataclass(frozen=True, kw_only=True)
class SetPositions:
    """What the model is told about positions: nothing, all positions `by` further on, or (`shuffle`) a permutation
    drawn with `seed` of the run's positions; those that decoding adds keep theirs.

    Added vectors are replaced (none: 0). Rotary queries and keys are rotated by other angles (none: those of position
    0). Relative and ALiBi bias is left out or taken at the permuted positions; a shift is no change to them.
    """

    op: ClassVar[str] = "pos"
    side: Sides | None = None
    set: Literal["none", "shift", "shuffle"]
    by: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for kind, name, value in (("shift", "by", self.by), ("shuffle", "seed", self.seed)):
            if (self.set == kind) != (value is not None):
                raise ValueError(f"set is {self.set!r}: `{name}` belongs to set {kind!r}, and only there")
        if (self.by or 0) < 0 or (self.seed or 0) < 0:
            raise ValueError(f"by is {self.by} and seed {self.seed}, expected 0 or more")


def _check_weights(name: str, weights: Sequence[float]) -> None:
    for weight in weights:
        if not 0 <= weight < math.inf:
            raise ValueError(f"{name} has the weight {weight}, expected a finite number of 0 or more")
