"""The list of changes: what may be done to a model's forward pass, as frozen values and as JSON.

    {"op": "head", "side": "decoder", "layer": 3, "head": 5, "set": "zero"}

One object is one change; `op` names its kind, the other keys are the fields of the class here. The same list serves
Python, JSON and the command line (`reading.read_changes`). Order is meaning:
where two changes meet in the same value, the later one works on what the earlier one left; of two `pos` or two `mask`
changes of the same layer the later one counts. `norm`, then `dropout` come first wherever they stand: they make the
values that the others change. `"*"` stands for all layers, heads, queries or tokens.

`side` is "encoder", "decoder" or "cross" (the decoder's attention to the source); JSON may shorten the first two to
"enc" and "dec". It may be left out where the model has only one stack; `scale`, `pos` and `dropout` mean all sides
without it. Positions count the tokens of the encoder's or the decoder's input from 0, start tokens included, in a
forward pass and in cached decoding alike. A run is one text without padding, so there is no change that shows padding.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from cutaway.inspection.changes.attention_schema import (
    All,
    HeadOff,
    NoScale,
    SetAttention,
    SetMask,
    SetPattern,
    SetPositions,
    Sides,
)
from cutaway.inspection.wiring import Side

Token = int | str  # an id, or a text that is one token: see `text.named_token.find_token`


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


@dataclass(frozen=True, kw_only=True)
class SetDropout:
    """Dropout as in training (Vaswani et al. 2017, §5.4), on: of what every sublayer writes, and of the vectors that
    enter the first block, each value is 0 with probability `rate`, else divided by 1 - rate. `rate` is the model's own
    unless given.

    Which values are 0 depends on `seed`, the place in the model and the token's position alone, so that a forward
    pass, cached decoding and all hypotheses of a beam meet the same ones; training draws others.
    """

    op: ClassVar[str] = "dropout"
    side: Sides | None = None
    seed: int
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, expected 0 or more")
        if self.rate is not None and not 0 < self.rate < 1:
            raise ValueError(f"rate is {self.rate}, expected a share between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class SetTemperature:
    """Every logit is divided by `value` before the softmax: above 1 the distribution is flatter, below 1 sharper. It
    counts in log-probabilities, sampling and beam search alike, and a temperature of sampling comes on top of it; the
    most probable token stays the same."""

    op: ClassVar[str] = "temperature"
    value: float

    def __post_init__(self) -> None:
        if not 0 < self.value < math.inf:
            raise ValueError(f"value is {self.value}, expected a finite number above 0")


Change = (
    HeadOff | SetAttention | SetPattern | NoScale | SetMask | SetPositions | SkipLayer | SkipAttention
    | SkipFeedForward | SetNeuron | SetExperts | PatchResidual | SetEmbedding | NoNorm | SetOutput | SetDropout
    | SetTemperature
)  # fmt: skip

KINDS: tuple[type[Change], ...] = (
    HeadOff, SetAttention, SetPattern, NoScale, SetMask, SetPositions, SkipLayer, SkipAttention, SkipFeedForward,
    SetNeuron, SetExperts, PatchResidual, SetEmbedding, NoNorm, SetOutput, SetDropout, SetTemperature,
)  # fmt: skip
OPS: dict[str, type[Change]] = {kind.op: kind for kind in KINDS}
