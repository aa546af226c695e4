"""The vocabulary inside a GGUF file (ggml's `docs/gguf.md`, keys `tokenizer.ggml.*`)."""

import json
import math
from collections.abc import Mapping, Sequence

from cutaway.errors import CutawayError, about, brief, nearest
from cutaway.text.tokens import byte_level, tokenizer_json, vocabulary_files
from cutaway.text.tokens.plan import BERT_ROLES
from cutaway.text.tokens.sentencepiece_model import (
    Piece,
    PieceType,
    Rules,
    SentencePieceModel,
    describe,
    typed,
)
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.text.tokens.tokenizer_json import Part
from cutaway.words import Phrase, Text, names_of, say

_PREFIX = "tokenizer.ggml."
_WORD = "\u2581"  # what the first piece of a word begins with in a file of BERT's
_ROLE_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "pad": "padding_token_id",
    "mask": "mask_token_id",
    "cls": "cls_token_id",
    "sep": "seperator_token_id",  # as ggml spells it
}
# llama.cpp's names (`llama-vocab.cpp`, load) of rules for cutting text.
_CUT_OF = {
    "default": "unnamed",
    **dict.fromkeys(("gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "mpt", "olmo", "jais"), "gpt2"),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), "single-digits"
    ),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "dbrx", "smaug-bpe", "chatglm-bpe"), "llama3"
    ),
    "qwen2": "qwen2",
    **dict.fromkeys(("stablelm2", "deepseek-r1-qwen", "megrez"), "qwen2-as-is"),
    **dict.fromkeys(("gpt-4o", "llama4"), "o200k"),
}


def from_gguf(metadata: Mapping[str, object], where: str = "the GGUF file") -> Tokenizer:
    """The tokenizer that a GGUF file carries; `metadata` are its keys with plain values, arrays as lists.

    Models "gpt2" (byte-level BPE, cut by the rule that `tokenizer.ggml.pre` names), "llama" (SentencePiece BPE) and
    "bert" (WordPiece). A file that leaves the rule open has a note among the tokenizer's.
    Raises CutawayError naming `where` and the key for what is missing, malformed or not known."""
    with about(where):
        return _Reader(metadata, where).tokenizer()


