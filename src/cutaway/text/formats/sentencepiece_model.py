"""A SentencePiece model file (`.model`, `.spm`): the part of its protocol buffer that tokenising needs.

Layout: sentencepiece_model.proto of google/sentencepiece. Every length is checked against the bytes that there
are before it is used.
"""

import base64
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.text.formats.sentencepiece_rules import Piece, PieceType, Rules

_MAX_BYTES = 64 * 2**20
_MAX_PIECES = 2**20
_KINDS: dict[int | bytes, str] = {1: "unigram", 2: "bpe"}
_TYPES: dict[int | bytes, PieceType] = {type.value: type for type in PieceType}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class SentencePieceModel:
    kind: str  # "unigram" or "bpe"
    pieces: list[Piece]
    rules: Rules

    def id_of(self, type: PieceType) -> int | None:
        """The first piece of that type."""
        return next((id for id, piece in enumerate(self.pieces) if piece.type is type), None)


def read(path: Path) -> SentencePieceModel:
    """Read the file. Raises CutawayError naming the file and the byte for whatever is malformed."""
    return parse(load(path), str(path))


def load(path: Path) -> bytes:
    """The bytes of the file, unless it is far too large for one."""
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise CutawayError(
            "{path}: {size:,} bytes, expected a SentencePiece model of at most 64 MB", path=path, size=size
        )
    return path.read_bytes()


def parse(data: bytes, where: str) -> SentencePieceModel:
    """The same for the bytes of a file."""
    if not data.startswith(b"\n"):
        raise CutawayError(
            "{where}: begins with {data!r}, not with a piece: not a SentencePiece model",
            where=where,
            data=data[:4],
        )
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value, at in _fields(data, 0, len(data), where):
        if number == 1:
            pieces.append(_piece(_message(value, at, where), len(pieces), where))
            if len(pieces) > _MAX_PIECES:
                raise CutawayError(
                    "{where}: more than {max_pieces:,} pieces", where=where, max_pieces=_MAX_PIECES
                )
        elif number == 2:
            trainer |= _message(value, at, where)
        elif number == 3:
            normalizer |= _message(value, at, where)
    if not pieces:
        raise CutawayError("{where}: no pieces there, expected a SentencePiece model", where=where)
    kind = trainer.get(3, 1)
    if kind not in _KINDS:
        raise CutawayError(
            "{where}: SentencePiece model of type {kind!r}, expected unigram (1) or bpe (2)",
            where=where,
            kind=kind,
        )
    if trainer.get(24, 0) or not normalizer.get(5, 1):
        wanted = "spaces before words, written as ▁ (no treat_whitespace_as_suffix, escape_whitespaces on)"
        raise CutawayError("{where}: expected {wanted}", where=where, wanted=wanted)
    charsmap = normalizer.get(2, b"")
    if not isinstance(charsmap, bytes):
        raise CutawayError("{where}: precompiled_charsmap is a number, expected bytes", where=where)
    rules = Rules(
        charsmap=base64.b64encode(charsmap).decode() if charsmap else None,
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        byte_fallback=bool(trainer.get(35, 0)),
    )
    return SentencePieceModel(_KINDS[kind], pieces, rules)


def _piece(fields: dict[int, int | bytes], id: int, where: str) -> Piece:
    text, score, type = fields.get(1, b""), fields.get(2, b"\0\0\0\0"), fields.get(3, 1)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or len(score) != 4:
        raise CutawayError(
            "{where}: piece {id} is malformed, expected a text and a score", where=where, id=id
        )
    if type not in _TYPES:
        raise CutawayError(
            "{where}: piece {id} has type {type!r}, expected 1 to 6", where=where, id=id, type=type
        )
    try:
        spelled = text.decode()
    except UnicodeDecodeError as error:
        raise CutawayError(
            "{where}: piece {id} is not UTF-8: {text!r}", where=where, id=id, text=text[:40]
        ) from error
    (value,) = struct.unpack("<f", score)
    if not spelled or not math.isfinite(value):
        raise CutawayError(
            "{where}: piece {id} is {spelled!r} with score {value}, expected a text and a number",
            where=where,
            id=id,
            spelled=spelled[:40],
            value=value,
        )
    return Piece(spelled, value, _TYPES[type])


def _message(value: int | bytes, at: int, where: str) -> dict[int, int | bytes]:
    """Fields of an inner message, the last one of each number."""
    if not isinstance(value, bytes):
        raise CutawayError(
            "{where}: a number at byte {at}, expected a message: not a SentencePiece model",
            where=where,
            at=at,
        )
    return {number: inner for number, inner, _ in _fields(value, at, len(value), where)}


def _fields(data: bytes, base: int, end: int, where: str) -> Iterator[tuple[int, int | bytes, int]]:
    """Number, value and place of each field; numbers of fixed width come as their bytes."""
    at = 0
    while at < end:
        start = base + at
        tag = data[at]
        if tag < 0x80:  # nearly always; spares a call for each of a million fields
            at += 1
        else:
            tag, at = _varint(data, at, start, where)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at, start, where)
            yield number, value, base + at
            continue
        if wire == _BYTES:
            length, at = _varint(data, at, start, where)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise CutawayError(
                "{where}: no field of type {wire} may stand at byte {start}: not a SentencePiece model",
                where=where,
                wire=wire,
                start=start,
            )
        if length > end - at:
            raise CutawayError(
                "{where}: a field of {length:,} bytes at byte {start}, the file ends before that",
                where=where,
                length=length,
                start=start,
            )
        yield number, data[at : at + length], base + at
        at += length


def _varint(data: bytes, at: int, start: int, where: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            raise CutawayError(
                "{where}: the file ends within the field at byte {start}: not a SentencePiece model",
                where=where,
                start=start,
            )
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise CutawayError(
        "{where}: a number of more than 9 bytes at byte {start}: not a SentencePiece model",
        where=where,
        start=start,
    )
