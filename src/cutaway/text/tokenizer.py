"""Text to ids and back: one interface over the `tokenizers` library.

What this adds to the library: text of a user never becomes a control token, offsets never overlap where no
character is shared, pieces come as a reader sees them, and ids turn into text as a stream.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import tokenizers

from cutaway.errors import CutawayError, nearest
from cutaway.text import offsets, training
from cutaway.text.formats import files as tokenizer_files
from cutaway.text.formats.joint import JointVocabulary
from cutaway.text.plan import BERT_ROLES, DEFAULT_ROLES, Kind, Normalization, Plan
from cutaway.text.rules import post_processor, tokenizer_json
from cutaway.text.rules.charsmap import Charsmap
from cutaway.text.rules.unigram import SETTING, Cut, Unigram
from cutaway.text.stream import TextStream
from cutaway.text.vocabulary import ROLES, Vocabulary, named

_CHUNK = 4096
MOST_GAPS = 100_000  # ids without a piece that are believed whatever the number of pieces


@dataclass(frozen=True)
class Encoding:
    """One text, tokenised: the four lists describe the same pieces, `characters` groups them."""

    ids: list[int]
    pieces: list[str]  # as a reader sees them: spaces as ▁, single bytes of a character as ⟨E4⟩, never U+FFFD
    offsets: list[tuple[int, int]]  # code points of the original text; pieces of one character share its span
    characters: list[
        tuple[int, ...]
    ]  # every piece once; those that share a character or cluster are together


class Tokenizer(Vocabulary):
    """A vocabulary with its rules, as a `tokenizer.json` holds them, and the roles of its control tokens."""

    def __init__(
        self,
        source: str,
        settings: Mapping[str, object],
        where: str = "tokenizer.json",
        joint: JointVocabulary | None = None,
    ) -> None:
        """`source` is the text of a tokenizer.json, `settings` that of tokenizer_config.json (roles of
        control tokens), `joint` the ids of a vocabulary that two sides share, when the file is one side's.
        Raises CutawayError naming `where` for anything malformed."""
        self._source = source
        self._settings = dict(settings)
        self._joint = joint
        description = tokenizer_json.read(source, where)
        controls = tokenizer_json.controls(
            description, {name for role in ROLES for name in named(settings, role)}
        )
        encoded, library_part = tokenizer_json.part_charsmap(description)
        own = [token["content"] for token in description["added_tokens"] if token["id"] not in controls]
        self._charsmap = Charsmap(encoded, own, where) if encoded is not None else None
        without = tokenizer_json.without(library_part, set(controls.values()), where)
        self._encoder = tokenizer_json.build(without, where)
        exact = (joint is not None or settings.get(SETTING) is True) and Unigram.fits(description)
        normalizer = self._encoder.normalizer
        self._unigram = Unigram(description, controls.values(), normalizer) if exact else None
        self._post_processor = description.get("post_processor")
        vocabulary = self._encoder.get_vocab(with_added_tokens=True)
        pieces = {id: tokenizer_json.shown(piece) for piece, id in vocabulary.items()} | controls
        size = max(pieces, default=-1) + 1 if joint is None else joint.size
        if joint is None and size > 2 * len(pieces) + MOST_GAPS:
            raise CutawayError(
                "{where}: a piece has the id {size:,}, but there are only {count:,} pieces",
                where=where,
                size=size - 1,
                count=len(pieces),
            )
        by_id = [pieces.get(id) for id in range(size)]
        super().__init__(by_id, controls, settings, tokenizer_json.decoders(description), where)

    # Opening, training, saving.

    @classmethod
    def open(cls, path: str | Path, side: Literal["source", "target"] = "source") -> "Tokenizer":
        """Read the tokenizer of a model folder, or one tokenizer file.

        Opened are `tokenizer.json`; SentencePiece models; Marian's `source.spm`, `target.spm` and
        `vocab.json`, and M2M100's; `vocab.json` with `merges.txt`; `vocab.txt` (BERT's); and tiktoken's files. A
        text is normalised as SentencePiece itself does wherever its table of replacements is used, and cut as it
        does wherever a Unigram model of its own was opened, also after `save`. `side` chooses
        what a pair's text is cut by (ids and decoding are the same); it changes nothing where there is one
        side. Roles come from `tokenizer_config.json` and `special_tokens_map.json` beside it when present,
        otherwise from the usual names (`<pad>`, …). Raises CutawayError naming the file and what is wrong with
        it."""
        opened = tokenizer_files.read(Path(path))
        tokenizer = cls(opened.source, opened.settings, opened.where, opened.joint)
        return tokenizer if side == "source" else tokenizer.target

    @staticmethod
    def found_in(folder: str | Path) -> bool:
        """Whether the folder holds a tokenizer of a kind that `open` reads."""
        return tokenizer_files.find(Path(folder)) is not None

    @property
    def target(self) -> "Tokenizer":
        """What target texts are cut by: another tokenizer with the same ids for a pair (Marian), otherwise
        this one."""
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
        """Learn a vocabulary; see `training.train` for the kinds and what each keeps exactly.

        `texts` are strings, or paths of plain text files (one text a line, `.gz` or not). `vocab_size` counts
        everything, control tokens and the 256 bytes included; None (kinds `words` and `characters` only)
        keeps every one that occurs `min_count` times. `roles` maps names of `ROLES` to their pieces;
        `languages` ("eng", "zho") become control tokens `>>eng<<`; `controls` are further ones. `alphabet`
        limits the characters that get a piece of their own; otherwise they are the most frequent ones that
        make up `coverage` of the text. `template` ("$A </s>") is what `transformers` wraps around a text;
        cutaway itself adds nothing.
        Raises CutawayError for a vocabulary too small, an empty text, an unknown kind or role."""
        if roles is None:
            roles = BERT_ROLES if kind == "wordpiece" else DEFAULT_ROLES
        for role in roles:
            if role not in ROLES:
                raise CutawayError(
                    "unknown role {role!r}{hint}; roles: {roles}",
                    role=role,
                    hint=nearest(role, ROLES),
                    roles=", ".join(ROLES),
                )
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
        return cls(training.train(texts, plan), settings, f"{kind} tokenizer")

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`, which `transformers.AutoTokenizer` opens too;
        for a joint vocabulary its own files instead of `tokenizer.json`, which cannot hold one."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = {"tokenizer.json": self._source.encode()} if self._joint is None else self._joint.files
        settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | self._settings
        text = json.dumps(settings, ensure_ascii=False, indent=2) + "\n"
        for name, data in {**files, "tokenizer_config.json": text.encode()}.items():
            (folder / name).write_bytes(data)

    @cached_property
    def around(self) -> tuple[list[int], list[int]]:
        """The control tokens that the file puts before and after one text (`[CLS]` and `[SEP]` of BERT); `encode`
        adds none. CutawayError for a post-processor that is malformed."""
        before, after = post_processor.around(self._post_processor, self._where)
        for id in (*before, *after):
            self.piece(id)  # which refuses one that is out of range
        return before, after

    # Text to ids.

    def encode(self, text: str) -> Encoding:
        """Tokenise one text. No control token is added, and none is read out of the text."""
        cut = _valid(text)
        spans: list[tuple[int, int]] | None = None
        if self._charsmap is not None:
            cut, spans = self._charsmap.aligned(cut)
        encoded = self._run(self._encoder, [cut], fast=False)[0]
        pieces = [self._spelling(id) for id in encoded.ids]
        settled = offsets.settle(cut, pieces, encoded.offsets)
        if self._byte_fallback:
            settled = offsets.share_out(pieces, settled)
        if spans is not None:
            settled = offsets.traced(settled, spans, len(text))
        ids = self._numbered(self._encoder, [cut], [encoded.ids])[0]
        return Encoding(ids, [self.readable(id) for id in ids], settled, offsets.groups(text, settled))

    def encode_ids(self, texts: Sequence[str], controls: bool = False) -> list[list[int]]:
        """Ids of many texts at once, without special tokens added.

        With `controls=True` the spelling of a control token in a text becomes that token, as the `tokenizers`
        library does by default: only for text whose author may steer the model, never for a user's."""
        encoder, charsmap = self._with_controls if controls else (self._encoder, self._charsmap)
        ids: list[list[int]] = []
        for start in range(0, len(texts), _CHUNK):  # the library keeps much more than the ids of each text
            batch = [_valid(text) for text in texts[start : start + _CHUNK]]
            if charsmap is not None:
                batch = [charsmap.text(text) for text in batch]
            found = [cut.ids for cut in self._run(encoder, batch, fast=True)]
            if self._joint is not None:
                found = self._numbered(encoder, batch, found)
            ids.extend(found)
        return ids

    def _numbered(
        self, encoder: tokenizers.Tokenizer, texts: Sequence[str], ids: list[list[int]]
    ) -> list[list[int]]:
        """The ids as a joint vocabulary has them."""
        joint, unk = self._joint, self._roles.get("unk")
        if joint is None or unk is None:
            return ids
        numbered = list(ids)
        changed = [index for index, each in enumerate(ids) if joint.leaves_out(each, unk)]
        again = self._run(encoder, [texts[index] for index in changed], fast=False)
        for index, cut in zip(changed, again, strict=True):
            numbered[index] = joint.numbered(texts[index], cut.ids, cut.offsets, unk)
        return numbered

    def _spelling(self, id: int) -> str:
        """The piece, also for one that a joint vocabulary leaves out."""
        return self.piece(id) if id < len(self._pieces) else self._encoder.id_to_token(id) or ""

    def _run(self, encoder: tokenizers.Tokenizer, texts: Sequence[str], fast: bool) -> list[Cut]:
        """`fast` leaves offsets out."""
        if self._unigram is not None and encoder is self._encoder:
            return [self._unigram.cut(text, fast) for text in texts]
        unigram = self._unigram and self._unigram_with_controls
        run = encoder.encode_batch_fast if fast and unigram is None else encoder.encode_batch
        with tokenizer_json.told(
            f"{self._where}: cannot tokenise"
        ):  # for one, where the unknown piece is missing
            found = run(texts, add_special_tokens=False)
        if unigram is not None:
            return [unigram.between(text, each, fast) for text, each in zip(texts, found, strict=True)]
        return [Cut(encoded.ids, [] if fast else encoded.offsets) for encoded in found]

    @cached_property
    def _unigram_with_controls(self) -> Unigram:
        return Unigram(tokenizer_json.read(self._source, self._where), (), self._encoder.normalizer)

    @cached_property
    def _with_controls(self) -> tuple[tokenizers.Tokenizer, Charsmap | None]:
        description = tokenizer_json.read(self._source, self._where)
        encoded, library_part = tokenizer_json.part_charsmap(description)
        added = [token["content"] for token in description["added_tokens"]]
        charsmap = Charsmap(encoded, added, self._where) if encoded is not None else None
        source = self._source if encoded is None else json.dumps(library_part)
        encoder = tokenizer_json.build(source, self._where)
        encoder.no_padding()
        encoder.no_truncation()
        return encoder, charsmap

    # Ids to text.

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of the ids; control tokens are left out, or spelled with `skip_special=False` (unk is always
        spelled: it stands for something). Bytes that are no character become U+FFFD. CutawayError for an id out of
        range."""
        pieces = [self.piece(id) for id in ids if not (skip_special and self.is_silent(id))]
        decoder = self._encoder.decoder
        return decoder.decode(pieces) if decoder is not None else " ".join(pieces)

    def stream(self, skip_special: bool = True) -> TextStream:
        """A fresh stream: push ids one by one, get text that never cuts a character."""
        return TextStream(self, skip_special)


def _valid(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CutawayError(
            "text has a lone surrogate U+{ord:04X} at character {start}, expected Unicode characters",
            ord=ord(text[error.start]),
            start=error.start,
        ) from error
    return text
