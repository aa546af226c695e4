"""A model folder's SentencePiece model (`tokenizer.model`, `spiece.model`, `sentencepiece.bpe.model`, `.spm`)."""

from collections.abc import Mapping
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.text.formats import sentencepiece_model, sentencepiece_rules
from cutaway.text.formats.sentencepiece_rules import Piece, PieceType
from cutaway.text.rules.parts import Part

_SENTINELS = 100  # T5's, unless its settings say otherwise
_MAX_SENTINELS = 10_000
# Names that transformers gives to tokenizers whose ids are fairseq's: control tokens first, then the model's pieces.
_FAIRSEQ = ("XLMRoberta", "MBart", "MBart50", "Nllb", "XGLM", "PLBart")


def fits(file: Path) -> bool:
    """Whether the file begins as a SentencePiece model does: with a piece."""
    with file.open("rb") as stream:
        return stream.read(1) == b"\n"


def read(file: Path, settings: Mapping[str, object]) -> tuple[Part, dict[str, str]]:
    """Its tokenizer.json, and the usual roles of its control tokens."""
    model = sentencepiece_model.read(file)
    pieces = model.pieces
    name = str(settings.get("tokenizer_class", "")).removesuffix("Fast").removesuffix("Tokenizer")
    roles: dict[str, str] = {}
    before: list[str] = []
    after: list[str] = []
    contents = {piece.text for piece in pieces if piece.type in (PieceType.CONTROL, PieceType.UNKNOWN)}
    if name in _FAIRSEQ:
        pieces = _fairseq(pieces, settings)
        roles = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>", "mask": "<mask>"}
        roles |= {"cls": "<s>", "sep": "</s>"}
        before, after = ["<s>"] if name == "XLMRoberta" else [], ["</s>"]  # the others put a language there
    elif name in ("T5", "MT5") or "extra_ids" in settings or (not name and _looks_like_t5(pieces)):
        count = settings.get("extra_ids", _SENTINELS)
        if not isinstance(count, int) or not 0 <= count <= _MAX_SENTINELS:
            raise CutawayError(
                "{parent}: extra_ids is {count!r}, expected a whole number to {max_sentinels}",
                parent=file.parent,
                count=count,
                max_sentinels=_MAX_SENTINELS,
            )
        names = [f"<extra_id_{number}>" for number in range(count - 1, -1, -1)]
        pieces = [*pieces, *(Piece(each, 0.0, PieceType.CONTROL) for each in names if each not in contents)]
        roles = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
        after = ["</s>"]
    else:
        usual = {"unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "<pad>"}
        roles = {role: content for role, content in usual.items() if content in contents}
        if settings.get("add_bos_token", model.kind == "bpe") and "bos" in roles:
            before = ["<s>"]
        if settings.get("add_eos_token", False) and "eos" in roles:
            after = ["</s>"]
    return sentencepiece_rules.describe(model.kind, pieces, model.rules, str(file), (before, after)), roles


def _looks_like_t5(pieces: list[Piece]) -> bool:
    return [piece.text for piece in pieces[:3]] == ["<pad>", "</s>", "<unk>"]


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
