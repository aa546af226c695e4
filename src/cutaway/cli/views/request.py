"""What a sub-view of `cutaway inspect` is asked, and what it answers."""

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cutaway.errors import CutawayError

if TYPE_CHECKING:
    from cutaway.checkpoint.folder import Loaded
    from cutaway.inspection.runs.run import Run
    from cutaway.inspection.runs.sides import Side
    from cutaway.page.blocks import Page


class View(StrEnum):
    """What to look at."""

    ALIGN = "align"
    ANALOGY = "analogy"
    ATTENTION = "attention"
    DIFF = "diff"
    DRIFT = "drift"
    EXPERTS = "experts"
    EXPLAIN = "explain"
    GRADIENTS = "gradients"
    LENS = "lens"
    LOGIT = "logit"
    NEIGHBOURS = "neighbours"
    NEURONS = "neurons"
    OVERVIEW = "overview"
    PROJECTION = "projection"
    RANK = "rank"
    ROLLOUT = "rollout"
    SIMILARITY = "similarity"
    SVD = "svd"
    SWEEP = "sweep"
    VALUES = "values"


ABOUT: dict[View, tuple[str, str]] = {  # what each answers, in English and Chinese
    View.OVERVIEW: ("the text on one screen", "一屏看完这段文字"),
    View.ALIGN: ("where a translation looked, and what it depends on", "译文看向哪里，依赖什么"),
    View.ATTENTION: ("what heads weigh and measure", "各头的权重与测量值"),
    View.VALUES: ("attention times the length of what it weighs", "注意力乘以值向量的长度"),
    View.ROLLOUT: ("attention multiplied over all layers", "各层注意力连乘"),
    View.LENS: ("what each layer would say", "每一层会说什么"),
    View.NEURONS: ("which neurons write most, and what they promote", "哪些神经元写得最多，推动什么"),
    View.EXPERTS: ("which expert saw which token", "哪个专家处理哪个词块"),
    View.NEIGHBOURS: ("the nearest tokens", "最近的词块"),
    View.ANALOGY: ("a - b + c", "a - b + c 类比"),
    View.PROJECTION: ("tokens in a plane", "词块的平面图"),
    View.DRIFT: ("one word in two texts, layer by layer", "同一个词在两段文字里，逐层看"),
    View.SVD: ("singular values of a matrix", "矩阵的奇异值"),
    View.RANK: ("what a lower rank of a matrix costs", "降低矩阵的秩有何代价"),
    View.LOGIT: ("what wrote a logit", "一个 logit 由谁写成"),
    View.GRADIENTS: ("which tokens a probability depends on", "概率依赖哪些词块"),
    View.SIMILARITY: ("why two texts are similar", "两段文字为何相似"),
    View.EXPLAIN: ("one number down to its arithmetic", "一个数怎样算出来"),
    View.SWEEP: ("every head off in turn", "逐个关掉每个头"),
    View.DIFF: ("the text without and with changes", "改动前后对比"),
}


class SideName(StrEnum):
    """A stack, or the decoder's attention to the source."""

    ENCODER = "encoder"
    DECODER = "decoder"
    CROSS = "cross"


@dataclass(frozen=True)
class Options:
    """What was given beside model and text; None and empty where it was not."""

    layer: int | None = None
    head: int | None = None
    side: SideName | None = None
    target: str | None = None
    to: str | None = None
    top: int | None = None
    change: tuple[str, ...] = ()
    name: str | None = None
    index: str | None = None
    other: str | None = None
    against: str | None = None
    ranks: str | None = None
    gold: str | None = None

    @property
    def given(self) -> list[str]:
        """Names of the options that were given, as the command line spells them."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return [name for name, value in values.items() if value is not None and value != ()]


@dataclass(frozen=True)
class Request:
    """A model, a text and the options of one view. `complete`: the answer goes into a file or JSON as a whole, so that
    what the screen leaves out is wanted too."""

    loaded: "Loaded"
    text: str
    options: Options
    complete: bool

    def with_text(self, text: str) -> "Request":
        """The same asked of another text, which goes its own way through the model."""
        return dataclasses.replace(self, text=text, options=dataclasses.replace(self.options, target=None))

    def run(self) -> "Run":
        """The text on its way through the model. A decoder-only model reads all of it and writes one token more."""
        from cutaway.inspection.runs.run import run

        family = self.loaded.config.family
        if family != "encoder-decoder" and (self.options.target is not None or self.options.to is not None):
            raise CutawayError(
                "{name} is {family}: it writes no translation; leave --target and --to out",
                name=self.loaded.name,
                family=family,
            )
        return run(
            self.loaded,
            self.text,
            target=self.options.target,
            to=self.options.to,
            max_new_tokens=1 if family == "decoder-only" and self.loaded.config.head != "none" else 0,
        )

    def top(self, otherwise: int) -> int:
        """How many of something to show. CutawayError below 1."""
        top = otherwise if self.options.top is None else self.options.top
        if top < 1:
            raise CutawayError("--top is {top}, expected at least 1", top=top)
        return top

    @property
    def side(self) -> "Side | None":
        """The side that was given. CutawayError for one that the model has not."""
        from cutaway.inspection.runs.sides import SIDES, check_side

        given = self.options.side
        if given is None:
            return None
        check_side(self.loaded.model, given.value)
        return next(side for side in SIDES if side == given)

    @property
    def index(self) -> tuple[int, ...]:
        """The numbers of --index; empty where it was not given. CutawayError where they are none."""
        return _numbers("index", self.options.index, "0,3,-1")

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of --ranks; empty where it was not given. CutawayError where they are none."""
        return _numbers("ranks", self.options.ranks, "1,4,16")

    def position(self) -> int | None:
        """--index as the place of one token; None where it was not given. CutawayError for several numbers."""
        index = self.index
        if len(index) > 1:
            raise CutawayError(
                "--index is {index!r}, expected one number: a token's place", index=self.options.index
            )
        return index[0] if index else None

    def place(self, run: "Run") -> int:
        """--index; where it was not given, what a reader asks about first (`usual_position`)."""
        from cutaway.inspection.runs.forced import usual_position

        given = self.position()
        return usual_position(run) if given is None else given


def _numbers(option: str, given: str | None, example: str) -> tuple[int, ...]:
    if given is None:
        return ()
    try:
        return tuple(int(number) for number in given.split(","))
    except ValueError:
        raise CutawayError(
            "--{option} is {given!r}, expected whole numbers with commas between them, such as {example}",
            option=option,
            given=given,
            example=example,
        ) from None


@dataclass(frozen=True)
class Answer:
    """A result of the library as --json and --save write it, and its page for a reader."""

    result: object
    page: "Page"
