"""Text to ids and back: one interface over the `tokenizers` library.

What this adds to the library: text of a user never becomes a control token, offsets never overlap where no
character is shared, pieces come as a reader sees them, and ids turn into text as a stream.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tokenizers

from cutaway import config
from cutaway.errors import CutawayError, nearest
from cutaway.text import display, offsets, tokenizer_json, training
from cutaway.text.plan import BERT_ROLES, DEFAULT_ROLES, Kind, Normalization, Plan
from cutaway.text.stream import TextStream

ROLES = ("pad", "unk", "bos", "eos", "mask", "cls", "sep")
_USUAL = {
    "pad": ("<pad>", "[PAD]", "<|pad|>"),
    "unk": ("<unk>", "[UNK]"),
    "bos": ("<s>", "<bos>", "[BOS]", "<|begin_of_text|>"),
    "eos": ("</s>", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>"),
    "mask": ("<mask>", "[MASK]"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
}
_CHUNK = 4096


@dataclass(frozen=True)
class Encoding:
    """One text, tokenised: the four lists describe the same pieces, `characters` groups them."""

    ids: list[int]
    pieces: list[str]  # as a reader sees them: spaces as ▁, single bytes of a character as ⟨E4⟩, never U+FFFD
    offsets: list[tuple[int, int]]  # code points of the original text; pieces of one character share its span
    characters: list[
        tuple[int, ...]
    ]  # every piece once; those that share a character or cluster are together


class Tokenizer:
    """A vocabulary with its rules, as a `tokenizer.json` holds them, and the roles of its control tokens."""

    def __init__(self, source: str, settings: Mapping[str, object], where: str = "tokenizer.json") -> None:
        """`source` is the text of a tokenizer.json, `settings` that of tokenizer_config.json (roles of
        control tokens). Raises CutawayError naming `where` for anything malformed."""
        self._source = source
        self._settings = dict(settings)
        self._where = where
        description = tokenizer_json.read(source, where)
        named = {role: _named(self._settings, role) for role in ROLES}
        given = {content for contents in named.values() for content in contents}
        self._controls = tokenizer_json.controls(description, given)
        by_content = {content: id for id, content in self._controls.items()}
        self._roles: dict[str, int] = {}
        for role, contents in named.items():
            if found := [by_content[content] for content in contents if content in by_content]:
                self._roles[role] = found[0]
        self._encoder = tokenizer_json.build(
            tokenizer_json.without(description, set(by_content), where), where
        )
        vocabulary = self._encoder.get_vocab(with_added_tokens=True)
        pieces = {id: piece for piece, id in vocabulary.items()} | self._controls
        self._pieces: list[str | None] = [pieces.get(id) for id in range(max(pieces, default=-1) + 1)]
        self._ids = {piece: id for id, piece in pieces.items()}
        decoders = tokenizer_json.decoders(description)
        self._byte_level = "ByteLevel" in decoders
        self._byte_fallback = "ByteFallback" in decoders

    # Opening, training, saving.

    @classmethod
    def open(cls, path: str | Path) -> "Tokenizer":
        """Read a `tokenizer.json`, or a folder that holds one; roles come from `tokenizer_config.json` and
        `special_tokens_map.json` beside it when present, otherwise from the usual names (`<pad>`, …).
        Raises CutawayError naming the file and what is wrong with it."""
        path = Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            beside = sorted(other.name for other in file.parent.glob("*")) if file.parent.is_dir() else []
            found = f"; the folder holds {', '.join(beside[:8])}" if beside else ""
            raise CutawayError(f"{path}: no tokenizer there (expected {file}){found}")
        try:
            source = file.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise CutawayError(f"{file}: not UTF-8 at byte {error.start}, expected a JSON file") from error
        settings: dict[str, object] = {}
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            if (file.parent / name).is_file():
                settings |= config.read_json(file.parent / name)
        return cls(source, settings, str(file))

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
                raise CutawayError(f"unknown role {role!r}{nearest(role, ROLES)}; roles: {', '.join(ROLES)}")
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
        """Write `tokenizer.json` and `tokenizer_config.json`, which `transformers.AutoTokenizer` opens
        too."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(self._source, encoding="utf-8", newline="\n")
        settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | self._settings
        text = json.dumps(settings, ensure_ascii=False, indent=2) + "\n"
        (folder / "tokenizer_config.json").write_text(text, encoding="utf-8", newline="\n")

    # The vocabulary.

    @property
    def vocab_size(self) -> int:
        """Number of ids, control tokens included: one more than the largest id."""
        return len(self._pieces)

    @property
    def controls(self) -> dict[int, str]:
        """Id and content of every control token; text never encodes to one of them."""
        return dict(self._controls)

    @property
    def roles(self) -> dict[str, int]:
        """The roles that this tokenizer has, with their ids."""
        return dict(self._roles)

    def role(self, name: str) -> int | None:
        """Id of the control token with that role (one of `ROLES`), or None."""
        if name not in ROLES:
            raise CutawayError(f"unknown role {name!r}{nearest(name, ROLES)}; roles: {', '.join(ROLES)}")
        return self._roles.get(name)

    def require(self, name: str) -> int:
        """Like `role`, but a missing one is a CutawayError that names it and those there are."""
        id = self.role(name)
        if id is None:
            there = ", ".join(self._roles) or "none"
            raise CutawayError(f"{self._where}: no {name} token, which is needed here (roles there: {there})")
        return id

    def id(self, piece: str) -> int | None:
        """Id of a piece as the vocabulary spells it (control tokens included), or None."""
        return self._ids.get(piece)

    def piece(self, id: int) -> str:
        """The piece as the vocabulary spells it. CutawayError for an id out of range."""
        piece = self._pieces[id] if 0 <= id < len(self._pieces) else None
        if piece is None:
            raise CutawayError(f"{self._where}: no piece has id {id} (expected 0 to {len(self._pieces) - 1})")
        return piece

    def is_control(self, id: int) -> bool:
        return id in self._controls

    def is_silent(self, id: int) -> bool:
        """Whether `decode` leaves the id out: a control token other than unk."""
        return id in self._controls and id != self._roles.get("unk")

    def is_byte(self, id: int) -> bool:
        """Whether the id is one byte of a character outside the vocabulary (`<0xE4>`)."""
        return self._byte_fallback and offsets.BYTE_PIECE.fullmatch(self.piece(id)) is not None

    def readable(self, id: int) -> str:
        """One piece as a reader sees it (see `text.display.readable`)."""
        piece = self.piece(id)
        if id in self._controls:
            return piece
        if self._byte_fallback and offsets.BYTE_PIECE.fullmatch(piece):
            return display.readable(bytes([int(piece[3:5], 16)]))
        if self._byte_level:
            data = bytes(_BYTE_OF[c] for c in piece) if all(c in _BYTE_OF for c in piece) else piece.encode()
            return display.readable(data)
        return display.visible(piece)

    # Text to ids.

    def encode(self, text: str) -> Encoding:
        """Tokenise one text. No control token is added, and none is read out of the text."""
        encoded = self._run(self._encoder, [text], fast=False)[0]
        ids = encoded.ids
        pieces = [self.piece(id) for id in ids]
        settled = offsets.settle(text, pieces, encoded.offsets)
        if self._byte_fallback:
            settled = offsets.share_out(pieces, settled)
        return Encoding(ids, [self.readable(id) for id in ids], settled, offsets.groups(text, settled))

    def encode_ids(self, texts: Sequence[str], controls: bool = False) -> list[list[int]]:
        """Ids of many texts at once, without special tokens added.

        With `controls=True` the spelling of a control token in a text becomes that token, as the `tokenizers`
        library does by default: only for text whose author may steer the model, never for a user's."""
        encoder = self._with_controls if controls else self._encoder
        ids: list[list[int]] = []
        for start in range(0, len(texts), _CHUNK):  # the library keeps much more than the ids of each text
            batch = self._run(encoder, texts[start : start + _CHUNK], fast=True)
            ids.extend(encoded.ids for encoded in batch)
        return ids

    def _run(
        self, encoder: tokenizers.Tokenizer, texts: Sequence[str], fast: bool
    ) -> list[tokenizers.Encoding]:
        """`fast` leaves offsets out."""
        batch = [_valid(text) for text in texts]
        run = encoder.encode_batch_fast if fast else encoder.encode_batch
        try:
            return run(batch, add_special_tokens=False)
        except Exception as error:  # the library's way to say that, for one, the unknown piece is missing
            raise CutawayError(f"{self._where}: cannot tokenise: {error}") from error

    @cached_property
    def _with_controls(self) -> tokenizers.Tokenizer:
        encoder = tokenizer_json.build(self._source, self._where)
        encoder.no_padding()
        encoder.no_truncation()
        return encoder

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


def _named(settings: Mapping[str, object], role: str) -> tuple[str, ...]:
    """The spellings that the control token of a role may have, best first."""
    if not any(f"{each}_token" in settings for each in ROLES):
        return _USUAL[role]
    given = settings.get(f"{role}_token")
    content = given.get("content") if isinstance(given, dict) else given
    return (content,) if isinstance(content, str) else ()


def _valid(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CutawayError(
            f"text has a lone surrogate U+{ord(text[error.start]):04X} at character {error.start}, "
            "expected Unicode characters"
        ) from error
    return text


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character for each byte (`bytes_to_unicode` of its encoder.py), inverted."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()
