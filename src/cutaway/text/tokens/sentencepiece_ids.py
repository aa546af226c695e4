"""The ids that model folders give to SentencePiece's pieces: the model's own (Llama, Mistral), with sentinels after
them (T5), one place on (fairseq: XLM-R, mBART, NLLB), or those of a `vocab.json` (Marian's two models, M2M100's)."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cutaway.errors import CutawayError, about, brief
from cutaway.files import read_json
from cutaway.text.tokens.encoding import Cut
from cutaway.text.tokens.plan import DEFAULT_ROLES, ROBERTA_ROLES
from cutaway.text.tokens.sentencepiece_model import Piece, PieceType, SentencePieceModel, describe, parse
from cutaway.text.tokens.tokenizer_json import Part, checked_id

_SENTINELS = 100  # T5's, unless its settings say otherwise
_MAX_SENTINELS = 10_000
# Names that transformers gives to tokenizers whose ids are fairseq's: control tokens first, then the model's pieces.
_FAIRSEQ = ("XLMRoberta", "MBart", "MBart50", "Nllb", "XGLM", "PLBart")


def begins_as_model(file: Path) -> bool:
    """Whether the file begins as a SentencePiece model does: with a piece."""
    with file.open("rb") as stream:
        return stream.read(1) == b"\n"


def read_model(file: Path, settings: Mapping[str, object]) -> tuple[Part, dict[str, str]]:
    """The tokenizer.json of a model file alone, and the usual roles of its control tokens."""
    model = parse(file.read_bytes(), str(file))
    pieces = model.pieces
    name = str(settings.get("tokenizer_class", "")).removesuffix("Fast").removesuffix("Tokenizer")
    contents = {*model.names(PieceType.CONTROL), *model.names(PieceType.UNKNOWN)}
    before: list[str] = []
    after: list[str] = []
    looks_like_t5 = [piece.text for piece in pieces[:3]] == ["<pad>", "</s>", "<unk>"]
    if name in _FAIRSEQ:
        pieces = _fairseq(pieces, settings)
        roles = ROBERTA_ROLES
        # All others put a language there.
        before, after = ["<s>"] if name == "XLMRoberta" else [], ["</s>"]
    elif name in ("T5", "MT5") or "extra_ids" in settings or (not name and looks_like_t5):
        pieces = [*pieces, *_sentinels(settings.get("extra_ids", _SENTINELS), contents, file)]
        roles = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
        after = ["</s>"]
    else:
        roles = {role: content for role, content in DEFAULT_ROLES.items() if content in contents}
        if settings.get("add_bos_token", model.kind == "bpe") and "bos" in roles:
            before = ["<s>"]
        if settings.get("add_eos_token", False) and "eos" in roles:
            after = ["</s>"]
    return describe(replace(model, pieces=pieces), str(file), (before, after)), roles


def _sentinels(count: object, taken: set[str], file: Path) -> list[Piece]:
    """T5's `<extra_id_99>` to `<extra_id_0>`."""
    if not isinstance(count, int) or not 0 <= count <= _MAX_SENTINELS:
        raise CutawayError(
            "{folder}: extra_ids is {count}, expected a whole number from 0 to {limit}",
            folder=file.parent,
            count=brief(count),
            limit=_MAX_SENTINELS,
        )
    names = [f"<extra_id_{number}>" for number in range(count - 1, -1, -1)]
    return [Piece(name, 0.0, PieceType.CONTROL) for name in names if name not in taken]


def _fairseq(pieces: list[Piece], settings: Mapping[str, object]) -> list[Piece]:
    """Fairseq's own first four, the model's pieces one place on, the languages, the mask."""
    first = [Piece(text, 0.0, PieceType.CONTROL) for text in ("<s>", "<pad>", "</s>")]
    last = [Piece(text, 0.0, PieceType.CONTROL) for text in [*further_controls(settings), "<mask>"]]
    return [*first, Piece("<unk>", 0.0, PieceType.UNKNOWN), *pieces[3:], *last]


def further_controls(settings: Mapping[str, object]) -> list[str]:
    """The control tokens without a role that the settings list: languages, for most models."""
    given = settings.get("additional_special_tokens", settings.get("extra_special_tokens"))
    listed = given if isinstance(given, list) else []
    contents = [each.get("content") if isinstance(each, dict) else each for each in listed]
    return [each for each in contents if isinstance(each, str) and each != "<mask>"]


