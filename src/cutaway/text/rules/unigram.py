"""SentencePiece's search for the most probable pieces of a text, to the last bit (Kudo 2018; sentencepiece's
`unigram_model.cc`, EncodeOptimized, version 0.2.3).

Where two ways to cut a text are equally probable (11|111 and 111|11), rounding decides. The `tokenizers` library adds
in 64 bits, sentencepiece in 32, and a model that was trained with sentencepiece has seen only its choice. The library
still normalises the text and traces pieces back to it.
"""

from array import array
from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import pairwise
from math import inf, nan
from typing import NamedTuple

import tokenizers
from tokenizers import normalizers

from cutaway.text.offsets import BYTE_PIECE
from cutaway.text.rules import tokenizer_json

SETTING = "sentencepiece_unigram"  # in tokenizer_config.json: the tokenizer.json was a SentencePiece model
_LONGEST = 256  # characters of a piece; sentencepiece makes pieces of 16
_MOST = 2**26  # the sum of their squares; a vocabulary of 250,000 pieces has about 2**23
_UNK_PENALTY = 10.0
_LARGEST_SUM = 100_000.0  # sentencepiece starts again from zero there


class Cut(NamedTuple):
    """A text in pieces."""

    ids: list[int]
    offsets: list[tuple[int, int]]  # empty where nobody asked for them


class Unigram:
    """A SentencePiece Unigram model that a tokenizer.json describes, and the normalisation before it."""

    def __init__(
        self,
        description: Mapping,
        hidden: Collection[str],
        normalizer: normalizers.Normalizer | None,
    ) -> None:
        """`description` is the tokenizer.json as `sentencepiece_rules.describe` makes it; no text becomes a piece
        that is in `hidden`."""
        self._description, self._hidden, self._normalizer = description, hidden, normalizer
        added = description["added_tokens"]
        self._marks = {token["id"]: token["content"] for token in added if token.get("special")}
        prefix = normalizer is not None and normalizer.normalize_str("\ufdd1").startswith("▁")
        self._unprefixed = {token["content"] for token in added if prefix and not token.get("special")}

    @staticmethod
    def fits(description: Mapping) -> bool:
        """Whether every added token is a piece of the model that sentencepiece finds by its search, or a control
        token (others, as of `added_tokens.json`, are for the `tokenizers` library to find), and pieces are not so
        long, or so many, that their beginnings would fill the memory."""
        model = description["model"]
        if model.get("type") != "Unigram" or model.get("unk_id") is None:
            return False
        own = {piece for piece, _ in model["vocab"]}
        lengths = [len(piece) for piece in own]
        return (
            max(lengths) <= _LONGEST
            and sum(length * length for length in lengths) <= _MOST
            and all(
                not token.get("normalized") if token.get("special") else token["content"] in own
                for token in description["added_tokens"]
            )
        )

    # Cutting.

    def cut(self, text: str, fast: bool) -> Cut:
        """The pieces of a text; `fast` leaves offsets out."""
        if fast:
            normal = text if self._normalizer is None else self._normalizer.normalize_str(text)
            normal = "▁" + normal if normal in self._unprefixed else normal
            return Cut([id for id, _, _ in self._pieces(normal)], [])
        whole = tokenizers.PreTokenizedString(text)
        whole.normalize(self._normalize)
        whole.tokenize(self._tokens)
        encoded = whole.to_encoding(0, None)
        return Cut(encoded.ids, encoded.offsets)

    def _normalize(self, text: tokenizers.NormalizedString) -> None:
        if self._normalizer is not None:
            self._normalizer.normalize(text)
        if text.normalized in self._unprefixed:
            text.prepend("▁")

    def between(self, text: str, found: tokenizers.Encoding, fast: bool) -> Cut:
        """The same for a text with control tokens, which the library `found`."""
        marks = [
            (id, *span)
            for id, span in zip(found.ids, found.offsets, strict=True)
            if id in self._marks and self._marks[id] in text[slice(*span)]
        ]
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for (_, _, start), (id, stop, end) in pairwise([(-1, 0, 0), *marks, (-1, len(text), len(text))]):
            part = self.cut(text[start:stop], fast)
            ids += [*part.ids, id]
            offsets += [*((start + first, start + last) for first, last in part.offsets), (stop, end)]
        return Cut(ids[:-1], offsets[:-1])

    def _tokens(self, normal: str) -> list[tokenizers.Token]:
        """What the library needs to trace the pieces back to the text: it counts bytes."""
        places = [0]
        for character in normal:
            places.append(places[-1] + len(character.encode()))
        return [
            tokenizers.Token(id, "", (places[start], places[end])) for id, start, end in self._pieces(normal)
        ]

    def _pieces(self, normal: str) -> list[tuple[int, int, int]]:
        """Id, start and end of each piece of a normalised text. Characters that are unknown become their bytes;
        without pieces for bytes, a run of them becomes one unknown piece."""
        ids, unk, bytes_ = self._table.ids, self._table.unk, self._table.bytes_
        pieces: list[tuple[int, int, int]] = []
        for start, end in self._path(normal):
            id = ids.get(normal[start:end], unk)
            if id == unk and bytes_:
                pieces += [(bytes_[byte], start, end) for byte in normal[start:end].encode()]
            elif id == unk and pieces and pieces[-1][0] == unk:
                pieces[-1] = (unk, pieces[-1][1], end)
            else:
                pieces.append((id, start, end))
        return pieces

    def _path(self, text: str) -> list[tuple[int, int]]:
        """Where the most probable pieces start and end; the first of equals stays."""
        scores, unk_score, longest = self._table.scores, self._table.unk_score, self._table.longest
        size = len(text)
        # Of the ways to cut the text up to each place. The array rounds to 32 bits, and sums are compared rounded.
        best = array("f", [0.0]) + array("f", [-inf]) * size
        came_from = list(range(-1, size))
        for start in range(size):
            here = best[start]
            if not -_LARGEST_SUM <= here <= _LARGEST_SUM:
                for place in range(start, min(size, start + longest) + 1):
                    best[place] -= here
                here = 0.0
            for stop in range(start + 1, size + 1):
                score = scores.get(text[start:stop])
                if score is None:
                    if stop > start + 1:
                        break
                    score = unk_score
                before = best[stop]
                total = here + score
                if total > before:
                    best[stop] = total
                    if best[stop] > before:
                        came_from[stop] = start
        path: list[tuple[int, int]] = []
        end = size
        while end > 0:
            path.append((came_from[end], end))
            end = came_from[end]
        return path[::-1]

    @cached_property
    def _table(self) -> "_Table":
        return _table(self._description, self._hidden)