class _Reader:
    def __init__(self, metadata: Mapping[str, object], where: str) -> None:
        self._metadata, self._where = metadata, where
        self._pieces = self._strings("tokens")
        self._types = [PieceType.NORMAL] * len(self._pieces)
        if self._get("token_type") is not None:
            self._types = [self._type(number) for number in self._list("token_type")]
            self._same_length("token_type", self._types)

    def tokenizer(self) -> Tokenizer:
        readers = {"gpt2": self._byte_level, "llama": self._sentencepiece, "bert": self._wordpiece}
        model = self._get("model")
        if not isinstance(model, str) or model not in readers:
            raise self._unexpected("model", model, say("gpt2, llama or bert"))
        description = readers[model]()
        settings: dict[str, object] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **self._roles(model),
        }
        notes: list[Phrase] = []
        if model == "gpt2" and self._get("pre") is None:
            notes.append(
                say(
                    "{where} does not say by which rule texts are cut (tokenizer.ggml.pre): they are cut by a general "
                    "one, as by llama.cpp, so ids may differ from those that the model was trained with; convert the "
                    "model again with a newer llama.cpp",
                    where=self._where,
                )
            )
        return Tokenizer(json.dumps(description), settings, self._where, notes=notes)

    # The three models.

    def _byte_level(self) -> Part:
        name = self._get("pre")
        name = "default" if name is None else name
        if not isinstance(name, str) or name not in _CUT_OF:
            raise CutawayError(
                "{key} is {value}{hint}, a rule for cutting text that is not known here; known: {known}",
                key=_PREFIX + "pre",
                value=brief(name),
                hint=nearest(name, _CUT_OF) if isinstance(name, str) else "",
                known=names_of(_CUT_OF),
            )
        merges = [
            byte_level.merge(text, f"{_PREFIX}merges[{number}]")
            for number, text in enumerate(self._strings("merges"))
        ]
        vocabulary = tokenizer_json.numbered(self._pieces)
        return byte_level.describe(
            vocabulary,
            merges,
            byte_level.CUTS[_CUT_OF[name]],
            added=self._added(),
            prefix_space=self._flag("add_space_prefix", False),
            wrapping=tokenizer_json.wrapping(vocabulary, self._before(), ()),
        )

    def _sentencepiece(self) -> Part:
        values = self._list("scores")
        scores = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
        self._same_length("scores", scores)
        if self._get("token_type") is None:
            pieces = typed(self._pieces, scores)
        else:
            pieces = [Piece(*row) for row in zip(self._pieces, scores, self._types, strict=True)]
        rules = Rules(
            remove_extra_whitespaces=self._flag("remove_extra_whitespaces", False),
            add_dummy_prefix=self._flag("add_space_prefix", True),
            byte_fallback=any(piece.type is PieceType.BYTE for piece in pieces),
        )
        return describe(SentencePieceModel("bpe", pieces, rules), self._where, (self._before(), ()))

    def _wordpiece(self) -> Part:
        """BERT's, of which the file marks where a word begins, not where it goes on. Whether texts are put in lower
        case it does not say: they are, unless a piece has a capital letter."""
        pieces = [
            piece
            if piece.startswith("[") and piece.endswith("]")
            else piece.removeprefix(_WORD)
            if piece.startswith(_WORD)
            else f"##{piece}"
            for piece in self._pieces
        ]
        self._pieces = pieces
        vocabulary = tokenizer_json.numbered(pieces)
        roles = {**BERT_ROLES}
        roles |= {role.removesuffix("_token"): str(content) for role, content in self._roles("bert").items()}
        lowercase = not any(piece != piece.lower() for piece in pieces if piece not in roles.values())
        return vocabulary_files.wordpiece(vocabulary, roles, self._where, lowercase=lowercase)

    def _added(self) -> list[Part]:
        kinds = {PieceType.CONTROL: True, PieceType.UNKNOWN: True, PieceType.USER_DEFINED: False}
        return [
            tokenizer_json.added_token(id, piece, special=kinds[type])
            for id, (piece, type) in enumerate(zip(self._pieces, self._types, strict=True))
            if type in kinds and piece
        ]

    def _before(self) -> list[str]:
        """What `transformers` puts before a text."""
        bos = self._get("bos_token_id")
        adds = self._flag("add_bos_token", self._get("model") == "llama") and bos is not None
        return [self._pieces[self._id("bos_token_id", bos)]] if adds else []

    def _roles(self, model: str) -> dict[str, object]:
        roles: dict[str, object] = {}
        if model == "llama" and PieceType.UNKNOWN in self._types:
            roles["unk_token"] = self._pieces[self._types.index(PieceType.UNKNOWN)]
        for role, key in _ROLE_KEYS.items():
            value = self._get(key)
            # bytes leave nothing unknown
            if value is not None and not (role == "unk" and model == "gpt2"):
                roles[f"{role}_token"] = self._pieces[self._id(key, value)]
        return roles

    # Values of the keys, checked.

    def _get(self, key: str) -> object:
        return self._metadata.get(_PREFIX + key)

    def _unexpected(self, key: str, value: object, expected: Text) -> CutawayError:
        return CutawayError(
            "{key} is {value}, expected {expected}", key=_PREFIX + key, value=brief(value), expected=expected
        )

    def _list(self, key: str) -> list[object]:
        value = self._get(key)
        if not isinstance(value, list):
            raise self._unexpected(key, value, say("a list"))
        return value

    def _strings(self, key: str) -> list[str]:
        strings: list[str] = []
        for number, value in enumerate(self._list(key)):
            if not isinstance(value, str):
                raise self._unexpected(f"{key}[{number}]", value, say("a string"))
            strings.append(value)
        return strings

    def _type(self, number: object) -> PieceType:
        if not isinstance(number, int) or not 1 <= number <= len(PieceType):
            raise self._unexpected("token_type[…]", number, say("a number from 1 to 6"))
        return PieceType(number)

    def _id(self, key: str, value: object) -> int:
        if not isinstance(value, int) or not 0 <= value < len(self._pieces):
            raise self._unexpected(
                key, value, say("a whole number from 0 to {limit}", limit=len(self._pieces) - 1)
            )
        return value

    def _flag(self, key: str, default: bool) -> bool:
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._unexpected(key, value, say("true or false"))
        return value

    def _same_length(self, key: str, values: Sequence[object]) -> None:
        if len(values) != len(self._pieces):
            raise CutawayError(
                "{key} has {found} usable entries, expected {expected}",
                key=_PREFIX + key,
                found=len(values),
                expected=len(self._pieces),
            )
