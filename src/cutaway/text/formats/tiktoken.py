"""tiktoken's vocabulary files: a line is a piece in base64 and its rank (Qwen's `qwen.tiktoken`, Llama 3's
`tokenizer.model`, OpenAI's). The rule for cutting text and the control tokens are not in the file; they are known by
the number of pieces."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.text.rules import byte_level, parts
from cutaway.text.rules.parts import Part

_MAX_BYTES = 64 * 2**20
_LINE = re.compile(rb"([A-Za-z0-9+/]+={0,2}) ([0-9]{1,8})")
_RESERVED = "<|reserved_special_token_{}|>"


@dataclass(frozen=True)
class Known:
    cut: str
    controls: Mapping[str, int]
    bos: str | None
    eos: str


def _in_a_row(first: int, names: Sequence[str]) -> dict[str, int]:
    return {name: first + number for number, name in enumerate(names)}


_KNOWN = {
    128_000: Known(
        "llama3",
        _in_a_row(
            128_000,
            [
                "<|begin_of_text|>",
                "<|end_of_text|>",
                *(_RESERVED.format(number) for number in range(4)),
                "<|start_header_id|>",
                "<|end_header_id|>",
                _RESERVED.format(4),
                "<|eot_id|>",
                *(_RESERVED.format(number) for number in range(5, 251)),
            ],
        ),
        "<|begin_of_text|>",
        "<|end_of_text|>",
    ),
    151_643: Known(
        "qwen2",
        _in_a_row(
            151_643,
            [
                "<|endoftext|>",
                "<|im_start|>",
                "<|im_end|>",
                *(f"<|extra_{number}|>" for number in range(205)),
            ],
        ),
        None,
        "<|endoftext|>",
    ),
    50_256: Known("gpt2", {"<|endoftext|>": 50_256}, "<|endoftext|>", "<|endoftext|>"),
    100_256: Known(
        "llama3",
        _in_a_row(100_257, ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"])
        | {"<|endofprompt|>": 100_276},
        None,
        "<|endoftext|>",
    ),
    199_998: Known("o200k", {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}, None, "<|endoftext|>"),
}


def fits(file: Path) -> bool:
    """Whether the first line is a piece and its rank."""
    with file.open("rb") as stream:
        return _LINE.fullmatch(stream.readline(1024).rstrip(b"\r\n")) is not None


def read(file: Path, settings: Mapping[str, object]) -> tuple[Part, dict[str, str]]:
    """Its tokenizer.json, and the roles of its control tokens."""
    ranks = _ranks(file)
    known = _KNOWN.get(len(ranks))
    if known is None:
        counts = ", ".join(f"{count:,}" for count in _KNOWN)
        raise CutawayError(
            "{file}: {count:,} pieces; how text is cut for them is known for {counts} pieces only: "
            "give the model's tokenizer.json instead",
            file=file,
            count=len(ranks),
            counts=counts,
        )
    spelled = {piece: byte_level.spelled(piece) for piece in ranks}
    merges = [
        (spelled[piece[:at]], spelled[piece[at:]])
        for piece in ranks
        for at in range(len(piece) - 1, 0, -1)
        if piece[:at] in ranks and piece[at:] in ranks
    ]
    vocabulary = {spelled[piece]: rank for piece, rank in ranks.items()}
    roles = {"eos": known.eos} | ({"bos": known.bos} if known.bos is not None else {})
    starts = [known.bos] if known.cut == "llama3" and known.bos is not None else []
    description = byte_level.describe(
        vocabulary,
        merges,
        byte_level.CUTS[known.cut],
        added=[parts.added_token(id, content) for content, id in known.controls.items()],
        wrapping=parts.wrapping(known.controls, starts, ()),
        whole_pieces=True,
    )
    return description, roles


def _ranks(file: Path) -> dict[bytes, int]:
    """Pieces by rank."""
    if file.stat().st_size > _MAX_BYTES:
        raise CutawayError(
            "{file}: {st_size:,} bytes, expected a vocabulary of at most 64 MB",
            file=file,
            st_size=file.stat().st_size,
        )
    pieces: list[bytes] = []
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if not line:
            continue
        found = _LINE.fullmatch(line)
        if found is None or int(found[2]) != len(pieces):
            raise CutawayError(
                "{file}:{number}: expected a piece in base64 and the rank {count}",
                file=file,
                number=number,
                count=len(pieces),
            )
        try:
            pieces.append(base64.b64decode(found[1], validate=True))
        except binascii.Error as error:
            raise CutawayError(
                "{file}:{number}: the piece is no base64: {error}", file=file, number=number, error=error
            ) from error
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    if len(ranks) < len(pieces) or any(bytes((byte,)) not in ranks for byte in range(256)):
        raise CutawayError(
            "{file}: a piece stands there twice, or one of the 256 bytes is missing", file=file
        )
    return ranks
