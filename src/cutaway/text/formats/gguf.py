"""The vocabulary inside a GGUF file (ggml's `docs/gguf.md`, keys `tokenizer.ggml.*`)."""

import json
import math
from collections.abc import Mapping, Sequence

from cutaway.errors import CutawayError, nearest
from cutaway.text.formats import sentencepiece_rules
from cutaway.text.formats.sentencepiece_rules import Piece, PieceType, Rules
from cutaway.text.rules import byte_level, parts
from cutaway.text.rules.parts import Part
from cutaway.text.tokenizer import Tokenizer

_PREFIX = "tokenizer.ggml."
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

    Models "gpt2" (byte-level BPE, cut by the rule that `tokenizer.ggml.pre` names) and "llama" (SentencePiece
    BPE). Raises CutawayError naming `where` and the key for what is missing, malformed or not known."""
    return _Reader(metadata, where).tokenizer()


class _Reader:
    def __init__(self, metadata: Mapping[str, object], where: str) -> None:
        self._metadata, self._where = metadata, where
        self._pieces = self._strings("tokens")
        types = self._get("token_type")
        if types is None:
            self._types = [PieceType.NORMAL] * len(self._pieces)
        else:
            self._types = [self._type(number) for number in self._list("token_type", types)]
        self._same_length("token_type", self._types)

    def tokenizer(self) -> Tokenizer:
        readers = {"gpt2": self._byte_level, "llama": self._sentencepiece}
        model = self._get("model")
        if not isinstance(model, str) or model not in readers:
            raise CutawayError(
                "{where}: {prefix}model is {model!r}, expected {readers}",
                where=self._where,
                prefix=_PREFIX,
                model=model,
                readers=" or ".join(readers),
            )
        description = readers[model]()
        settings: dict[str, object] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **self._roles(model),
        }
        return Tokenizer(json.dumps(description), settings, self._where)

    # The two models.

    def _byte_level(self) -> Part:
        name = self._get("pre")
        name = "default" if name is None else name
        if not isinstance(name, str) or name not in _CUT_OF:
            hint = nearest(name, _CUT_OF) if isinstance(name, str) else ""
            known = ", ".join(_CUT_OF)
            raise CutawayError(
                "{where}: {prefix}pre is {name!r}{hint}, a rule not known here: {known}",
                where=self._where,
                prefix=_PREFIX,
                name=name,
                hint=hint,
                known=known,
            )
        merges = [self._pair(number, merge) for number, merge in enumerate(self._strings("merges"))]
        vocabulary = parts.numbered(self._pieces, self._where)
        return byte_level.describe(
            vocabulary,
            merges,
            byte_level.CUTS[_CUT_OF[name]],
            added=self._added(),
            prefix_space=self._flag("add_space_prefix", False),
            wrapping=parts.wrapping(vocabulary, self._before(), ()),
        )

    def _sentencepiece(self) -> Part:
        values = self._list("scores", self._get("scores"))
        scores = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
        self._same_length("scores", scores)
        if self._get("token_type") is None:
            pieces = sentencepiece_rules.typed(self._pieces, scores, self._where)
        else:
            columns = zip(self._pieces, scores, self._types, strict=True)
            pieces = [Piece(text, score, type) for text, score, type in columns]
        rules = Rules(
            remove_extra_whitespaces=self._flag("remove_extra_whitespaces", False),
            add_dummy_prefix=self._flag("add_space_prefix", True),
            byte_fallback=any(piece.type is PieceType.BYTE for piece in pieces),
        )
        return sentencepiece_rules.describe("bpe", pieces, rules, self._where, (self._before(), ()))

    def _added(self) -> list[Part]:
        kinds = {PieceType.CONTROL: True, PieceType.UNKNOWN: True, PieceType.USER_DEFINED: False}
        return [
            parts.added_token(id, piece, special=kinds[type])
            for id, (piece, type) in enumerate(zip(self._pieces, self._types, strict=True))
            if type in kinds and piece
        ]

    def _before(self) -> list[str]:
        """What `transformers` puts before a text."""
        bos = self._get("bos_token_id")
        default = self._get("model") == "llama"
        adds = self._flag("add_bos_token", default) and bos is not None
        return [self._pieces[self._id("bos_token_id", bos)]] if adds else []

    def _roles(self, model: str) -> dict[str, object]:
        roles: dict[str, object] = {}
        if model == "llama" and PieceType.UNKNOWN in self._types:
            roles["unk_token"] = self._pieces[self._types.index(PieceType.UNKNOWN)]
        for role, key in _ROLE_KEYS.items():
            value = self._get(key)
            if value is not None and not (role == "unk" and model == "gpt2"):  # bytes leave nothing unknown
                roles[f"{role}_token"] = self._pieces[self._id(key, value)]
        return roles

    # Values of the keys, checked.

    def _get(self, key: str) -> object:
        return self._metadata.get(_PREFIX + key)

    def _list(self, key: str, value: object) -> Sequence[object]:
        if not isinstance(value, list):
            raise CutawayError(
                "{where}: {prefix}{key} is {name}, expected a list",
                where=self._where,
                prefix=_PREFIX,
                key=key,
                name=type(value).__name__,
            )
        return value

    def _strings(self, key: str) -> list[str]:
        strings: list[str] = []
        for number, value in enumerate(self._list(key, self._get(key))):
            if not isinstance(value, str):
                raise CutawayError(
                    "{where}: {prefix}{key}[{number}] is {value!r}, expected a string",
                    where=self._where,
                    prefix=_PREFIX,
                    key=key,
                    number=number,
                    value=value,
                )
            strings.append(value)
        return strings

    def _pair(self, number: int, merge: str) -> tuple[str, str]:
        left, space, right = merge.partition(" ")
        if not (left and space and right) or " " in right:
            place = f"{_PREFIX}merges[{number}]"
            raise CutawayError(
                "{where}: {place} is {merge!r}, expected two pieces and a space between them",
                where=self._where,
                place=place,
                merge=merge,
            )
        return left, right

    def _type(self, number: object) -> PieceType:
        if not isinstance(number, int) or not 1 <= number <= len(PieceType):
            raise CutawayError(
                "{where}: {prefix}token_type has {number!r}, expected 1 to 6",
                where=self._where,
                prefix=_PREFIX,
                number=number,
            )
        return PieceType(number)

    def _id(self, key: str, value: object) -> int:
        if not isinstance(value, int) or not 0 <= value < len(self._pieces):
            limit = len(self._pieces) - 1
            raise CutawayError(
                "{where}: {prefix}{key} is {value!r}, expected a whole number from 0 to {limit}",
                where=self._where,
                prefix=_PREFIX,
                key=key,
                value=value,
                limit=limit,
            )
        return value

    def _flag(self, key: str, default: bool) -> bool:
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise CutawayError(
                "{where}: {prefix}{key} is {value!r}, expected true or false",
                where=self._where,
                prefix=_PREFIX,
                key=key,
                value=value,
            )
        return value

    def _same_length(self, key: str, values: Sequence[object]) -> None:
        if len(values) != len(self._pieces):
            found, expected = len(values), len(self._pieces)
            raise CutawayError(
                "{where}: {prefix}{key} has {found} usable entries, expected {expected}",
                where=self._where,
                prefix=_PREFIX,
                key=key,
                found=found,
                expected=expected,
            )
