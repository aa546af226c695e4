"""SentencePiece models (Kudo and Richardson 2018): the file, the sentencepiece library that runs it, and the
tokenizer.json of one.

The library checks a file before anything is read out of it. It does not say all that a tokenizer.json needs, and its
own Python classes for the file (protocol buffers) ask for one exact release of protobuf: so the few fields are read and
written here (sentencepiece_model.proto of google/sentencepiece).
"""

import base64
import math
import re
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from cutaway.errors import CutawayError, about
from cutaway.text.tokens import tokenizer_json
from cutaway.text.tokens.encoding import BYTE_PIECE
from cutaway.text.tokens.tokenizer_json import UNREACHABLE, Part, replace

_KINDS = {1: "unigram", 2: "bpe"}
# Earlier versions crash on damaged files: 0.2.0 on 335 of 568 of which 0.2.3 survives all.
_OLDEST = (0, 2, 3)


class PieceType(IntEnum):
    """Numbers of sentencepiece_model.proto, which GGUF uses too."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    score: float
    type: PieceType


@dataclass(frozen=True)
class Rules:
    """What happens to a text before it is cut into pieces, in this order."""

    charsmap: bytes = b""  # the compiled table of replacements
    remove_extra_whitespaces: bool = False
    add_dummy_prefix: bool = True
    escape_whitespaces: bool = True
    byte_fallback: bool = True


@dataclass(frozen=True)
class SentencePieceModel:
    kind: str  # "unigram" or "bpe"
    pieces: list[Piece]
    rules: Rules

    def names(self, type: PieceType) -> list[str]:
        """The pieces of that type."""
        return [piece.text for piece in self.pieces if piece.type is type]


# The library.


@cache
def _library():
    # here, since it takes long and few commands have a use for it
    import sentencepiece

    if tuple(int(part) for part in re.findall(r"\d+", sentencepiece.__version__)[:3]) < _OLDEST:
        raise CutawayError(
            "sentencepiece {version} crashes on damaged files; expected {oldest} or later: "
            "pip install -U sentencepiece",
            version=sentencepiece.__version__,
            oldest=".".join(map(str, _OLDEST)),
        )
    # what it would say, the error that it raises says
    sentencepiece.SetMinLogLevel(3)
    return sentencepiece


def processor(data: bytes, where: str):
    """What runs the model of these bytes. CutawayError naming `where` with the library's reason for malformed ones."""
    library = _library()
    try:
        return library.SentencePieceProcessor(model_proto=data)
    except (RuntimeError, ValueError, OSError) as error:
        raise CutawayError(
            "{where}: not a usable SentencePiece model: {error}; fetch it again", where=where, error=error
        ) from error


# The file.


def parse(data: bytes, where: str) -> SentencePieceModel:
    """The model in the bytes of a file. CutawayError naming `where` for whatever is malformed or not supported."""
    with about(where):
        if not data.startswith(b"\n"):
            raise CutawayError(
                "begins with {data!r}, not with a piece: not a SentencePiece model", data=data[:4]
            )
        processor(data, where)
        try:
            fields = list(_fields(data))
            pieces = [_piece(value, id) for id, value in enumerate(each for n, each in fields if n == 1)]
            trainer, normalizer = _message(fields, 2), _message(fields, 3)
        except (LookupError, TypeError) as error:
            raise CutawayError("malformed, expected a SentencePiece model") from error
        tokenizer_json.check_number(pieces)
        kind = trainer.get(3, 1)
        if kind not in _KINDS:
            raise CutawayError(
                "SentencePiece model of type {kind!r}, expected unigram (1) or bpe (2)", kind=kind
            )
        if trainer.get(24, 0) or not normalizer.get(5, 1):
            raise CutawayError(
                "expected spaces before words, written as ▁ (treat_whitespace_as_suffix off, escape_whitespaces on)"
            )
    charsmap = normalizer.get(2, b"")
    rules = Rules(
        charsmap=charsmap if isinstance(charsmap, bytes) else b"",
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        byte_fallback=bool(trainer.get(35, 0)),
    )
    return SentencePieceModel(_KINDS[kind], pieces, rules)


