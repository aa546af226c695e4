"""Documents as batches for language models: packed rows, a contiguous stream, and rows for a masked model."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np
from torch import from_numpy

from cutaway.errors import CutawayError
from cutaway.text.batches.batch import IGNORED, Batch, Batches, Cut, Ragged, chunks, cut_by_budget, ends
from cutaway.text.corpus import Report
from cutaway.text.tokens.tokenizer import Tokenizer

Rows = list[list[int]]  # of one batch; a row is a list of pieces, a piece a stretch of the prepared stream


def document_ids(documents: Iterable[str], tokenizer: Tokenizer, report: Report | None = None) -> Ragged:
    """Tokenise documents, without special tokens. Blank ones are left out and counted in `report.empty`."""
    report = report or Report()
    parts: list[Ragged] = []
    for chunk in chunks(documents):
        full = [ids for ids in tokenizer.encode_ids(chunk) if ids]
        report.empty += len(chunk) - len(full)
        parts.append(Ragged.of(full))
    return Ragged.join(parts)


class DocumentBatches(Batches[Rows]):
    """Documents packed into rows of `max_len` for a causal model. Rows tell documents apart (`documents`), so none sees
    another, and every token of every document is a label exactly once: the first follows `start_id`, the last is
    followed by eos. A document longer than a row is cut into several, each a document of its own there."""

    def __init__(
        self,
        documents: Ragged,
        *,
        max_len: int,
        rows: int,
        pad_id: int,
        eos_id: int,
        start_id: int | None = None,
        seed: int = 0,
    ) -> None:
        """`rows` is B. `start_id` (bos, or eos as in GPT-2) comes before each document; None leaves the first token of
        each unpredicted. CutawayError when there is nothing to predict."""
        if max_len < 1 or rows < 1:
            raise CutawayError(
                "max_len is {max_len} and rows {rows}, expected at least 1 each", max_len=max_len, rows=rows
            )
        data = {"documents": len(documents), "data": documents.checksum()}
        super().__init__(seed, **data, max_len=max_len, rows=rows, start_id=start_id)
        self._max_len, self._rows, self._pad_id = max_len, rows, pad_id
        self._stream, starts = _framed(documents, start_id, eos_id)
        pieces = [
            (document, at, min(at + max_len, end - 1))
            for document, (begin, end) in enumerate(pairwise(starts.tolist()))
            for at in range(begin, end - 1, max_len)
        ]
        if not pieces:
            raise CutawayError("no documents to make batches of; give some")
        self._pieces = np.array(pieces, np.int64)  # (pieces, 3): document, begin and end of its inputs

    def _plan(self, random: np.random.Generator) -> list[Rows]:
        order = random.permutation(len(self._pieces))
        lengths = (self._pieces[:, 2] - self._pieces[:, 1])[order]
        rows = pack(lengths.tolist(), self._max_len)
        shuffled = [[int(order[place]) for place in rows[row]] for row in random.permutation(len(rows))]
        return [shuffled[at : at + self._rows] for at in range(0, len(shuffled), self._rows)]

    def _make(self, entry: Rows) -> Batch:
        shape = (len(entry), self._max_len)
        ids = np.full(shape, self._pad_id, np.int64)
        labels = np.full(shape, IGNORED, np.int64)
        documents = np.empty(shape, np.int64)
        for row, pieces in enumerate(entry):
            place = 0
            for number, piece in enumerate(pieces):
                _, begin, end = self._pieces[piece]
                stop = place + end - begin
                ids[row, place:stop] = self._stream[begin:end]
                labels[row, place:stop] = self._stream[begin + 1 : end + 1]
                documents[row, place:stop] = number
                place = stop
            documents[row, place:] = len(pieces)  # padding sees padding only
        inputs = {"ids": from_numpy(ids)}
        if any(len(pieces) > 1 for pieces in entry):
            inputs["documents"] = from_numpy(documents)
        index = np.array([self._pieces[pieces[0]][0] for pieces in entry])
        return Batch(inputs, from_numpy(labels), from_numpy(index))


def pack(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Put pieces into rows of `room`: each row takes the longest piece left, then again the longest that still fits.
    Every length is from 1 to `room`. Returns the places of the pieces, row by row."""
    waiting: list[list[int]] = [[] for _ in range(room + 1)]
    for place, length in enumerate(lengths):
        waiting[length].append(place)
    # Bit n: a piece of length n waits.
    present = sum(1 << length for length in range(room + 1) if waiting[length])
    rows: list[list[int]] = []
    while present:
        row: list[int] = []
        free = room
        while fitting := present & ((2 << free) - 1):
            length = fitting.bit_length() - 1
            row.append(waiting[length].pop())
            if not waiting[length]:
                present ^= 1 << length
            free -= length
        rows.append(row)
    return rows


