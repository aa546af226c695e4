"""Batches: what a model is trained on, in one shape for all makers.

Every maker is an endless iterator, deterministic in (seed, epoch); `state()` and `restore()` put it back to the exact
batch, in the middle of an epoch too.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar
from zlib import crc32

import numpy as np
from torch import Tensor

from cutaway.errors import CutawayError

IGNORED = -100  # label of a position that is not counted

Entry = TypeVar("Entry")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Batch:
    """Inputs by the model's argument names, and what it shall say.

    sequence to sequence: `source` (B,S), `source_mask` (B,S) True at real tokens (absent where nothing is padded),
    `target` (B,T) = decoder start, then the labels without their last. causal: `ids` (B,T) and, where a row holds
    several documents, `documents` (B,T). masked: `ids` (B,T), `mask` (B,T)."""

    inputs: dict[str, Tensor]
    labels: Tensor  # (B,T) int64, IGNORED where nothing is to be said
    index: Tensor  # (B,) int64, which examples these are (rows that hold several: the first)

    @property
    def tokens(self) -> int:
        """How many labels count."""
        return int((self.labels != IGNORED).sum())


class Batches(ABC, Generic[Entry]):
    """The common part of all makers: a plan of batches for each epoch, and a place in it."""

    def __init__(self, seed: int, **settings: object) -> None:
        """`settings` are what the plan depends on; `restore` refuses a state made with others."""
        self._settings: dict[str, object] = {"seed": seed, **settings}
        self._seed = seed
        self._epoch = 0
        self._position = 0
        self._entries: Sequence[Entry] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        entries = self._present()
        batch = self._make(entries[self._position])
        self._position += 1
        if self._position == len(entries):
            self._epoch, self._position, self._entries = self._epoch + 1, 0, None
        return batch

    def __len__(self) -> int:
        """Batches of the present epoch."""
        return len(self._present())

    def once(self) -> Iterator[Batch]:
        """One pass over the first epoch's batches; the place of the endless iteration stays."""
        for entry in self._plan(self._random(0)):
            yield self._make(entry)

    def state(self) -> dict[str, object]:
        """Where the next batch stands, JSON-able."""
        return {"epoch": self._epoch, "position": self._position, "settings": dict(self._settings)}

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on where `state()` was taken. CutawayError naming the setting that differs, if one does."""
        settings, epoch, position = state.get("settings"), state.get("epoch"), state.get("position")
        if not isinstance(settings, Mapping) or not isinstance(epoch, int) or not isinstance(position, int):
            raise CutawayError("state of the batches: expected epoch, position and settings")
        for name, value in self._settings.items():
            if settings.get(name) != value:
                raise CutawayError(
                    "state of the batches: {name} was {before!r}, now it is {now!r}; the same order needs "
                    "the same data and settings",
                    name=name,
                    before=settings.get(name),
                    now=value,
                )
        self._epoch, self._entries = epoch, None
        if not 0 <= position < len(self):
            raise CutawayError(
                "state of the batches: position {position}, expected 0 to {last}",
                position=position,
                last=len(self) - 1,
            )
        self._position = position

    def _present(self) -> Sequence[Entry]:
        if self._entries is None:
            self._entries = self._plan(self._random(self._epoch))
        return self._entries

    def _random(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, epoch])

    @abstractmethod
    def _plan(self, random: np.random.Generator) -> Sequence[Entry]:
        """The batches of one epoch in order; at least one."""

    @abstractmethod
    def _make(self, entry: Entry) -> Batch: ...


@dataclass(frozen=True)
class Cut:
    """One planned batch: which examples, and the grid they are laid in."""

    rows: np.ndarray
    source: int
    target: int


def cut_by_budget(
    rows: np.ndarray, source: np.ndarray, target: np.ndarray, budget: int, multiple: int, row_multiple: int
) -> list[Cut]:
    """Cut `rows`, ordered so that neighbours have nearly equal lengths, into batches of at most `budget` tokens,
    padding included (a single longer row makes a batch of its own). Lengths are rounded up to `multiple`, the number of
    rows down to `row_multiple` where there are that many. `source` and `target` are lengths in the order of `rows`."""
    wide, tall = (-(-lengths // multiple) * multiple for lengths in (source, target))
    cuts: list[Cut] = []
    start = 0
    while start < len(rows):
        inside = slice(start, start + budget // int(wide[start] + tall[start]))
        columns = np.maximum.accumulate(wide[inside]) + np.maximum.accumulate(tall[inside])
        fitting = columns * np.arange(1, len(columns) + 1) <= budget
        stop = start + max(1, int(fitting.sum()))
        if stop < len(rows) and stop - start > row_multiple:
            stop = start + (stop - start) // row_multiple * row_multiple
        inside = slice(start, stop)
        cuts.append(Cut(rows[inside], int(wide[inside].max()), int(tall[inside].max())))
        start = stop
    return cuts


_AT_ONCE = 1_000_000  # ids
_CHUNK = 4096  # texts


def ends(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where each of some stretches laid side by side begins, and at last where all end."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


class Ragged:
    """Many short lists of ids as two flat arrays (670,000 sentence pairs in a few ten megabytes): row n is
    `flat[offsets[n]:offsets[n + 1]]`."""

    def __init__(self, flat: np.ndarray, offsets: np.ndarray) -> None:
        self.flat = flat  # (sum of lengths,) int32
        self.offsets = offsets  # (rows + 1,) int64

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "Ragged":
        """From lists of ids, which are let go as they are read."""
        blocks: list[np.ndarray] = []
        lengths: list[int] = []
        waiting: list[int] = []
        for row in rows:
            lengths.append(len(row))
            waiting.extend(row)
            if len(waiting) > _AT_ONCE:
                blocks.append(np.array(waiting, np.int32))
                waiting = []
        blocks.append(np.array(waiting, np.int32))
        return cls(np.concatenate(blocks), ends(lengths))

    @classmethod
    def join(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """All rows of all parts, in order."""
        parts = parts or [cls.of(())]
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.flat for part in parts]), ends(lengths))

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def checksum(self) -> int:
        """Tells other data apart when training is resumed."""
        return crc32(self.offsets.data, crc32(self.flat.data))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> list[int]:
        return self.flat[self.offsets[row] : self.offsets[row + 1]].tolist()

    def grid(self, rows: np.ndarray, columns: int, fill: int) -> np.ndarray:
        """(len(rows), columns) int64 with those rows from the left, cut at `columns`, and `fill` after their ends."""
        steps = np.arange(columns)
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        places = np.minimum(starts[:, None] + steps, max(len(self.flat) - 1, 0))
        return np.where(steps < lengths[:, None], self.flat[places], fill).astype(np.int64)


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Lists of as many items as are tokenised at once."""
    iterator = iter(items)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk
