"""What a kind of change is, and what its edits of taps are built with.

A kind of change is one class. Its fields are the keys of its JSON object, `title` names it for a reader, `about` says
what it does, `example` is one to try, `check` refuses a model that cannot be given it, and `edit` adds what it does to
the values of taps.
"""

# Shapes: B batch, T tokens, D width, H heads, E head width.

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from cutaway.config import checked, key
from cutaway.errors import CutawayError, about, nearest
from cutaway.inspection.runs import Run, stacks, token_id
from cutaway.inspection.wiring import STACKS, All, Place, Side, places, sides, stack_name
from cutaway.tap import Edit
from cutaway.words import Phrase, listed, names_of, say
from cutaway.zoo import TRANSLATOR

Token = int | str  # an id, or a text that is one token: see `text.tokens.named_token.find_token`
Sides = Literal["encoder", "decoder", "cross", "*"]

SIDE = say("may be left out where a model has but one")
ANY_SIDE = say("all unless given")
LAYER = say('the block, from 0; -1 is the last, "*" all')
ONLY = say("the only setting; need not be given")
POSITION = say('the position in the text, from 0; "*" all')


class ChangeError(CutawayError):
    """A change that is none, or that this model or run cannot be given."""

    kind = "bad_change"


@contextmanager
def errors_of_changes() -> Iterator[None]:
    """Errors of what is done within are told as those of changes."""
    try:
        yield
    except CutawayError as error:
        raise ChangeError(error.message) from error


@dataclass(frozen=True)
class Example:
    """A change to try, without its `op`, on a bundled model (None: none has what it is about) and a text; `other` is
    the text that it takes from."""

    change: Mapping[str, object]
    text: str = "他昨天买了一本新书。"
    model: str | None = TRANSLATOR
    other: str | None = None


@dataclass(frozen=True)
class Change(ABC):
    """One change. Where the edits of several meet in the same tap, those of an earlier `turn` come first, then those of
    an earlier place in the list."""

    op: ClassVar[str]
    title: ClassVar[Phrase]
    about: ClassVar[Phrase]
    example: ClassVar[Example]
    allowed: ClassVar[tuple[Side, ...]] = STACKS  # what `side` may be, where there is such a key
    turn: ClassVar[int] = 3

    def check(self, building: "Building") -> None:
        """CutawayError with the reason where this model or this run cannot be given the change."""
        return

    @abstractmethod
    def edit(self, building: "Building") -> None:
        """Add the edits."""

    @property
    def source(self) -> str | None:
        """The name of the other run that the change takes from."""
        return None

    @property
    def caveat(self) -> Phrase | None:
        """What a reader of its effects must know."""
        return None


@checked
class BlockChange(Change):
    """A change of some blocks."""

    default_side: ClassVar[Sides | None] = None

    side: Sides | None = key(SIDE, default=None)
    layer: All | int = key(LAYER)

    def sides(self, building: "Building") -> list[Side]:
        return building.sides(self.side or self.default_side, self.allowed)

    def places(self, building: "Building") -> list[Place]:
        return building.places(self.side or self.default_side, self.layer, self.allowed)

    def edit(self, building: "Building") -> None:
        for place in self.places(building):
            self.edit_at(building, place)

    @abstractmethod
    def edit_at(self, building: "Building", place: Place) -> None:
        """Add the edits of one block."""


class Clock:
    """Which positions the present call computes: all of a forward pass, or those that a step of decoding adds."""

    def __init__(self) -> None:
        self.start = self.end = 0

    def restart(self, n_tokens: int) -> None:
        """A new text: an encoder always reads from the first token on."""
        self.start, self.end = 0, n_tokens

    def advance(self, n_tokens: int) -> None:
        """A call of a decoder, which reads on."""
        if self.end and n_tokens > 1:
            raise CutawayError(
                "these edits have served a forward pass or a decoding already; make them anew for the next one"
            )
        self.start, self.end = self.end, self.end + n_tokens

    def positions(self, device: torch.device) -> Tensor:
        """(T,) positions of this call's tokens."""
        return torch.arange(self.start, self.end, device=device)

    def rows(self, token: All | int, n_rows: int) -> slice:
        """Where `token` stands in this call's last `n_rows` positions; an empty slice where it does not."""
        if token == "*":
            return slice(None)
        row = token - (self.end - n_rows)
        return slice(row, row + 1) if 0 <= row < n_rows else slice(0, 0)


class Measured:
    """Values of an unchanged run at its taps; each is measured once, all that are wanted in one pass."""

    def __init__(self, run: Run):
        self._run = run
        self._wanted: dict[str, Edit] = {}
        self._values: dict[str, Tensor] = {}

    def want(self, tap: str, reduce: Edit) -> Callable[[], Tensor]:
        if tap not in self._values:
            self._wanted[tap] = reduce
        return lambda: self._values[tap]

    def measure(self) -> None:
        if self._wanted:
            _, trace = self._run.forward(self._wanted)
            self._values.update({tap: trace[tap] for tap in self._wanted})
            self._wanted.clear()


