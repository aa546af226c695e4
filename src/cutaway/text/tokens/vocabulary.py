"""A vocabulary: pieces with their ids, which of them are control tokens, and the roles of those."""

from collections.abc import Mapping, Sequence

from cutaway.errors import CutawayError, nearest
from cutaway.text import display
from cutaway.text.tokens import byte_level
from cutaway.text.tokens.encoding import BYTE_PIECE
from cutaway.words import names_of

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


class Vocabulary:
    """Pieces by id. What text becomes is the business of `Tokenizer`."""

    def __init__(
        self,
        pieces: Sequence[str | None],
        controls: Mapping[int, str],
        settings: Mapping[str, object],
        decoders: set[str],
        where: str,
    ) -> None:
        """`pieces` by id, None where an id has none; `settings` name the roles (`pad_token`, …); `decoders` are the
        types of a tokenizer.json's decoder, which say how bytes are spelled."""
        self._pieces = list(pieces)
        self._ids = {piece: id for id, piece in enumerate(pieces) if piece is not None}
        self._controls = dict(controls)
        self._where = where
        self._byte_level = "ByteLevel" in decoders
        self._byte_fallback = "ByteFallback" in decoders
        by_content = {content: id for id, content in controls.items()}
        found = {role: [name for name in named(settings, role) if name in by_content] for role in ROLES}
        self._roles = {role: by_content[names[0]] for role, names in found.items() if names}

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
        check_role(name)
        return self._roles.get(name)

    def require(self, name: str) -> int:
        """Like `role`, but a missing one is a CutawayError that names it and those there are."""
        id = self.role(name)
        if id is None:
            raise CutawayError(
                "{where}: no {name} token, which is needed here (roles there: {roles})",
                where=self._where,
                name=name,
                roles=names_of(self._roles) if self._roles else "—",
            )
        return id

    def id(self, piece: str) -> int | None:
        """Id of a piece as the vocabulary spells it (control tokens included), or None."""
        return self._ids.get(piece)

    def piece(self, id: int) -> str:
        """The piece as the vocabulary spells it. CutawayError for an id out of range."""
        piece = self._pieces[id] if 0 <= id < len(self._pieces) else None
        if piece is None:
            raise CutawayError(
                "{where}: no piece has id {id} (expected 0 to {last})",
                where=self._where,
                id=id,
                last=len(self._pieces) - 1,
            )
        return piece

    def is_control(self, id: int) -> bool:
        return id in self._controls

    def is_silent(self, id: int) -> bool:
        """Whether `decode` leaves the id out: a control token other than unk."""
        return id in self._controls and id != self._roles.get("unk")

    def is_byte(self, id: int) -> bool:
        """Whether the id is one byte of a character outside the vocabulary (`<0xE4>`)."""
        return self._byte_fallback and BYTE_PIECE.fullmatch(self.piece(id)) is not None

    def readable(self, id: int) -> str:
        """One piece as a reader sees it (see `text.display.readable`)."""
        piece = self.piece(id)
        if id in self._controls:
            return piece
        if self._byte_fallback and BYTE_PIECE.fullmatch(piece):
            return display.readable(bytes([int(piece[3:5], 16)]))
        if self._byte_level:
            return display.readable(byte_level.bytes_of(piece))
        return display.visible(piece)


def check_role(name: str) -> None:
    """CutawayError for what is none of `ROLES`."""
    if name not in ROLES:
        raise CutawayError(
            "unknown role {name!r}{hint}; roles: {roles}",
            name=name,
            hint=nearest(name, ROLES),
            roles=names_of(ROLES),
        )


def named(settings: Mapping[str, object], role: str) -> tuple[str, ...]:
    """The spellings that the control token of a role may have, best first."""
    if not any(f"{each}_token" in settings for each in ROLES):
        return _USUAL[role]
    given = settings.get(f"{role}_token")
    content = given.get("content") if isinstance(given, dict) else given
    return (content,) if isinstance(content, str) else ()