def _piece(value: int | bytes, id: int) -> Piece:
    fields = dict(_fields(value)) if isinstance(value, bytes) else {}
    try:
        (score,) = struct.unpack("<f", fields.get(2, b"\0\0\0\0"))
        piece = Piece(fields[1].decode(), score, PieceType(fields.get(3, 1)))
    except (KeyError, AttributeError, TypeError, ValueError, struct.error):
        piece = None
    if piece is None or not piece.text or not math.isfinite(piece.score):
        raise CutawayError(
            "piece {id} is malformed, expected a text in UTF-8, a finite score and a type from 1 to 6", id=id
        )
    return piece


def _message(fields: Sequence[tuple[int, Any]], number: int) -> dict[int, Any]:
    """The fields of the inner message of that number, the last one of each number."""
    inner = [value for n, value in fields if n == number and isinstance(value, bytes)]
    return {n: value for message in inner for n, value in _fields(message)}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value, a number or bytes, of each field; a number of fixed width comes as its bytes. LookupError at a
    wrong end."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        length, at = ({1: 8, 5: 4}[wire], at) if wire in (1, 5) else _varint(data, at)
        if wire == 0:
            yield tag >> 3, length
            continue
        if wire not in (1, 2, 5) or length > len(data) - at:
            raise IndexError(at)
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of at most ten bytes, and where it ends."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise IndexError(at)


def written(model: SentencePieceModel) -> bytes:
    """The bytes of a file with that model."""
    rules = model.rules
    pieces = (
        _field(1, _field(1, piece.text.encode()) + struct.pack("<BfBB", 0x15, piece.score, 0x18, piece.type))
        for piece in model.pieces
    )
    kind = next(number for number, name in _KINDS.items() if name == model.kind)
    trainer = _field(3, kind) + _field(35, rules.byte_fallback)
    flags = (rules.add_dummy_prefix, rules.remove_extra_whitespaces, rules.escape_whitespaces)
    normalizer = _field(2, rules.charsmap) + b"".join(_field(3 + n, flag) for n, flag in enumerate(flags))
    return b"".join(pieces) + _field(2, trainer) + _field(3, normalizer)


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    return bytes([number << 3 | 2]) + _number(len(value)) + value


