"""Byte-level BPE (GPT-2 and its heirs): text is cut by a rule, each part is written in UTF-8 bytes, and bytes merge
into pieces. Read here from GPT-2's `vocab.json` with `merges.txt` and from tiktoken's files."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cutaway.errors import CutawayError, about
from cutaway.files import read_json
from cutaway.text.tokens import tokenizer_json
from cutaway.text.tokens.plan import ROBERTA_ROLES
from cutaway.text.tokens.tokenizer_json import Part
from cutaway.words import names_of


@dataclass(frozen=True)
class Cut:
    """How text is cut before bytes merge: `patterns` one after the other, each match a part, and what lies between
    matches too."""

    patterns: tuple[str, ...]
    nfc: bool = False  # text is composed (Unicode's NFC) first
    whole_pieces: bool = False  # as `tokenizer_json.bpe` has it


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
    """The tokenizer.json of a byte-level BPE whose pieces are spelled in GPT-2's printable characters."""
    # The library has GPT-2's rule built in.
    built_in = cut.patterns == (_GPT2,)
    byte_level: Part = {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True}
    cuts = [] if built_in else [tokenizer_json.split(pattern) for pattern in cut.patterns]
    return tokenizer_json.whole(
        tokenizer_json.bpe(vocabulary, merges, whole_pieces=cut.whole_pieces or whole_pieces),
        added=added,
        normalizer={"type": "NFC"} if cut.nfc else None,
        pre_tokenizer=tokenizer_json.in_a_row(
            "pretokenizers", [*cuts, {**byte_level, "use_regex": built_in}]
        ),
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


# GPT-2's two files.

_MERGES = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}
_CUT_OF_CLASS = {"Qwen2Tokenizer": "qwen2", "Qwen2TokenizerFast": "qwen2"}
_GPT2_ROLES = {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}


def read_vocab_json(file: Path, settings: Mapping[str, object]) -> tuple[Part, dict[str, str]]:
    """The tokenizer.json of GPT-2's and RoBERTa's files (`vocab.json` with `merges.txt`; at OpenAI `encoder.json` with
    `vocab.bpe`), and the roles of its control tokens; other classes by `tokenizer_class` in the settings."""
    with about(file):
        vocabulary = {piece: tokenizer_json.checked_id(id, piece) for piece, id in read_json(file).items()}
    if any(piece.endswith("</w>") for piece in vocabulary):
        raise CutawayError(
            "{file}: pieces end in '</w>': this kind of BPE is not read, only byte-level BPE (GPT-2's)",
            file=file,
        )
    merges_file = file.parent / _MERGES[file.name]
    merges = [
        merge(line, f"{merges_file}:{number}")
        for number, line in enumerate(text_lines(merges_file), 1)
        if line and not (number == 1 and line.startswith("#version"))
    ]
    wraps = "<s>" in vocabulary and "</s>" in vocabulary
    usual = ROBERTA_ROLES if wraps else _GPT2_ROLES
    roles = {role: content for role, content in usual.items() if content in vocabulary}
    added = [
        tokenizer_json.added_token(id, content, lstrip=content == "<mask>")
        for id, content in sorted({vocabulary[content]: content for content in roles.values()}.items())
    ]
    description = describe(
        vocabulary,
        merges,
        CUTS[_CUT_OF_CLASS.get(str(settings.get("tokenizer_class")), "gpt2")],
        added=added,
        prefix_space=flag(settings, "add_prefix_space", False, file),
        wrapping=tokenizer_json.wrapping(vocabulary, ["<s>"], ["</s>"], ["</s>"]) if wraps else None,
    )
    return description, roles


def merge(text: str, where: str) -> tuple[str, str]:
    """The two pieces of a merge, written with a space between them."""
    left, space, right = text.partition(" ")
    if not (left and space and right) or " " in right:
        raise CutawayError(
            "{where}: the merge {text!r}, expected two pieces and a space between them",
            where=where,
            text=text,
        )
    return left, right