# Numbered by a vocab.json.

SIDES = ("source.spm", "target.spm")
BOTH = "sentencepiece.bpe.model"
NUMBERS = "vocab.json"
TARGET_NUMBERS = "target_vocab.json"
_MAX_IDS = 2**20
_CONTROL = re.compile(r"<pad>|>>\S+<<")  # a language mark is what Marian's models read first


@dataclass(frozen=True)
class JointVocabulary:
    """What a tokenizer.json cannot say about pieces numbered by a vocab.json."""

    size: int  # ids from here on are pieces of the model that the vocabulary leaves out; they become unk
    elsewhere: Mapping[str, int]  # pieces that are not the model's
    files: Mapping[str, bytes]  # the vocabulary's own files by name, as they were: what is saved
    # The other side, with its tokenizer.json.
    target: Callable[[], "tuple[str, JointVocabulary]"] | None = None

    def leaves_out(self, ids: Sequence[int], unk: int) -> bool:
        """Whether `numbered` has anything to do."""
        return unk in ids or max(ids, default=0) >= self.size

    def numbered(self, cut: Cut, unk: int) -> list[int]:
        """The ids as the vocabulary has them. A run of characters that the model does not know is looked up as it
        stands: that is how Marian's own tools, and `transformers`, number `北京` in an English text."""
        return [
            self.elsewhere.get(surface, unk) if id == unk else id if id < self.size else unk
            for id, surface in zip(cut.ids, cut.surfaces, strict=True)
        ]


def read_marian(folder: Path) -> tuple[str, JointVocabulary]:
    """Marian's (OPUS-MT): the tokenizer.json of the source side, and what it cannot say; `source.spm` and `target.spm`
    cut the text, `vocab.json` gives the ids of both. CutawayError naming the file for whatever is malformed."""
    if (folder / TARGET_NUMBERS).exists():
        raise CutawayError(
            "{folder}: source and target have vocabularies of their own ({name}), expected one for both; such a model "
            "opens without its tokenizer's files, for ids",
            folder=folder,
            name=TARGET_NUMBERS,
        )
    numbers, files = _numbered_files(folder, SIDES)

    def side(name: str) -> tuple[str, JointVocabulary]:
        where = str(folder / name)
        return _side(parse(files[name], where), numbers, files, where)

    source, joint = side(SIDES[0])
    return source, replace(joint, target=lambda: side(SIDES[1]))


def read_m2m100(folder: Path, settings: Mapping[str, object]) -> tuple[str, JointVocabulary]:
    """The same for M2M100: one model cuts both sides, and the languages (`__en__`) are numbered after `vocab.json`."""
    numbers, files = _numbered_files(folder, [BOTH])
    where = str(folder / BOTH)
    return _side(parse(files[BOTH], where), numbers, files, where, further_controls(settings))


def _numbered_files(folder: Path, models: Sequence[str]) -> tuple[dict[str, int], dict[str, bytes]]:
    file = folder / NUMBERS
    with about(file):
        numbers = {piece: checked_id(id, piece, _MAX_IDS) for piece, id in read_json(file).items()}
        if len(set(numbers.values())) < len(numbers):
            raise CutawayError("two pieces have the same id; expected an id for each")
    return numbers, {NUMBERS: file.read_bytes()} | {name: (folder / name).read_bytes() for name in models}


def _side(
    model: SentencePieceModel,
    numbers: Mapping[str, int],
    files: Mapping[str, bytes],
    where: str,
    languages: Sequence[str] = (),
) -> tuple[str, JointVocabulary]:
    own = {piece.text: piece for piece in model.pieces if piece.type is PieceType.NORMAL}
    unknown = next(iter(model.names(PieceType.UNKNOWN)), "")
    if unknown not in numbers:
        raise CutawayError(
            "{where}: its unknown piece {piece!r} is not in vocab.json", where=where, piece=unknown
        )
    special = set(model.names(PieceType.CONTROL))
    texts = {id: text for text, id in numbers.items()}
    pieces: list[Piece] = []
    for id in range(max(texts, default=-1) + 1):
        text = texts.get(id, "")
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
    description = describe(replace(model, pieces=[*pieces, *left_out]), where, ((), ("</s>",)))
    return json.dumps(description), JointVocabulary(len(pieces), elsewhere, files)