def _number(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups[-1] |= 0x80
        groups.append(value & 0x7F)
    return bytes(groups)


def typed(pieces: Sequence[str], scores: Sequence[float]) -> list[Piece]:
    """Pieces of a file that keeps no types (llama2.c's): `<unk>`, `<s>`, `</s>` and `<0x41>` are what they are called,
    all others are normal."""
    named = {"<unk>": PieceType.UNKNOWN, "<s>": PieceType.CONTROL, "</s>": PieceType.CONTROL}

    def kind(text: str) -> PieceType:
        return named.get(text, PieceType.BYTE if BYTE_PIECE.fullmatch(text) else PieceType.NORMAL)

    return [Piece(text, score, kind(text)) for text, score in zip(pieces, scores, strict=True)]


# The tokenizer.json.


def describe(
    model: SentencePieceModel, where: str, wrapping: tuple[Sequence[str], Sequence[str]] = ((), ())
) -> Part:
    """The tokenizer.json of a model; a piece's place is its id. `wrapping`: control tokens that `transformers` puts
    before and after a text.

    Ids are those of the sentencepiece library, of BPE but that a text which is nothing but one user-defined piece gets
    no dummy prefix. Of Unigram `Tokenizer` has the library itself cut the text; the `tokenizers` library alone may
    choose the other of two ways to cut that are equally probable, and takes a user-defined piece at its first place,
    where sentencepiece weighs overlapping ones.

    Raises CutawayError naming `where` for a piece that stands twice and for any number of unknown pieces but one."""
    pieces, rules = model.pieces, model.rules
    unknown = model.names(PieceType.UNKNOWN)
    unigram = model.kind == "unigram"
    hidden = unigram and bool(model.names(PieceType.UNUSED))
    names = [UNREACHABLE * (hidden and piece.type is PieceType.UNUSED) + piece.text for piece in pieces]
    with about(where):
        if len(unknown) != 1:
            raise CutawayError("pieces of type unknown: {count}, expected one", count=len(unknown))
        vocabulary = tokenizer_json.numbered(names)
    special = (PieceType.CONTROL, PieceType.UNKNOWN)
    added = [
        tokenizer_json.added_token(
            id, piece.text, special=piece.type in special, normalized=piece.type not in special
        )
        for id, piece in enumerate(pieces)
        if piece.type in (*special, PieceType.USER_DEFINED)
    ]
    # A text that spells a byte piece is cut within it: the library would take the spelling for the byte.
    guard = tokenizer_json.split(r"<(?=0x[0-9A-F]{2}>)") if unigram and rules.byte_fallback else None
    if unigram:
        scores = [piece.score if piece.type is PieceType.NORMAL else 0.0 for piece in pieces]
        part: Part = {
            "type": "Unigram",
            "unk_id": vocabulary[unknown[0]],
            "vocab": [list(pair) for pair in zip(names, scores, strict=True)],
            "byte_fallback": rules.byte_fallback,
        }
    else:
        merges = _merges(pieces)
        part = tokenizer_json.bpe(vocabulary, merges, unknown=unknown[0], byte_fallback=rules.byte_fallback)
    steps = _normalizers(rules, model.names(PieceType.USER_DEFINED), hidden)
    return tokenizer_json.whole(
        part,
        added=added,
        normalizer=tokenizer_json.in_a_row("normalizers", steps),
        pre_tokenizer=guard,
        post_processor=tokenizer_json.wrapping(vocabulary, *wrapping),
        decoder=_decoder(rules, hidden),
    )


def _merges(pieces: Sequence[Piece]) -> list[list[str]]:
    """Every way to put a piece together from two others, best piece first."""
    normal = [piece for piece in pieces if piece.type is PieceType.NORMAL]
    reachable = {piece.text for piece in normal}
    return [
        [piece.text[:at], piece.text[at:]]
        for piece in sorted(normal, key=lambda piece: -piece.score)
        for at in range(len(piece.text) - 1, 0, -1)
        if piece.text[:at] in reachable and piece.text[at:] in reachable
    ]


def _decoder(rules: Rules, hidden: bool) -> Part:
    steps: list[Part] = [replace("▁", " ")]
    if hidden:
        steps.insert(0, replace(UNREACHABLE, ""))
    if rules.byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if rules.add_dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return tokenizer_json.in_a_row("decoders", steps)


def _normalizers(rules: Rules, own: Collection[str], hidden: bool) -> list[Part]:
    steps: list[Part] = []
    if rules.charsmap:
        encoded = base64.b64encode(rules.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if hidden:
        steps.append(replace(UNREACHABLE, "\ufdd1"))
    if rules.remove_extra_whitespaces:
        steps += [replace(r"\A +", "", regex=True), replace(r" {2,}", " ", regex=True)]
    if rules.add_dummy_prefix and own:
        # The library applies these steps to the spelling of added tokens too, which must stay as it is.
        spellings = "|".join(re.escape(text) for text in own)
        steps.append(replace(rf"\A(?!(?:{spellings})\z)(?=[\s\S])", "▁", regex=True))
    elif rules.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": "▁"})
    steps.append(replace(" ", "▁"))
    if rules.remove_extra_whitespaces:
        steps.append(replace(r"▁+\z", "", regex=True))
    return steps