def text_lines(file: Path) -> list[str]:
    """Lines that end in LF, or all in CR LF; any other kind of line end belongs to a piece."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CutawayError(
            "{file}: not UTF-8 at byte {at}; save it as UTF-8", file=file, at=error.start
        ) from error
    lines = text.removesuffix("\n").split("\n")
    if text.endswith("\r\n") and all(line.endswith("\r") for line in lines[:-1]):
        lines = [line.removesuffix("\r") for line in lines]
    return lines


def flag(settings: Mapping[str, object], key: str, default: bool, file: Path) -> bool:
    """A yes or no of the tokenizer_config.json beside the file."""
    value = settings.get(key, default)
    if not isinstance(value, bool):
        with about(file.parent / "tokenizer_config.json"):
            raise CutawayError("{key} is {value!r}, expected true or false", key=key, value=value)
    return value


# tiktoken's files: a line is a piece in base64 and its rank (Qwen's `qwen.tiktoken`, Llama 3's `tokenizer.model`,
# OpenAI's). The rule for cutting text and the control tokens are not in the file; the number of pieces tells them.

_LINE = re.compile(rb"([A-Za-z0-9+/]+={0,2}) ([0-9]{1,8})")


@dataclass(frozen=True)
class _Known:
    cut: str
    controls: Mapping[str, int]
    bos: str | None
    eos: str


def _from(first: int, *names: str) -> dict[str, int]:
    return {name: first + number for number, name in enumerate(names)}


_RESERVED = [f"<|reserved_special_token_{number}|>" for number in range(251)]
_LLAMA3 = _from(
    128_000,
    *("<|begin_of_text|>", "<|end_of_text|>", *_RESERVED[:4], "<|start_header_id|>", "<|end_header_id|>"),
    *(_RESERVED[4], "<|eot_id|>", *_RESERVED[5:]),
)
_QWEN = _from(
    151_643, "<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205))
)
_CL100K_CONTROLS = _from(100_257, "<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_KNOWN = {
    128_000: _Known("llama3", _LLAMA3, "<|begin_of_text|>", "<|end_of_text|>"),
    151_643: _Known("qwen2", _QWEN, None, "<|endoftext|>"),
    50_256: _Known("gpt2", {"<|endoftext|>": 50_256}, "<|endoftext|>", "<|endoftext|>"),
    100_256: _Known("llama3", _CL100K_CONTROLS | {"<|endofprompt|>": 100_276}, None, "<|endoftext|>"),
    199_998: _Known("o200k", {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}, None, "<|endoftext|>"),
}


def is_tiktoken(file: Path) -> bool:
    """Whether the first line is a piece and its rank."""
    with file.open("rb") as stream:
        return _LINE.fullmatch(stream.readline(1024).rstrip(b"\r\n")) is not None


def read_tiktoken(file: Path, settings: Mapping[str, object]) -> tuple[Part, dict[str, str]]:
    """Its tokenizer.json, and the roles of its control tokens. The file needs no `settings`."""
    ranks = _ranks(file)
    known = _KNOWN.get(len(ranks))
    if known is None:
        raise CutawayError(
            "{file}: {count:,} pieces; how text is cut for them is known for {counts} pieces only: "
            "give the model's tokenizer.json instead",
            file=file,
            count=len(ranks),
            counts=names_of([f"{count:,}" for count in _KNOWN]),
        )
    names = {piece: spelled(piece) for piece in ranks}
    merges = [
        (names[piece[:at]], names[piece[at:]])
        for piece in ranks
        for at in range(len(piece) - 1, 0, -1)
        if piece[:at] in ranks and piece[at:] in ranks
    ]
    roles = {"eos": known.eos} | ({"bos": known.bos} if known.bos is not None else {})
    starts = [known.bos] if known.cut == "llama3" and known.bos is not None else []
    description = describe(
        {names[piece]: rank for piece, rank in ranks.items()},
        merges,
        CUTS[known.cut],
        added=[tokenizer_json.added_token(id, content) for content, id in known.controls.items()],
        wrapping=tokenizer_json.wrapping(known.controls, starts, ()),
        whole_pieces=True,
    )
    return description, roles


def _ranks(file: Path) -> dict[bytes, int]:
    """Pieces by rank."""
    pieces: list[bytes] = []
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if not line:
            continue
        found, piece = _LINE.fullmatch(line), b""
        if found and int(found[2]) == len(pieces):
            with suppress(binascii.Error):
                piece = base64.b64decode(found[1], validate=True)
        if not piece:
            raise CutawayError(
                "{file}:{line}: expected a piece in base64 and the rank {rank}",
                file=file,
                line=number,
                rank=len(pieces),
            )
        pieces.append(piece)
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    if len(ranks) < len(pieces) or any(bytes((byte,)) not in ranks for byte in range(256)):
        raise CutawayError(
            "{file}: a piece stands there twice, or one of the 256 bytes is missing; fetch it again",
            file=file,
        )
    return ranks
