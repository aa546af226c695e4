"""Text to ids and back: one interface over the `tokenizers` and `sentencepiece` libraries.

What this adds to them: a user's text never becomes a control token, offsets never overlap where no character is shared,
pieces come as a reader sees them, and ids turn into text as a stream.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from cutaway.errors import CutawayError, about
from cutaway.text.tokens import encoding, learning, tokenizer_json, vocabulary_files
from cutaway.text.tokens.cutting import SETTING, Cutter, LibraryCutter, Replacements, SentencePieceCutter
from cutaway.text.tokens.encoding import Encoding
from cutaway.text.tokens.plan import BERT_ROLES, DEFAULT_ROLES, Kind, Normalization, Plan
from cutaway.text.tokens.sentencepiece_ids import JointVocabulary
from cutaway.text.tokens.vocabulary import ROLES, Vocabulary, check_role, named
from cutaway.words import Phrase, say

_CHUNK = 4096
MOST_GAPS = 100_000  # ids without a piece that are believed whatever the number of pieces


class Tokenizer(Vocabulary):
    """A vocabulary with its rules, as a `tokenizer.json` holds them, and the roles of its control tokens."""

    def __init__(
        self,
        source: str,
        settings: Mapping[str, object],
        where: str = "tokenizer.json",
        joint: JointVocabulary | None = None,
        notes: Sequence[Phrase] = (),
    ) -> None:
        """`source` is the text of a tokenizer.json, `settings` that of tokenizer_config.json (roles of control tokens),
        `joint` the ids of a vocabulary that two sides share, when the file is one side's, `notes` what a reader should
        know of it. Raises CutawayError naming
        `where` for anything malformed."""
        self._source, self._settings, self._joint = source, dict(settings), joint
        self.notes = tuple(notes)
        description = tokenizer_json.read(source, where)
        controls = tokenizer_json.controls(
            description, {name for role in ROLES for name in named(settings, role)}
        )
        kinds = tokenizer_json.decoders(description)
        exact = joint is not None or settings.get(SETTING) is True
        with tokenizer_json.named_failure(say("{where}: malformed vocabulary", where=where)):
            self._by_sentencepiece = exact and SentencePieceCutter.fits(description)
        library = self._library(description, controls, where)
        self._cutter: Cutter = library
        if self._by_sentencepiece:
            self._cutter = SentencePieceCutter(description, controls.values(), where)
        self._decoder = library.engine.decoder
        self._post_processor = description.get("post_processor")
        vocabulary = library.engine.get_vocab(with_added_tokens=True)
        pieces = {id: tokenizer_json.shown(piece) for piece, id in vocabulary.items()} | controls
        size = max(pieces, default=-1) + 1 if joint is None else joint.size
        if joint is None and size > 2 * len(pieces) + MOST_GAPS:
            raise CutawayError(
                "{where}: a piece has the id {id:,}, but there are only {count:,} pieces; "
                "fetch the tokenizer's files again",
                where=where,
                id=size - 1,
                count=len(pieces),
            )
        by_id = [pieces.get(id) for id in range(size)]
        super().__init__(by_id, controls, settings, kinds, where)

    def _library(self, description: dict, hidden: Mapping[int, str], where: str) -> LibraryCutter:
        """The `tokenizers` library with those control tokens out of the reach of any text."""
        charsmap, rest = tokenizer_json.part_charsmap(description)
        replacements = None
        if charsmap is not None and not self._by_sentencepiece:
            kept = [token["content"] for token in description["added_tokens"] if token["id"] not in hidden]
            replacements = Replacements(charsmap, kept, where)
        byte_fallback = "ByteFallback" in tokenizer_json.decoders(description)
        with about(where):
            source = tokenizer_json.without(rest, set(hidden.values()))
        return LibraryCutter(source, replacements, byte_fallback, where)

    @cached_property
    def _cutter_with_controls(self) -> Cutter:
        description = tokenizer_json.read(self._source, self._where)
        library = self._library(description, {}, self._where)
        if not self._by_sentencepiece:
            return library
        return SentencePieceCutter(description, (), self._where, library.engine)

    # Opening, training, saving.

    @classmethod
    def open(cls, path: str | Path, side: Literal["source", "target"] = "source") -> "Tokenizer":
        """Read the tokenizer of a model folder, or one tokenizer file.

        Opened are `tokenizer.json`; SentencePiece models; Marian's `source.spm`, `target.spm` and `vocab.json`, and
        M2M100's; `vocab.json` with `merges.txt`; `vocab.txt` (BERT's); and tiktoken's files. A text is normalised as
        SentencePiece itself does wherever its table of replacements is used, and cut as it does wherever a Unigram
        model of its own was opened, also after `save`. `side` chooses what a pair's text is cut by (ids and decoding
        are the same); it changes nothing where there is one side. Roles come from `tokenizer_config.json` and
        `special_tokens_map.json` beside it when present, otherwise from the usual names (`<pad>`, …). Raises
        CutawayError naming the file and what is wrong with it."""
        tokenizer = cls(*vocabulary_files.read(Path(path)))
        return tokenizer if side == "source" else tokenizer.target

    @staticmethod
    def found_in(folder: str | Path) -> bool:
        """Whether the folder holds a tokenizer of a kind that `open` reads."""
        return vocabulary_files.find(Path(folder)) is not None

    @property
    def target(self) -> "Tokenizer":
        """What target texts are cut by: another tokenizer with the same ids for a pair (Marian), otherwise this one."""
        return self._target or self

    @cached_property
    def _target(self) -> "Tokenizer | None":
        if self._joint is None or self._joint.target is None:
            return None
        source, joint = self._joint.target()
        return Tokenizer(source, self._settings, self._where, joint)

    @classmethod
    def train(
        cls,
        texts: Iterable[str | Path],
        kind: Kind = "bpe",
        vocab_size: int | None = 8000,
        *,
        roles: Mapping[str, str] | None = None,
        controls: Sequence[str] = (),
        languages: Sequence[str] = (),
        normalization: Normalization = "none",
        lowercase: bool = False,
        coverage: float = 0.9995,
        alphabet: int | None = None,
        min_count: int = 2,
        template: str | None = None,
    ) -> "Tokenizer":
        """Learn a vocabulary; see `learning.train` for the kinds and what each keeps exactly.

        `texts` are strings, or paths of plain text files (one text a line, `.gz` or not). `vocab_size` counts
        everything, control tokens and the 256 bytes included; None (kinds `words` and `characters` only) keeps every
        one that occurs `min_count` times. `roles` maps names of `ROLES` to their pieces; `languages` ("eng", "zho")
        become control tokens `>>eng<<`; `controls` are further ones. `alphabet` limits the characters that get a piece
        of their own; otherwise they are the most frequent ones that make up `coverage` of the text. `template` ("$A
        </s>") is what `transformers` wraps around a text; cutaway itself adds nothing. Raises CutawayError for a
        vocabulary too small, an empty text, an unknown kind or role."""
        if roles is None:
            roles = BERT_ROLES if kind == "wordpiece" else DEFAULT_ROLES
        for role in roles:
            check_role(role)
        marks = [f">>{language}<<" for language in languages]
        plan = Plan(
            kind=kind,
            vocab_size=vocab_size,
            controls=tuple(dict.fromkeys([*roles.values(), *marks, *controls])),
            marks=tuple(marks),
            unk=roles.get("unk"),
            normalization=normalization,
            lowercase=lowercase,
            coverage=coverage,
            alphabet=alphabet,
            min_count=min_count,
            template=template,
        )
        settings: dict[str, object] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **{f"{role}_token": piece for role, piece in roles.items()},
        }
        if extra := [*marks, *controls]:
            settings["extra_special_tokens"] = extra
        return cls(learning.train(texts, plan), settings, f"{kind} tokenizer")

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`, which `transformers.AutoTokenizer` opens too; for a joint
        vocabulary its own files instead of `tokenizer.json`, which cannot hold one."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = {"tokenizer.json": self._source.encode()} if self._joint is None else self._joint.files
        settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | self._settings
        text = json.dumps(settings, ensure_ascii=False, indent=2) + "\n"
        for name, data in {**files, "tokenizer_config.json": text.encode()}.items():
            (folder / name).write_bytes(data)

    @cached_property
    def around(self) -> tuple[list[int], list[int]]:
        """The control tokens that the file puts before and after one text (`[CLS]` and `[SEP]` of BERT); `encode` adds
        none. CutawayError for a post-processor that is malformed."""
        before, after = tokenizer_json.around(self._post_processor, self._where)
        for id in (*before, *after):
            # which refuses one that is out of range
            self.piece(id)
        return before, after

    # Text to ids.

    def encode(self, text: str) -> Encoding:
        """Tokenise one text. No control token is added, and none is read out of the text."""
        cut = self._cutter.cut(_valid(text))
        ids = self._numbered(self._cutter, [text], [cut.ids])[0]
        pieces = [self.readable(id) for id in ids]
        return Encoding(ids, pieces, cut.offsets, encoding.groups(text, cut.offsets))

    def encode_ids(self, texts: Sequence[str], controls: bool = False) -> list[list[int]]:
        """Ids of many texts at once, without special tokens added.

        With `controls=True` the spelling of a control token in a text becomes that token, as the `tokenizers` library
        does by default: only for text whose author may steer the model, never for a user's."""
        cutter = self._cutter_with_controls if controls else self._cutter
        ids: list[list[int]] = []
        # the library keeps much more than the ids of each text
        for start in range(0, len(texts), _CHUNK):
            batch = [_valid(text) for text in texts[start : start + _CHUNK]]
            ids.extend(self._numbered(cutter, batch, cutter.ids(batch)))
        return ids

    def _numbered(self, cutter: Cutter, texts: Sequence[str], ids: list[list[int]]) -> list[list[int]]:
        """The ids as a joint vocabulary has them."""
        joint, unk = self._joint, self._roles.get("unk")
        if joint is None or unk is None:
            return ids
        return [
            joint.numbered(cutter.cut(text), unk) if joint.leaves_out(each, unk) else each
            for text, each in zip(texts, ids, strict=True)
        ]

    # Ids to text.

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of the ids; control tokens are left out, or spelled with `skip_special=False` (unk is always
        spelled: it stands for something). Bytes that are no character become U+FFFD. CutawayError for an id out of
        range."""
        pieces = [self.piece(id) for id in ids if not (skip_special and self.is_silent(id))]
        return self._decoder.decode(pieces) if self._decoder is not None else " ".join(pieces)

    def stream(self, skip_special: bool = True) -> "TextStream":
        """A fresh stream: push ids one by one, get text that never cuts a character."""
        return TextStream(self, skip_special)


def _valid(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CutawayError(
            "text has a lone surrogate U+{code:04X} at character {at}, expected Unicode characters",
            code=ord(text[error.start]),
            at=error.start,
        ) from error
    return text


class TextStream:
    """Turns ids into text one by one: the joined deltas equal `tokenizer.decode` of all ids.

    Text is held back while it may still change: an incomplete character, or (with byte fallback, where one bad byte
    spoils its whole run) a run of byte pieces. Only a window from the last settled piece on is decoded again, so a push
    costs the same however long the text is."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._window: list[int] = []  # the last settled piece, if any, and all ids after it
        self._sent = 0  # characters of the decoded window that are out

    def push(self, id: int) -> str:
        """The text that became certain with this id; often one piece, sometimes nothing."""
        if self._skip_special and self._tokenizer.is_silent(id):
            return ""
        self._window.append(id)
        if self._tokenizer.is_byte(id):
            return ""
        text = self._tokenizer.decode(self._window, skip_special=False)
        settled = text.rstrip("\ufffd")
        delta = settled[self._sent :]
        if settled == text:
            self._window = [id]
            self._sent = len(self._tokenizer.decode(self._window, skip_special=False))
        else:
            self._sent = max(self._sent, len(settled))
        return delta

    def finish(self) -> str:
        """What is still held back, as `decode` gives it (a character that was never completed becomes U+FFFD)."""
        delta = self._tokenizer.decode(self._window, skip_special=False)[self._sent :] if self._window else ""
        self._window, self._sent = [], 0
        return delta
