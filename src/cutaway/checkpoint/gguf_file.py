"""A GGUF file: its metadata, what tensors lie where, and one tensor read, dequantised where it is quantised.

Nothing that the file says is believed before it is checked against the file's size and the limits below, and nothing
is allocated by a size that the file claims. Source: docs/gguf.md of ggml-org/ggml.
"""

import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutaway.checkpoint.stored import Place, Stored, version_of
from cutaway.errors import CutawayError
from cutaway.files import unreadable
from cutaway.words import listed, say

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_BYTES = 32_000_000  # of the whole header; that of a vocabulary of 260,000 pieces takes about 10,000,000
MOST_VALUES = 2_000_000  # of all arrays together
MOST_PAIRS = 10_000
MOST_TENSORS = 100_000
MOST_NAME = 512  # bytes of a name or key
MOST_DIMS = 4
ALIGNMENTS = [2**n for n in range(3, 17)]
# Values dequantised at once: they stay in the processor's cache, and need little memory beside the result.
CHUNK = 2**18

_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_FLOAT32, _BOOL, _STRING, _ARRAY = 6, 7, 8, 9

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class GgufType:
    """`block` values take `bytes` bytes together. `dtype` is torch's type of that layout, None where quantised."""

    number: int
    name: str
    block: int
    bytes: int
    dtype: torch.dtype | None = None

    def size(self, values: int) -> int:
        """Bytes of so many values, a multiple of the block."""
        return values // self.block * self.bytes


_ALL_TYPES = (
    GgufType(0, "F32", 1, 4, torch.float32), GgufType(1, "F16", 1, 2, torch.float16), GgufType(2, "Q4_0", 32, 18),
    GgufType(3, "Q4_1", 32, 20), GgufType(6, "Q5_0", 32, 22), GgufType(7, "Q5_1", 32, 24),
    GgufType(8, "Q8_0", 32, 34), GgufType(9, "Q8_1", 32, 40), GgufType(10, "Q2_K", 256, 84),
    GgufType(11, "Q3_K", 256, 110), GgufType(12, "Q4_K", 256, 144), GgufType(13, "Q5_K", 256, 176),
    GgufType(14, "Q6_K", 256, 210), GgufType(15, "Q8_K", 256, 292), GgufType(16, "IQ2_XXS", 256, 66),
    GgufType(17, "IQ2_XS", 256, 74), GgufType(18, "IQ3_XXS", 256, 98), GgufType(19, "IQ1_S", 256, 50),
    GgufType(20, "IQ4_NL", 32, 18), GgufType(21, "IQ3_S", 256, 110), GgufType(22, "IQ2_S", 256, 82),
    GgufType(23, "IQ4_XS", 256, 136), GgufType(24, "I8", 1, 1, torch.int8), GgufType(25, "I16", 1, 2, torch.int16),
    GgufType(26, "I32", 1, 4, torch.int32), GgufType(27, "I64", 1, 8, torch.int64),
    GgufType(28, "F64", 1, 8, torch.float64), GgufType(29, "IQ1_M", 256, 56),
    GgufType(30, "BF16", 1, 2, torch.bfloat16), GgufType(34, "TQ1_0", 256, 54), GgufType(35, "TQ2_0", 256, 66),
    GgufType(39, "MXFP4", 32, 17), GgufType(40, "NVFP4", 64, 36), GgufType(41, "Q1_0", 128, 18),
)  # fmt: skip
TYPES = {kind.number: kind for kind in _ALL_TYPES}


