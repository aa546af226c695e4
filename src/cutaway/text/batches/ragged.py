"""Many short lists of ids as two flat arrays: 670,000 sentence pairs in a few ten megabytes."""

from collections.abc import Iterable, Sequence
from zlib import crc32

import numpy as np


class Ragged:
    """Rows of different length: row n is `flat[offsets[n]:offsets[n + 1]]`."""

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
            if len(waiting) > 1_000_000:
                blocks.append(np.array(waiting, np.int32))
                waiting = []
        blocks.append(np.array(waiting, np.int32))
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(np.concatenate(blocks), offsets)

    @classmethod
    def join(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """All rows of all parts, in order."""
        lengths = np.concatenate([part.lengths for part in parts]) if parts else np.zeros(0, np.int64)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        flat = np.concatenate([part.flat for part in parts]) if parts else np.zeros(0, np.int32)
        return cls(flat, offsets)

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
        """(len(rows), columns) int64 with those rows from the left, cut at `columns`, and `fill` after their
        ends."""
        steps = np.arange(columns)
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        places = np.minimum(starts[:, None] + steps, max(len(self.flat) - 1, 0))
        return np.where(steps < lengths[:, None], self.flat[places], fill).astype(np.int64)