def _framed(documents: Ragged, start_id: int | None, eos_id: int) -> tuple[np.ndarray, np.ndarray]:
    """All documents in one array, each as [start] tokens eos, and where each begins (one more at the end)."""
    head = [] if start_id is None else [start_id]
    lengths = documents.lengths + len(head) + 1
    starts = ends(lengths)
    stream = np.full(int(starts[-1]), eos_id, np.int64)
    stream[starts[:-1]] = head or eos_id
    inside = np.ones(len(stream), bool)
    inside[starts[1:] - 1] = False
    if head:
        inside[starts[:-1]] = False
    stream[inside] = documents.flat
    return stream, starts


class WindowBatches(Batches[np.ndarray]):
    """Random windows of one long text, as nanoGPT takes them: `rows` windows of `context` tokens, each label the next
    token. An epoch is as many batches as cover the text once on average."""

    def __init__(self, ids: Sequence[int] | np.ndarray, *, context: int, rows: int, seed: int = 0) -> None:
        """`ids` is the whole text. CutawayError if it has fewer than `context` + 1 tokens."""
        self._ids = np.asarray(ids, np.int64)
        if context < 1 or rows < 1:
            raise CutawayError(
                "context is {length} and rows {rows}, expected at least 1 each", length=context, rows=rows
            )
        if len(self._ids) <= context:
            raise CutawayError(
                "tokens of the text: {count}, expected more than the context of {length}",
                count=len(self._ids),
                length=context,
            )
        super().__init__(seed, data=crc32(self._ids.data), context=context, rows=rows)
        self._context, self._rows = context, rows

    def _plan(self, random: np.random.Generator) -> list[np.ndarray]:
        count = max(1, (len(self._ids) - 1) // (self._context * self._rows))
        starts = random.integers(0, len(self._ids) - self._context, (count, self._rows))
        return list(starts)

    def _make(self, entry: np.ndarray) -> Batch:
        places = entry[:, None] + np.arange(self._context)
        return Batch(
            {"ids": from_numpy(self._ids[places])}, from_numpy(self._ids[places + 1]), from_numpy(entry)
        )

    def once(self) -> Iterator[Batch]:
        """The whole text from its beginning in windows side by side: every token but the first is a label once."""
        starts = np.arange(0, len(self._ids) - 1, self._context)
        for at in range(0, len(starts), self._rows):
            chosen = starts[at : at + self._rows]
            places = chosen[:, None] + np.arange(self._context)
            inside = places < len(self._ids) - 1
            places = np.minimum(places, len(self._ids) - 2)
            labels = np.where(inside, self._ids[places + 1], IGNORED)
            yield Batch({"ids": from_numpy(self._ids[places])}, from_numpy(labels), from_numpy(chosen))


class MaskedBatches(Batches[Cut]):
    """Rows for a masked model: each document, cut into stretches that fit between cls and sep, a row of its own; rows
    of nearly equal length together, within a budget of B·T. Labels are the original ids at every real position: the
    objective chooses which to hide."""

    def __init__(
        self,
        documents: Ragged,
        *,
        max_len: int,
        budget: int,
        pad_id: int,
        cls_id: int | None = None,
        sep_id: int | None = None,
        seed: int = 0,
        multiple: int = 8,
        row_multiple: int = 8,
    ) -> None:
        head = [] if cls_id is None else [cls_id]
        tail = [] if sep_id is None else [sep_id]
        room = max_len - len(head) - len(tail)
        if room < 1:
            raise CutawayError(
                "max_len is {max_len}, expected at least {least} with cls and sep",
                max_len=max_len,
                least=1 + len(head) + len(tail),
            )
        self._rows = Ragged.of(
            [*head, *ids[at : at + room], *tail]
            for ids in map(documents.__getitem__, range(len(documents)))
            for at in range(0, len(ids), room)
        )
        if not len(self._rows):
            raise CutawayError("no documents to make batches of; give some")
        data = {"documents": len(documents), "data": documents.checksum()}
        grid = {"budget": budget, "multiple": multiple, "row_multiple": row_multiple}
        super().__init__(seed, **data, max_len=max_len, **grid)
        self._max_len, self._budget, self._pad_id = max_len, budget, pad_id
        self._multiple, self._row_multiple = multiple, row_multiple

    def _plan(self, random: np.random.Generator) -> list[Cut]:
        rows = random.permutation(len(self._rows))
        lengths = self._rows.lengths[rows]
        order = np.argsort(lengths, kind="stable")
        rows, lengths = rows[order], lengths[order]
        nothing = np.zeros_like(lengths)
        cuts = cut_by_budget(rows, nothing, lengths, self._budget, self._multiple, self._row_multiple)
        return [cuts[place] for place in random.permutation(len(cuts))]

    def _make(self, entry: Cut) -> Batch:
        columns = min(entry.target, self._max_len)
        labels = self._rows.grid(entry.rows, columns, IGNORED)
        real = labels != IGNORED
        inputs = {"ids": from_numpy(np.where(real, labels, self._pad_id))}
        if not real.all():
            inputs["mask"] = from_numpy(real)
        return Batch(inputs, from_numpy(labels), from_numpy(entry.rows))