class Building:
    """The edits of a list of changes to one run, under construction."""

    def __init__(self, run: Run, runs: Mapping[str, Run], changes: Sequence[Change]):
        self.run, self.runs, self.changes = run, runs, changes
        self.model, self.config = run.model, run.model.config
        self.stacks = stacks(run)
        self._edits: dict[str, list[Edit]] = {}
        self._keeping: set[str] = set()
        self._kept: dict[str, Tensor] = {}
        self._measured: list[Measured] = []
        encoder, decoder = Clock(), Clock()
        self.clocks: dict[Side, Clock] = {"encoder": encoder, "decoder": decoder, "cross": decoder}

        def read(embedded: Tensor) -> Tensor:  # (B, T, D)
            encoder.restart(embedded.shape[1])
            decoder.restart(0)
            return embedded

        def written(embedded: Tensor) -> Tensor:
            decoder.advance(embedded.shape[1])
            return embedded

        for side, stack in self.stacks.items():
            self.add(f"{stack.embedding_name}.embed", read if side == "encoder" else written)

    # Edits by the full name of their tap. Several of one tap follow one another; what is kept is what they leave.

    def add(self, name: str, edit: Edit) -> None:
        self._edits.setdefault(name, []).append(edit)

    def add_at(self, name: str, side: Side, token: All | int, edit: Edit) -> None:
        """An edit of one position of (B, T, …), or of all."""

        def edited(x: Tensor) -> Tensor:
            rows = self.clocks[side].rows(token, x.shape[1])
            changed = x.clone()
            changed[:, rows] = edit(x[:, rows])
            return changed

        self.add(name, edited)

    def keep(self, name: str) -> Callable[[], Tensor]:
        """What the model goes on with at that tap in the present call, for edits of taps after it."""
        self._keeping.add(name)
        self._edits.setdefault(name, [])
        return lambda: self._kept[name]

    def pass_on(self, before: str, after: str) -> None:
        """Let the model go on at one tap with what it had at an earlier one."""
        value = self.keep(before)
        self.add(after, lambda _: value())

    def measured(self, name: str, reduce: Edit, run: Run | None = None) -> Callable[[], Tensor]:
        """What `reduce` makes of a tap of this run, unchanged, or of another."""
        found = (run or self.run).kept(Measured)
        self._measured.append(found)
        return found.want(name, reduce)

    def built(self) -> dict[str, Edit]:
        """All edits, after a pass for what is to be measured."""
        for each in self._measured:
            each.measure()
        return {name: partial(self._all_of, name) for name in self._edits}

    def _all_of(self, name: str, x: Tensor) -> Tensor:
        """The edits of a tap, one after the other."""
        for edit in self._edits[name]:
            x = edit(x)
        if name in self._keeping:
            self._kept[name] = x
        return x

    # What a change may name in this run. CutawayError for what is not there.

    def sides(self, given: Sides | None, allowed: Sequence[Side]) -> list[Side]:
        """The sides that a change means; "*" is all of `allowed` that this model has."""
        existing, family = sides(self.model), self.config.family
        there: list[Side] = [each for each in allowed if each in existing]
        if not there:
            raise CutawayError(
                "this change is for side {allowed}, but this {family} model has only {existing}; name one that it has",
                allowed=listed(allowed, say(" or ")),
                family=family,
                existing=names_of(existing),
            )
        named = given or (there[0] if len(existing) == 1 else None)
        if named is None:
            raise CutawayError("key 'side' is missing; this model has {there}", there=names_of(there))
        found: list[Side] = [each for each in there if named in (each, "*")]
        if not found:
            raise CutawayError(
                "side is {named!r}{hint}, expected one of {there} for this change to this {family} model",
                named=named,
                hint=nearest(named, there),
                there=names_of(there),
                family=family,
            )
        return found

    def places(self, given: Sides | None, layer: All | int, allowed: Sequence[Side]) -> list[Place]:
        """The blocks that a change means."""
        numbers = None if layer == "*" else layer
        return [place for side in self.sides(given, allowed) for place in places(self.model, side, numbers)]

    def length(self, side: Side) -> int:
        """Tokens of the run on that side."""
        return len(self.stacks[stack_name(side)].tokens)

    def check_position(self, name: str, position: All | int | None, side: Side) -> None:
        """A place among the tokens: of the source, or up to the model's limit, since decoding writes on."""
        grows = side != "encoder"
        most = self.config.max_len if grows else self.length(side)
        if isinstance(position, int) and not 0 <= position < most:
            raise CutawayError(
                "{name} is {position}, expected 0 to {last} ({of})",
                name=name,
                position=position,
                last=most - 1,
                of=say("this model's positions") if grows else say("the text's tokens"),
            )

    def id(self, name: str, token: Token, side: Side) -> int:
        """`token_id`, with `name`, what the token is in the change, in front of its messages."""
        with about(name):
            return token_id(self.run, token, side)


def as_it_is(x: Tensor) -> Tensor:
    """The edit that changes nothing: the tap is there, and what it names is computed the way that edits need."""
    return x


def mean_over_tokens(z: Tensor) -> Tensor:
    """A reducer of heads' outputs (1, H, T, E) -> (1, H, 1, E)."""
    return z.mean(dim=2, keepdim=True)


def without(scores: Tensor, ids: Sequence[int]) -> Tensor:
    """Logits (B, T, V), or a router's scores (B, T, X): -inf for these ids."""
    return scores.index_fill(-1, torch.tensor(ids, device=scores.device), -torch.inf)
