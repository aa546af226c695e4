"""Text cut into pieces, with their places in it: by the `tokenizers` library, or by sentencepiece itself.

Where two ways to cut a text are equally probable (11|111 and 111|11), rounding decides: the `tokenizers` library adds
in 64 bits, sentencepiece in 32, and a Unigram model that was trained with sentencepiece has seen only its choice. The
libraries read a compiled table of replacements (`precompiled_charsmap`) differently too: sentencepiece replaces the
longest spelling at each place, `tokenizers` a whole grapheme by what its shortest beginning gives, so that `か` and
U+3099 stay two characters. Here sentencepiece's reading holds, which models were trained with.
"""

import base64
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import tokenizers

from cutaway.errors import about
from cutaway.text.tokens import encoding, tokenizer_json
from cutaway.text.tokens.encoding import BYTE_PIECE, Cut, Spans
from cutaway.text.tokens.sentencepiece_model import (
    Piece,
    PieceType,
    Rules,
    SentencePieceModel,
    processor,
    written,
)
from cutaway.words import Phrase, say

# In tokenizer_config.json: the tokenizer.json was a SentencePiece Unigram model.
SETTING = "sentencepiece_unigram"
_FEW = 50


class LibraryCutter:
    """Cuts as the `tokenizers` library does; a table of replacements is read as sentencepiece reads it."""

    def __init__(self, source: str, charsmap: "Replacements | None", byte_fallback: bool, where: str) -> None:
        """`source` is the text of a tokenizer.json without that table."""
        with about(where):
            self.engine = tokenizer_json.build(source)
        self._charsmap, self._byte_fallback = charsmap, byte_fallback
        # For one, where the unknown piece is missing.
        self._failure = say("{where}: cannot tokenise", where=where)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts."""
        if self._charsmap is not None:
            texts = [self._charsmap.text(text) for text in texts]
        with tokenizer_json.named_failure(self._failure):
            return [found.ids for found in self.engine.encode_batch_fast(texts, add_special_tokens=False)]

    def cut(self, text: str) -> Cut:
        """One text, with places."""
        normal, spans = (text, None) if self._charsmap is None else self._charsmap.aligned(text)
        with tokenizer_json.named_failure(self._failure):
            found = self.engine.encode(normal, add_special_tokens=False)
        surfaces = [normal[start:end] for start, end in found.offsets]
        offsets = self._offsets(normal, found)
        if spans is not None:
            offsets = encoding.traced(offsets, spans, len(text))
        return Cut(found.ids, offsets, surfaces)

    def _offsets(self, text: str, found: tokenizers.Encoding) -> Spans:
        """The places of the pieces in a text. Where it is normalised, they are those in the normalised text traced back
        cluster by cluster: what the library gives for composed characters misses their marks and runs back."""
        normalizer = self.engine.normalizer
        if normalizer is not None and (new := normalizer.normalize_str(text)) != text:
            again = self._normalised.encode(new, add_special_tokens=False)
            spans = encoding.aligned(text, new, normalizer.normalize_str)
            if again.ids == found.ids and spans is not None:
                return encoding.traced(self._settled(new, again), spans, len(text))
        return self._settled(text, found)

    def _settled(self, text: str, found: tokenizers.Encoding) -> Spans:
        offsets = encoding.settle(text, found.tokens, found.offsets)
        return encoding.share_out(found.tokens, offsets) if self._byte_fallback else offsets

    @cached_property
    def _normalised(self) -> tokenizers.Tokenizer:
        """The same for texts that are normalised already; it shares the model."""
        engine = tokenizers.Tokenizer(self.engine.model)
        if self.engine.pre_tokenizer is not None:
            engine.pre_tokenizer = self.engine.pre_tokenizer
        engine.add_tokens([token for _, token in sorted(self.engine.get_added_tokens_decoder().items())])
        return engine


class Replacements:
    """A compiled table of replacements, as sentencepiece reads it. The spellings in `kept` stay as they are."""

    def __init__(self, encoded: str, kept: Collection[str], where: str) -> None:
        """`encoded` is the table in base64. CutawayError naming `where` for a malformed one."""
        self._failure = _malformed_table(where)
        # The library wants an unknown and a normal piece.
        pieces = [Piece(tokenizer_json.UNREACHABLE, 0.0, PieceType.UNKNOWN)]
        pieces.append(Piece(2 * tokenizer_json.UNREACHABLE, 0.0, PieceType.NORMAL))
        pieces += [Piece(text, 0.0, PieceType.USER_DEFINED) for text in dict.fromkeys(kept)]
        rules = Rules(_table(encoded, where), False, False, False, False)
        self._processor = processor(written(SentencePieceModel("unigram", pieces, rules)), where)
        # which refuses a table that it cannot follow
        self.text(" ")

    def text(self, text: str) -> str:
        """The text with its replacements made."""
        with tokenizer_json.named_failure(self._failure):
            return self._processor.normalize(text)

    def aligned(self, text: str) -> tuple[str, Spans]:
        """The new text, and for each of its characters the part of the old text that it stands for."""
        with tokenizer_json.named_failure(self._failure):
            new, places = self._processor.normalize(text, with_offsets=True)
        return new, _spans(places)


def _malformed_table(where: str) -> Phrase:
    return say("{where}: malformed precompiled_charsmap", where=where)


def _table(encoded: str, where: str) -> bytes:
    with tokenizer_json.named_failure(_malformed_table(where)):
        return base64.b64decode(encoded, validate=True)


def _spans(places: Sequence[int]) -> Spans:
    """What each character of a normalised text stands for, from the places where these begin in the original, and at
    last its end: up to the next greater place."""
    spans: Spans = []
    end = places[-1]
    for start, following in zip(places[-2::-1], places[:0:-1], strict=True):
        end = following if following > start else end
        spans.append((start, end))
    return spans[::-1]


class SentencePieceCutter:
    """Cuts by a SentencePiece Unigram model as the sentencepiece library does: the library itself does it."""

    def __init__(
        self,
        description: Mapping,
        hidden: Collection[str],
        where: str,
        marks: tokenizers.Tokenizer | None = None,
    ) -> None:
        """`description` is the tokenizer.json that `sentencepiece_model.describe` makes; no text becomes a piece that
        is in `hidden`. `marks` finds control tokens in a text; what stands between two is cut by itself."""
        self._description, self._hidden, self._where, self._marks = description, hidden, where, marks
        self._failure = say("{where}: cannot tokenise", where=where)

    @staticmethod
    def fits(description: Mapping) -> bool:
        """Whether every added token is a piece of the model that sentencepiece finds by its search, or a control token:
        others, as of `added_tokens.json`, are for the `tokenizers` library to find."""
        model = description["model"]
        if model.get("type") != "Unigram" or model.get("unk_id") is None:
            return False
        own = {piece for piece, _ in model["vocab"]}
        return all(
            not token.get("normalized") if token.get("special") else token["content"] in own
            for token in description["added_tokens"]
        )

    @cached_property
    def _model(self) -> SentencePieceModel:
        """The model that was described."""
        description, model = self._description, self._description["model"]
        special = {token["content"]: bool(token.get("special")) for token in description["added_tokens"]}
        names = {piece for piece, _ in model["vocab"]}
        bytes_ = bool(model.get("byte_fallback")) and all(f"<0x{byte:02X}>" in names for byte in range(256))

        def kind(id: int, piece: str) -> PieceType:
            if id == model["unk_id"]:
                return PieceType.UNKNOWN
            if piece.startswith(tokenizer_json.UNREACHABLE):
                return PieceType.UNUSED
            if bytes_ and BYTE_PIECE.fullmatch(piece):
                return PieceType.BYTE
            if piece not in special:
                return PieceType.NORMAL
            return PieceType.CONTROL if special[piece] or piece in self._hidden else PieceType.USER_DEFINED

        pieces = [
            Piece(piece, float(score), kind(id, piece)) for id, (piece, score) in enumerate(model["vocab"])
        ]
        encoded, rest = tokenizer_json.part_charsmap(description)
        steps = rest["normalizer"]["normalizers"]
        patterns = [step.get("pattern", {}).get("Regex", "") for step in steps]
        rules = Rules(
            charsmap=_table(encoded, self._where) if encoded is not None else b"",
            remove_extra_whitespaces=r" {2,}" in patterns,
            add_dummy_prefix=any(step["type"] == "Prepend" for step in steps)
            or any(pattern.startswith(r"\A(?!") for pattern in patterns),
            byte_fallback=bytes_,
        )
        return SentencePieceModel("unigram", pieces, rules)

    @cached_property
    def _processor(self):
        return processor(written(self._model), self._where)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts."""
        if self._marks is not None:
            return [self.cut(text).ids for text in texts]
        with tokenizer_json.named_failure(self._failure):
            encode = self._processor.encode
            # The library's threads take longer to start than a few texts to cut.
            return encode(list(texts)) if len(texts) > _FEW else [encode(text) for text in texts]

    def cut(self, text: str) -> Cut:
        """One text, with places."""
        whole = Cut([], [], [])
        start = 0
        with tokenizer_json.named_failure(self._failure):
            for mark, stop, end in [*self._controls(text), (None, len(text), len(text))]:
                part = self._cut(text[start:stop])
                whole.ids.extend(part.ids)
                whole.offsets.extend((start + first, start + last) for first, last in part.offsets)
                whole.surfaces.extend(part.surfaces)
                if mark is not None:
                    whole.ids.append(mark)
                    whole.offsets.append((stop, end))
                    whole.surfaces.append(text[stop:end])
                start = end
        return whole

    def _controls(self, text: str) -> list[tuple[int, int, int]]:
        """The control tokens in a text, each with where it begins and ends."""
        if self._marks is None:
            return []
        added = self._description["added_tokens"]
        special = {token["id"]: token["content"] for token in added if token["special"]}
        found = self._marks.encode(text, add_special_tokens=False)
        return [
            (id, begin, end)
            for id, (begin, end) in zip(found.ids, found.offsets, strict=True)
            if id in special and special[id] in text[begin:end]
        ]

    def _cut(self, text: str) -> Cut:
        found = self._processor.encode(text, return_type="offset_mapping")
        _, places = self._processor.normalize(text, with_offsets=True)
        spans = _spans(places)
        offsets: Spans = []
        at = 0  # in the normalised text
        for id, piece in zip(found["ids"], found["pieces"], strict=True):
            is_byte = self._model.pieces[id].type is PieceType.BYTE
            # further bytes of a character
            if is_byte and int(piece[3:5], 16) & 0xC0 == 0x80:
                offsets.append(offsets[-1])
                continue
            stop = at + (1 if is_byte else len(piece))
            prefix = piece == "▁" and at == 0 and self._model.rules.add_dummy_prefix
            offsets.append((spans[at][0], spans[at][0] if prefix else spans[stop - 1][1]))
            at = stop
        return Cut(found["ids"], offsets, found["pieces"])


Cutter = LibraryCutter | SentencePieceCutter
