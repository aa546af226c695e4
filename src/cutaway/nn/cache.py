"""What decoding keeps between steps: each layer's keys and values, and which positions are real."""

import torch
from torch import Tensor


class KeyValues:
    """Keys and values (B, K, S, E) of one attention layer. A fixed one belongs to an encoder's memory; the
    others grow by `append`, in a buffer that doubles, so that a step costs no copy of the past."""

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None):
        self.fixed = keys is not None
        self._keys, self._values = keys, values
        self.length = 0 if keys is None else keys.shape[2]

    @property
    def keys(self) -> Tensor:
        assert self._keys is not None, "nothing was appended yet"
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Tensor:
        assert self._values is not None, "nothing was appended yet"
        return self._values[:, :, : self.length]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new positions; return those of all positions so far."""
        start, end = self.length, self.length + k.shape[2]
        self._keys, self._values = self._room(self._keys, k, end), self._room(self._values, v, end)
        self._keys[:, :, start:end], self._values[:, :, start:end] = k, v
        self.length = end
        return self.keys, self.values

    def _room(self, buffer: Tensor | None, new: Tensor, end: int) -> Tensor:
        if buffer is not None and buffer.shape[2] >= end:
            return buffer
        rows, heads, _, width = new.shape
        grown = new.new_empty(rows, heads, max(2 * end, 32), width)
        if buffer is not None:
            grown[:, :, : self.length] = buffer[:, :, : self.length]
        return grown

    def select(self, rows: Tensor) -> None:
        """Keep, reorder or repeat rows."""
        if self._keys is not None and self._values is not None:
            self._keys = self._keys.index_select(0, rows)
            self._values = self._values.index_select(0, rows)


class Cache:
    """Everything a model needs to go on decoding a batch of rows.

    `mask` (B, length) is False at left padding, None when no row is padded; `memory_mask` (B, S) likewise for
    an encoder's memory.
    """

    def __init__(
        self,
        rows: int,
        n_layers: int,
        memory: list[KeyValues] | None = None,
        memory_mask: Tensor | None = None,
    ):
        self.rows, self.length = rows, 0
        self.self_attn = [KeyValues() for _ in range(n_layers)]
        self.cross_attn = memory
        self.memory_mask = memory_mask
        self.mask: Tensor | None = None

    @property
    def longest(self) -> int:
        """The most real positions of any row: padding takes no room."""
        return self.length if self.mask is None else int(self.mask.sum(dim=1).max())

    def extend(self, n_new: int, mask: Tensor | None, device: torch.device) -> None:
        """Note `n_new` positions about to be appended, and which of them (B, n_new) are real."""
        if mask is not None and self.mask is None and not bool(mask.all()):
            self.mask = torch.ones(self.rows, self.length, dtype=torch.bool, device=device)
        if self.mask is not None:
            new = torch.ones(self.rows, n_new, dtype=torch.bool, device=device) if mask is None else mask
            self.mask = torch.cat([self.mask, new], dim=1)
        self.length += n_new

    def select(self, rows: Tensor, same_source: bool = False) -> None:
        """Keep, reorder or repeat rows, in place. rows (B',) indexes the present ones.

        `same_source` promises that every new row stands where a row of the same source sentence stood, so the
        memory's keys and values need no copying (beam search reorders within a sentence).
        """
        for layer in self.self_attn:
            layer.select(rows)
        if self.cross_attn is not None and not same_source:
            for layer in self.cross_attn:
                layer.select(rows)
            if self.memory_mask is not None:
                self.memory_mask = self.memory_mask.index_select(0, rows)
        if self.mask is not None:
            self.mask = self.mask.index_select(0, rows)
        self.rows = len(rows)
