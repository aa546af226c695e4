"""The list of changes: what may be done to a model's forward pass, as frozen values and as JSON.

    {"op": "head", "side": "decoder", "layer": 3, "head": 5, "set": "zero"}

One object is one change; `op` names its kind, the other keys are the fields of the class here. The same list serves
Python, JSON and the command line (`reading.read_changes`). Order is meaning:
where two changes meet in the same value, the later one works on what the earlier one left; of two `pos` or two `mask`
changes of the same layer the later one counts. `"*"` stands for all layers, heads, queries or tokens.

`side` is "encoder", "decoder" or "cross" (the decoder's attention to the source); JSON may shorten the first two to
"enc" and "dec". It may be left out where the model has only
one stack; `scale` and `pos` mean all sides without it. Positions count the tokens of the encoder's or the decoder's
input from 0, start tokens included, in a forward pass and in cached decoding alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from cutaway.inspection.runs.sides import Side

Sides = Literal["encoder", "decoder", "cross", "*"]
All = Literal["*"]
Token = int | str  # an id, or a piece as the vocabulary spells it


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
    theirs. Rows are used as given, not normalised."""

    op: ClassVar[str] = "pattern"
    side: Sides | None = None
    layer: All | int
    head: All | int
    kind: Literal["uniform", "identity", "previous", "argmax", "given"]
    rows: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
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


@dataclass(frozen=True, kw_only=True)
class SkipLayer:
    """A block passes its input on as it came."""

    op: ClassVar[str] = "layer"
    side: Sides | None = None
    layer: All | int
    set: Literal["skip"] = "skip"


@dataclass(frozen=True, kw_only=True)
class SkipAttention:
    """A block's attention sublayer, its norm included, passes its input on as it came; side "cross": the attention to
    the source."""

    op: ClassVar[str] = "attention"
    side: Sides | None = None
    layer: All | int
    set: Literal["skip"] = "skip"


@dataclass(frozen=True, kw_only=True)
class SkipFeedForward:
    """A block's feed-forward sublayer (or its experts), its norm included, passes its input on as it came."""

    op: ClassVar[str] = "ffn"
    side: Sides | None = None
    layer: All | int
    set: Literal["skip"] = "skip"


@dataclass(frozen=True, kw_only=True)
class SetNeuron:
    """Neuron `n` of a feed-forward network, after activation and gate: set to `value`, or multiplied by `scale`."""

    op: ClassVar[str] = "neuron"
    side: Sides | None = None
    layer: All | int
    n: int
    token: All | int = "*"
    value: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.scale is None):
            raise ValueError("expected either value or scale")
        for name, number in (("value", self.value), ("scale", self.scale)):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"{name} is {number}, expected a finite number")


@dataclass(frozen=True, kw_only=True)
class SetExperts:
    """`ban`: the router's scores of these experts become -inf before its softmax, so others take their place and their
    weight. `force`: these are among the token's experts, in the place of the last ones, with the weights that the
    router's softmax gives them."""

    op: ClassVar[str] = "expert"
    side: Sides | None = None
    layer: All | int
    token: All | int = "*"
    ban: tuple[int, ...] = ()
    force: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.ban) == bool(self.force):
            raise ValueError("expected either ban or force, with the numbers of experts")
        if len({*self.ban, *self.force}) != len(self.ban) + len(self.force):
            raise ValueError("an expert is named twice")


@dataclass(frozen=True, kw_only=True)
class PatchResidual:
    """The residual stream leaving block `layer` at `token` becomes that of another run (`from` in JSON) at the same
    layer and its `from_token`, the same token unless given: activation patching (Meng et al. 2022, §2.1)."""

    op: ClassVar[str] = "resid"
    side: Side | None = None
    layer: int
    token: int
    from_run: str
    from_token: int | None = None


@dataclass(frozen=True, kw_only=True)
class SetEmbedding:
    """The embedding of the token at `token` (scaled, before positions are added): that of `id` instead, or moved by
    `amount` times the step from the first to the second token of `along`."""

    op: ClassVar[str] = "embedding"
    side: Side | None = None
    token: int
    id: Token | None = None
    along: tuple[Token, ...] | None = None
    amount: float = 1.0

    def __post_init__(self) -> None:
        if (self.id is None) == (self.along is None):
            raise ValueError("expected either id or along")
        if self.along is not None and len(self.along) != 2:
            raise ValueError(f"along has {len(self.along)} tokens, expected two: from, to")
        if not math.isfinite(self.amount):
            raise ValueError(f"amount is {self.amount}, expected a finite number")


@dataclass(frozen=True, kw_only=True)
class NoNorm:
    """A norm gives back what it was given, scale and shift left out with it.

    `part` names the sublayer that it belongs to, or "final", the stack's last norm. Post-norm: the norm of the sum,
    x + sublayer(x). Sandwich: both norms of the sublayer, before it and after it.
    """

    op: ClassVar[str] = "norm"
    side: Sides | None = None
    layer: All | int = "*"
    part: Literal["attention", "cross", "ffn", "final", "*"] = "*"
    set: Literal["off"] = "off"


@dataclass(frozen=True, kw_only=True)
class SetOutput:
    """What a position may write: `ban` and everything but `force` get the logit -inf. `at` counts the tokens that the
    model writes from the first position of its decoder (or, encoder-only, its own positions): at `t` stands what
    follows the input token at `t`."""

    op: ClassVar[str] = "token"
    at: All | int = "*"
    ban: tuple[Token, ...] = ()
    force: Token | None = None

    def __post_init__(self) -> None:
        if bool(self.ban) == (self.force is not None):
            raise ValueError("expected either ban or force")
        if self.force is not None and self.at == "*":
            raise ValueError("force needs a position `at`")


Change = (
    HeadOff | SetAttention | SetPattern | NoScale | SetMask | SetPositions | SkipLayer | SkipAttention
    | SkipFeedForward | SetNeuron | SetExperts | PatchResidual | SetEmbedding | NoNorm | SetOutput
)  # fmt: skip

KINDS: tuple[type[Change], ...] = (
    HeadOff, SetAttention, SetPattern, NoScale, SetMask, SetPositions, SkipLayer, SkipAttention, SkipFeedForward,
    SetNeuron, SetExperts, PatchResidual, SetEmbedding, NoNorm, SetOutput,
)  # fmt: skip
OPS: dict[str, type[Change]] = {kind.op: kind for kind in KINDS}


def _check_weights(name: str, weights: Sequence[float]) -> None:
    for weight in weights:
        if not 0 <= weight < math.inf:
            raise ValueError(f"{name} has the weight {weight}, expected a finite number of 0 or more")