class _Table(NamedTuple):
    ids: dict[str, int]
    # Of pieces and their beginnings. One that is no piece has NaN, which no sum with it survives; a character is unk.
    scores: dict[str, float]
    longest: int  # characters of a piece
    unk: int
    unk_score: float
    bytes_: list[int]  # ids of the pieces for bytes; empty without them


def _table(description: Mapping, hidden: Collection[str]) -> _Table:
    model = description["model"]
    special = {token["content"]: bool(token.get("special")) for token in description["added_tokens"]}
    numbers = {piece: id for id, (piece, _) in enumerate(model["vocab"])}
    bytes_ = [numbers.get(f"<0x{byte:02X}>") for byte in range(256)] if model.get("byte_fallback") else []
    ids: dict[str, int] = {}
    scores: dict[str, float] = {}
    least = inf
    for id, (piece, score) in enumerate(model["vocab"]):
        if piece.startswith(tokenizer_json.UNREACHABLE) or (bytes_ and BYTE_PIECE.fullmatch(piece)):
            continue
        if piece not in special:
            least = min(least, score)
        elif special[piece] or piece in hidden:
            continue
        else:
            score = _rounded(_rounded(0.1) * (len(piece.encode()) - 1))  # the bonus of a user-defined piece
        ids[piece], scores[piece] = id, score
    unk_score = _rounded((0.0 if least == inf else least) - _UNK_PENALTY)
    for piece in ids:
        for end in range(len(piece) - 1, 0, -1):
            if piece[:end] in scores:
                break
            scores[piece[:end]] = unk_score if end == 1 else nan
    return _Table(
        ids,
        scores,
        max(map(len, ids), default=1),
        model["unk_id"],
        unk_score,
        [id for id in bytes_ if id is not None] if None not in bytes_ else [],
    )


def _rounded(value: float) -> float:
    """To 32 bits."""
    return array("f", [value])[0]
