"""Marian's vocabulary (OPUS-MT): `source.spm` and `target.spm` cut the text, `vocab.json` gives the ids of both;
and M2M100's, where one model cuts both sides and the languages are numbered after `vocab.json`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.files import read_json
from cutaway.text.formats import sentencepiece_model, sentencepiece_rules
from cutaway.text.formats.joint import JointVocabulary
from cutaway.text.formats.sentencepiece_rules import Piece, PieceType

SIDES = ("source.spm", "target.spm")
BOTH = "sentencepiece.bpe.model"
_MAX_IDS = 2**20
_CONTROL = re.compile(r"<pad>|>>\S+<<")  # a language mark is what Marian's models read first


def read(folder: Path) -> tuple[str, JointVocabulary]:
    """The tokenizer.json of the source side, and what it cannot say. CutawayError naming the file for
    whatever is malformed."""
    numbers = _numbers(folder / "vocab.json")
    files = {"vocab.json": (folder / "vocab.json").read_bytes()}
    files |= {name: sentencepiece_model.load(folder / name) for name in SIDES}

    def side(name: str) -> tuple[str, JointVocabulary]:
        where = str(folder / name)
        return _side(sentencepiece_model.parse(files[name], where), numbers, files, where)

    source, joint = side(SIDES[0])
    return source, replace(joint, target=lambda: side(SIDES[1]))


def read_m2m100(folder: Path, languages: Sequence[str]) -> tuple[str, JointVocabulary]:
    """The same for M2M100; `languages` are the control tokens (`__en__`) in their order."""
    numbers = _numbers(folder / "vocab.json")
    files = {
        "vocab.json": (folder / "vocab.json").read_bytes(),
        BOTH: sentencepiece_model.load(folder / BOTH),
    }
    where = str(folder / BOTH)
    return _side(sentencepiece_model.parse(files[BOTH], where), numbers, files, where, languages)


def _side(
    model: sentencepiece_model.SentencePieceModel,
    numbers: Mapping[str, int],
    files: Mapping[str, bytes],
    where: str,
    languages: Sequence[str] = (),
) -> tuple[str, JointVocabulary]:
    own = {piece.text: piece for piece in model.pieces if piece.type is PieceType.NORMAL}
    unknown = model.pieces[model.id_of(PieceType.UNKNOWN) or 0].text
    if unknown not in numbers:
        raise CutawayError(
            "{where}: its unknown piece {unknown!r} is not in vocab.json", where=where, unknown=unknown
        )
    special = {piece.text for piece in model.pieces if piece.type is PieceType.CONTROL}
    pieces: list[Piece] = []
    for id, text in enumerate(_by_number(numbers)):
        if text == unknown:
            pieces.append(Piece(text, 0.0, PieceType.UNKNOWN))
        elif text in own:
            pieces.append(own[text])
        elif text in special or _CONTROL.fullmatch(text):
            pieces.append(Piece(text, 0.0, PieceType.CONTROL))
        else:
            pieces.append(Piece(text or f"<no piece {id}>", 0.0, PieceType.UNUSED))
    pieces += [Piece(text, 0.0, PieceType.CONTROL) for text in languages if text not in numbers]
    elsewhere = {piece.text: id for id, piece in enumerate(pieces) if piece.type is PieceType.UNUSED}
    left_out = [piece for text, piece in own.items() if text not in numbers]
    description = sentencepiece_rules.describe(
        model.kind, [*pieces, *left_out], model.rules, where, ((), ("</s>",))
    )
    return json.dumps(description), JointVocabulary(len(pieces), elsewhere, files)


def _numbers(file: Path) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for piece, id in read_json(file).items():
        if not isinstance(id, int) or not 0 <= id < _MAX_IDS:
            raise CutawayError(
                "{file}: piece {piece!r} has id {id!r}, expected a whole number below {max_ids:,}",
                file=file,
                piece=piece,
                id=id,
                max_ids=_MAX_IDS,
            )
        numbers[piece] = id
    if len(set(numbers.values())) < len(numbers):
        raise CutawayError("{file}: two pieces with one id", file=file)
    return numbers


def _by_number(numbers: Mapping[str, int]) -> list[str]:
    """Pieces by id, "" where no piece has that id."""
    listed = [""] * (max(numbers.values(), default=-1) + 1)
    for piece, id in numbers.items():
        listed[id] = piece
    return listed
