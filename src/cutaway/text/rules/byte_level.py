"""Byte-level BPE (GPT-2 and its heirs): text is cut by a rule, each part is written in UTF-8 bytes, and bytes
merge into pieces."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cutaway.text.rules import parts
from cutaway.text.rules.parts import Part


@dataclass(frozen=True)
class Cut:
    """How text is cut before bytes merge: `patterns` one after the other, each match a part, and what lies
    between matches too."""

    patterns: tuple[str, ...]
    nfc: bool = False  # text is composed (Unicode's NFC) first
    whole_pieces: bool = False  # as `describe` has it


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _CL100K.replace("{1,3}", "")
_UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CUTS = {
    "gpt2": Cut((_GPT2,)),
    "single-digits": Cut((r"\p{N}", _GPT2)),
    "llama3": Cut((_CL100K,), whole_pieces=True),
    "qwen2": Cut((_QWEN2,), nfc=True),
    "qwen2-as-is": Cut((_QWEN2,)),
    "o200k": Cut((_O200K,), whole_pieces=True),
    # What llama.cpp does with a file that does not name its rule.
    "unnamed": Cut((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
}


def describe(
    vocabulary: Mapping[str, int],
    merges: Iterable[tuple[str, str]],
    cut: Cut,
    *,
    added: Sequence[Part] = (),
    prefix_space: bool = False,
    wrapping: Part | None = None,
    whole_pieces: bool = False,
) -> Part:
    """The tokenizer.json of a byte-level BPE whose pieces are spelled in GPT-2's printable characters.
    `whole_pieces`: a part of text that is a piece becomes it, whatever its merges would give."""
    whole_rule = cut.patterns == (_GPT2,)  # the library has this one built in
    byte_level: Part = {
        "type": "ByteLevel",
        "add_prefix_space": prefix_space,
        "trim_offsets": True,
        "use_regex": whole_rule,
    }
    cuts: list[Part] = [] if whole_rule else [parts.split(pattern) for pattern in cut.patterns]
    model: Part = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": cut.whole_pieces or whole_pieces,
        "vocab": dict(vocabulary),
        "merges": [list(pair) for pair in merges],
    }
    return parts.whole(
        model,
        added=added,
        normalizer={"type": "NFC"} if cut.nfc else None,
        pre_tokenizer=parts.pre_tokenizers([*cuts, byte_level]),
        post_processor=wrapping,
        decoder={**byte_level, "use_regex": True},
    )


def alphabet() -> dict[int, str]:
    """GPT-2's printable character for each byte (`bytes_to_unicode` of its encoder.py)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


_BYTE_OF = {character: byte for byte, character in alphabet().items()}
_OF_BYTE = str.maketrans({chr(byte): character for byte, character in alphabet().items()})


def spelled(data: bytes) -> str:
    """Bytes in GPT-2's printable characters."""
    return data.decode("latin-1").translate(_OF_BYTE)


def bytes_of(piece: str) -> bytes:
    """The bytes of a piece spelled so; a piece with any other character stands for its own UTF-8."""
    known = all(character in _BYTE_OF for character in piece)
    return bytes(_BYTE_OF[character] for character in piece) if known else piece.encode()