class Placed(NamedTuple):
    """A tensor's place: `shape` as torch has it (GGUF writes the sizes in reverse)."""

    shape: tuple[int, ...]
    type: GgufType
    place: Place

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.type.size(math.prod(self.shape))

    def part(self, index: int) -> "Placed":
        """One entry along the first dimension."""
        begin = self.place.begin + index * (self.size // self.shape[0])
        return Placed(self.shape[1:], self.type, self.place._replace(begin=begin))

    def stored(self, change: Change, transposed: bool = False) -> Stored:
        """The tensor as `change` makes it of what is read, rows and columns exchanged where it is `transposed`."""
        dtype = self.type.dtype or torch.float32
        if transposed:
            return Stored(self.shape[::-1], dtype, lambda: change(self.read()).T, self.type.name)
        return Stored(self.shape, dtype, lambda: change(self.read()), self.type.name)

    def read(self) -> Tensor:
        """The tensor in memory of its own: in the file's type where torch has it, else dequantised to fp32.

        Raises CutawayError where the file is another one meanwhile, or a quantised type cannot be read."""
        if self.type.dtype is not None:
            return self.place.tensor(self.shape, self.type.dtype)
        # only here, since it takes a moment to import
        from gguf import quants
        from gguf.constants import GGMLQuantizationType

        # it has one class for each type
        if not hasattr(quants, self.type.name):
            raise CutawayError(
                "{path}: the type {type} cannot be dequantised by the installed package gguf; convert the model "
                "to a usual type, such as Q8_0 or F16",
                path=self.place.path,
                type=self.type.name,
            )
        tensor = torch.empty(self.shape, dtype=torch.float32, device="cpu")
        values, step = tensor.view(-1).numpy(), CHUNK // self.type.block * self.type.block
        packed = np.empty(self.type.size(min(step, len(values))), dtype=np.uint8)
        with self.place.open() as file:
            for start in range(0, len(values), step):
                chunk = values[start : start + step]
                blocks = packed[: self.type.size(len(chunk))]
                self.place.fill(file, blocks)
                # a file's scales may be infinite
                with np.errstate(over="ignore", invalid="ignore"):
                    chunk[:] = quants.dequantize(blocks[None], GGMLQuantizationType(self.type.number))[0]
        return tensor


@dataclass(frozen=True)
class Header:
    metadata: dict[str, object]  # numbers, booleans, strings, and lists of these
    tensors: dict[str, Placed]


def read_header(path: Path) -> Header:
    """Raises CutawayError naming file, place and what is wrong, before anything of a wrong size is allocated."""
    try:
        with path.open("rb") as file:
            reader = _Reader(file, path)
            try:
                return reader.header()
            except CutawayError as error:
                raise CutawayError(
                    "{path}: {spot} {problem}; the file is damaged: fetch or convert it again",
                    path=path,
                    spot=reader.spot,
                    problem=error,
                ) from error
    except OSError as error:
        raise unreadable(path, error) from error


class _Reader:
    """Reads forward through the header; `spot` is what a message calls the place that it has reached."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        status = os.fstat(file.fileno())
        self.file, self.path, self.version, self.size = file, path, version_of(status), status.st_size
        self.most = min(self.size, MOST_BYTES)
        self.spot = say("the header")
        self.at = 0
        self.values = 0

    def take(self, count: int) -> bytes:
        if count > self.most - self.at:
            raise CutawayError(
                "asks for {count} bytes at byte {at}, but the header must end within {most} bytes",
                count=count,
                at=self.at,
                most=self.most,
            )
        self.at += count
        data = self.file.read(count)
        if len(data) != count:
            raise CutawayError("could not be read: the file became shorter meanwhile")
        return data

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def count(self, most: int) -> int:
        number = self.u64()
        if number > most:
            raise CutawayError(
                "claims {number} entries, more than the limit of {most}", number=number, most=most
            )
        return number

    def text(self) -> str:
        return self.decoded(self.u64())

    def name(self) -> str:
        length = self.u64()
        if not 1 <= length <= MOST_NAME:
            raise CutawayError(
                "has a name of {length} bytes, expected 1 to {most}", length=length, most=MOST_NAME
            )
        return self.decoded(length)

    def decoded(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise CutawayError("holds a text that is not UTF-8 at byte {byte}", byte=error.start) from error

    def header(self) -> Header:
        if (magic := self.take(4)) != MAGIC:
            raise CutawayError(
                "starts with {magic!r}, expected {expected!r}: this is no GGUF file",
                magic=magic,
                expected=MAGIC,
            )
        version = self.u32()
        if version not in VERSIONS:
            order = "" if version & 0xFFFF else say(" (or it is written for big-endian machines)")
            raise CutawayError(
                "says version {version}{order}; supported are {known} in little-endian",
                version=version,
                order=order,
                known=listed(map(str, VERSIONS)),
            )
        n_tensors = self.count(MOST_TENSORS)
        n_pairs = self.count(MOST_PAIRS)
        metadata: dict[str, object] = {}
        for number in range(n_pairs):
            self.spot = say("metadata entry {name!r}", name=number)
            key = self.name()
            self.spot = say("metadata entry {name!r}", name=key)
            if key in metadata:
                raise CutawayError("stands there twice")
            metadata[key] = self.value(self.u32())
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment not in ALIGNMENTS:
            self.spot = say("metadata entry {name!r}", name="general.alignment")
            raise CutawayError(
                "is {value!r}, expected a power of two from 8 to {most}", value=alignment, most=ALIGNMENTS[-1]
            )
        return Header(metadata, self.tensors(n_tensors, alignment))

    def value(self, kind: int) -> object:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            kind, length = self.u32(), self.u64()
            if kind not in _NUMBERS and kind != _STRING:
                raise CutawayError("is an array of type {kind}; numbers and strings are supported", kind=kind)
            self.values += length
            if self.values > MOST_VALUES:
                raise CutawayError(
                    "has {length} values, more than all arrays may have ({most})",
                    length=length,
                    most=MOST_VALUES,
                )
            return [self.text() for _ in range(length)] if kind == _STRING else self.numbers(kind, length)
        if kind not in _NUMBERS:
            raise CutawayError("has the unknown type {kind}", kind=kind)
        number = self.numbers(kind, 1)[0]
        # The shortest decimal that means this float32: 1e-05 as it was published, not 9.999999747378752e-06.
        return float(str(np.float32(number))) if kind == _FLOAT32 else number

    def numbers(self, kind: int, count: int) -> list[int | float | bool]:
        code = _NUMBERS[kind]
        found = struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))
        if kind != _BOOL:
            return list(found)
        if any(value > 1 for value in found):
            raise CutawayError("is a boolean that is neither 0 nor 1")
        return [bool(value) for value in found]

    def tensors(self, count: int, alignment: int) -> dict[str, Placed]:
        found: dict[str, tuple[tuple[int, ...], GgufType, int]] = {}
        end = 0  # of the tensors so far, from where they start
        for number in range(count):
            self.spot = say("tensor {name!r}", name=number)
            name = self.name()
            self.spot = say("tensor {name!r}", name=name)
            if name in found:
                raise CutawayError("stands there twice")
            n_dims = self.u32()
            if not 1 <= n_dims <= MOST_DIMS:
                raise CutawayError(
                    "has {count} dimensions, expected 1 to {most}", count=n_dims, most=MOST_DIMS
                )
            *sizes, kind, offset = struct.unpack(f"<{n_dims}QIQ", self.take(8 * n_dims + 12))
            shape = tuple(sizes[::-1])
            if kind not in TYPES:
                known = ", ".join(each.name for each in TYPES.values())
                raise CutawayError("has the unknown type {kind}; known: {known}", kind=kind, known=known)
            if 0 in shape:
                raise CutawayError("has the shape {shape}, expected sizes above 0", shape=list(shape))
            if shape[-1] % TYPES[kind].block:
                raise CutawayError(
                    "has rows of {width}, expected a multiple of {type}'s {block}",
                    width=shape[-1],
                    type=TYPES[kind].name,
                    block=TYPES[kind].block,
                )
            if offset != end:
                raise CutawayError(
                    "starts at {offset}, expected {expected}, where the one before it ends",
                    offset=offset,
                    expected=end,
                )
            end = _aligned(offset + TYPES[kind].size(math.prod(shape)), alignment)
            found[name] = shape, TYPES[kind], offset
        start = _aligned(self.at, alignment)
        placed = {
            name: Placed(shape, kind, Place(self.path, self.version, start + offset))
            for name, (shape, kind, offset) in found.items()
        }
        for name, tensor in placed.items():
            if tensor.place.begin + tensor.size > self.size:
                self.spot = say("tensor {name!r}", name=name)
                raise CutawayError(
                    "ends at byte {end}, but the file at {size}: it is cut short; download it again",
                    end=tensor.place.begin + tensor.size,
                    size=self.size,
                )
        return placed


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
