"""SentencePiece's two algorithms, BPE and Unigram, as a tokenizer.json (Kudo and Richardson 2018; sentencepiece's
`bpe_model.cc`, `unigram_model.cc`, `normalizer.cc`)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from cutaway.errors import CutawayError
from cutaway.text.offsets import BYTE_PIECE
from cutaway.text.rules import parts, tokenizer_json
from cutaway.text.rules.parts import Part


class PieceType(IntEnum):
    """Numbers of sentencepiece_model.proto, which GGUF uses too."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    type: PieceType


@dataclass(frozen=True)
class Rules:
    """What happens to a text before it is cut into pieces, in this order."""

    charsmap: str | None = None  # base64 of the compiled table of replacements
    remove_extra_whitespaces: bool = False
    add_dummy_prefix: bool = True
    byte_fallback: bool = True


def typed(pieces: Sequence[str], scores: Sequence[float], where: str) -> list[Piece]:
    """Pieces of a file that keeps no types (llama2.c's): `<unk>`, `<s>`, `</s>` and `<0x41>` are what they are
    called, all others are normal."""
    if len(pieces) != len(scores):
        raise CutawayError(
            "{where}: {count} pieces and {count2} scores, expected the same number",
            where=where,
            count=len(pieces),
            count2=len(scores),
        )
    named = {"<unk>": PieceType.UNKNOWN, "<s>": PieceType.CONTROL, "</s>": PieceType.CONTROL}

    def kind(text: str) -> PieceType:
        usual = PieceType.BYTE if BYTE_PIECE.fullmatch(text) else PieceType.NORMAL
        return named.get(text, usual)

    return [Piece(text, score, kind(text)) for text, score in zip(pieces, scores, strict=True)]


def describe(
    kind: str,
    pieces: Sequence[Piece],
    rules: Rules,
    where: str,
    wrapping: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Part:
    """The tokenizer.json of "bpe" or "unigram"; a piece's place is its id. `wrapping`: control tokens that
    `transformers` puts before and after a text.

    Ids are those of the sentencepiece library, of BPE but that a text which is nothing but one user-defined piece
    gets no dummy prefix. Of Unigram they are so in `Tokenizer`, by `unigram`. The `tokenizers` library alone differs
    in two more rare things: of two ways to cut that are equally probable it may choose the other, and it takes a
    user-defined piece at its first place, where sentencepiece weighs overlapping ones.

    Raises CutawayError naming `where` for a piece that stands twice and for any number of unknown pieces but
    one."""
    unknown = [piece.text for piece in pieces if piece.type is PieceType.UNKNOWN]
    if len(unknown) != 1:
        raise CutawayError(
            "{where}: {count} pieces of type unknown, expected one", where=where, count=len(unknown)
        )
    hidden = kind == "unigram" and any(piece.type is PieceType.UNUSED for piece in pieces)
    names = [
        tokenizer_json.UNREACHABLE + piece.text if hidden and piece.type is PieceType.UNUSED else piece.text
        for piece in pieces
    ]
    vocabulary = parts.numbered(names, where)
    special = (PieceType.CONTROL, PieceType.UNKNOWN)
    own = [piece.text for piece in pieces if piece.type is PieceType.USER_DEFINED]
    added = [
        parts.added_token(id, piece.text, special=piece.type in special, normalized=piece.type not in special)
        for id, piece in enumerate(pieces)
        if piece.type in (*special, PieceType.USER_DEFINED)
    ]
    model = _bpe(pieces, vocabulary, unknown[0], rules) if kind == "bpe" else _unigram(pieces, names, rules)
    return parts.whole(
        model,
        added=added,
        normalizer=parts.normalizers(_normalizers(rules, own, hidden)),
        pre_tokenizer=_byte_guard() if kind == "unigram" and rules.byte_fallback else None,
        post_processor=parts.wrapping(vocabulary, *wrapping),
        decoder=_decoder(rules, hidden),
    )


def _bpe(pieces: Sequence[Piece], vocabulary: dict[str, int], unknown: str, rules: Rules) -> Part:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": rules.byte_fallback,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": _merges(pieces),
    }


def _merges(pieces: Sequence[Piece]) -> list[list[str]]:
    """Every way to put a piece together from two others, best piece first."""
    reachable = {piece.text for piece in pieces if piece.type is PieceType.NORMAL}
    longer = [piece for piece in pieces if piece.type is PieceType.NORMAL and len(piece.text) > 1]
    longer.sort(key=lambda piece: -piece.score)
    return [
        [piece.text[:at], piece.text[at:]]
        for piece in longer
        for at in range(len(piece.text) - 1, 0, -1)
        if piece.text[:at] in reachable and piece.text[at:] in reachable
    ]


def _unigram(pieces: Sequence[Piece], names: Sequence[str], rules: Rules) -> Part:
    scored = [
        [name, piece.score if piece.type is PieceType.NORMAL else 0.0]
        for name, piece in zip(names, pieces, strict=True)
    ]
    unknown = next(id for id, piece in enumerate(pieces) if piece.type is PieceType.UNKNOWN)
    return {"type": "Unigram", "unk_id": unknown, "vocab": scored, "byte_fallback": rules.byte_fallback}


def _byte_guard() -> Part:
    """A text that spells a byte piece is cut within it: the library would take the spelling for the byte."""
    return parts.split(r"<(?=0x[0-9A-F]{2}>)")


def _decoder(rules: Rules, hidden: bool) -> Part:
    steps: list[Part] = [parts.replace("▁", " ")]
    if hidden:
        steps.insert(0, parts.replace(tokenizer_json.UNREACHABLE, ""))
    if rules.byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if rules.add_dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return parts.decoders(steps)


def _normalizers(rules: Rules, own: Sequence[str], hidden: bool) -> list[Part]:
    steps: list[Part] = []
    if rules.charsmap is not None:
        steps.append({"type": "Precompiled", "precompiled_charsmap": rules.charsmap})
    if hidden:
        steps.append(parts.replace(tokenizer_json.UNREACHABLE, "\ufdd1"))
    if rules.remove_extra_whitespaces:
        steps += [parts.replace(r"\A +", "", regex=True), parts.replace(r" {2,}", " ", regex=True)]
    if rules.add_dummy_prefix and own:
        # The library applies these steps to the spelling of added tokens too, which must stay as it is.
        spellings = "|".join(re.escape(text) for text in own)
        steps.append(parts.replace(rf"\A(?!(?:{spellings})\z)(?=[\s\S])", "▁", regex=True))
    elif rules.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": "▁"})
    steps.append(parts.replace(" ", "▁"))
    if rules.remove_extra_whitespaces:
        steps.append(parts.replace(r"▁+\z", "", regex=True))
    return steps
