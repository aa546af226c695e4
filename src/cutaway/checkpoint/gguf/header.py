"""The header of a GGUF file: its metadata, and what tensors lie where (docs/gguf.md of ggml-org/ggml).

Nothing that the file says is believed before it is checked against the file's size and the limits below, and nothing
is allocated by a size that the file claims.
"""

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cutaway.checkpoint.gguf.types import TYPES, GgufType
from cutaway.errors import CutawayError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_BYTES = 32_000_000  # of the whole header; that of a vocabulary of 260,000 pieces takes about 10,000,000
MOST_VALUES = 2_000_000  # of all arrays together
MOST_PAIRS = 10_000
MOST_TENSORS = 100_000
MOST_NAME = 512  # bytes of a name or key
MOST_DIMS = 4
MOST_ALIGNMENT = 65_536

_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_FLOAT32, _BOOL, _STRING, _ARRAY = 6, 7, 8, 9


@dataclass(frozen=True)
class Placed:
    """A tensor's place: `shape` as torch has it (GGUF writes the sizes in reverse), `offset` from the file's start."""

    shape: tuple[int, ...]
    type: GgufType
    offset: int  # bytes

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.type.size(math.prod(self.shape))

    def part(self, index: int) -> "Placed":
        """One entry along the first dimension."""
        inner = self.shape[1:]
        return Placed(inner, self.type, self.offset + index * self.type.size(math.prod(inner)))


@dataclass(frozen=True)
class Header:
    metadata: dict[str, object]  # numbers, booleans, strings, and lists of these
    tensors: dict[str, Placed]


def read_header(path: Path) -> Header:
    """Raises CutawayError naming file, place and what is wrong, before anything of a wrong size is allocated."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path).header()
    except OSError as error:
        raise CutawayError(
            "{path}: cannot be read: {strerror}", path=path, strerror=error.strerror
        ) from error


class _Reader:
    """Reads forward through the header; `place` is what a message calls the spot that it has reached."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path, self.place = file, path, "the header"
        self.size = os.fstat(file.fileno()).st_size
        self.most = min(self.size, MOST_BYTES)
        self.at = 0
        self.values = 0

    def wrong(self, what: str) -> CutawayError:
        return CutawayError("{path}: {place} {what}", path=self.path, place=self.place, what=what)

    def take(self, count: int) -> bytes:
        if count > self.most - self.at:
            ends = (
                f"after {self.size} bytes" if self.most == self.size else f"its limit of {MOST_BYTES} bytes"
            )
            raise self.wrong(f"asks for {count} bytes at byte {self.at}, but the header ends {ends}")
        self.at += count
        data = self.file.read(count)
        if len(data) != count:
            raise self.wrong("could not be read: the file became shorter meanwhile")
        return data

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def count(self, what: str, most: int) -> int:
        number = self.u64()
        if number > most:
            raise self.wrong(f"has {number} {what}, more than the limit of {most}")
        return number

    def text(self) -> str:
        data = self.take(self.u64())
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.wrong(f"holds a text that is not UTF-8 (byte {error.start} of it)") from error

    def name(self, what: str) -> str:
        length = self.u64()
        if not 1 <= length <= MOST_NAME:
            raise self.wrong(f"has a name of {length} bytes, expected 1 to {MOST_NAME}")
        try:
            name = self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.wrong("has a name that is not UTF-8") from error
        self.place = f"{what} {name!r}"
        return name

    def header(self) -> Header:
        if (magic := self.take(4)) != MAGIC:
            raise self.wrong(f"starts with {magic!r}, expected {MAGIC!r}: this is no GGUF file")
        version = self.u32()
        if version not in VERSIONS:
            order = " (or it is written for big-endian machines)" if not version & 0xFFFF else ""
            known = " and ".join(map(str, VERSIONS))
            raise self.wrong(
                f"says version {version}{order}; versions {known} in little-endian are supported"
            )
        n_tensors = self.count("tensors", MOST_TENSORS)
        n_pairs = self.count("metadata entries", MOST_PAIRS)
        metadata: dict[str, object] = {}
        for number in range(n_pairs):
            self.place = f"metadata entry {number}"
            key = self.name("metadata entry")
            if key in metadata:
                raise self.wrong("stands there twice")
            metadata[key] = self.value(self.u32())
        alignment = metadata.get("general.alignment", 32)
        if (
            not isinstance(alignment, int)
            or not 8 <= alignment <= MOST_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            self.place = "metadata entry 'general.alignment'"
            raise self.wrong(f"is {alignment!r}, expected a power of two from 8 to {MOST_ALIGNMENT}")
        return Header(metadata, self.tensors(n_tensors, alignment))

    def value(self, kind: int) -> object:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            kind, length = self.u32(), self.u64()
            if kind not in _NUMBERS and kind != _STRING:
                raise self.wrong(f"is an array of type {kind}; numbers and strings are supported")
            self.values += length
            if self.values > MOST_VALUES:
                raise self.wrong(f"has {length} values, more than all arrays may have ({MOST_VALUES})")
            return [self.text() for _ in range(length)] if kind == _STRING else self.numbers(kind, length)
        if kind not in _NUMBERS:
            raise self.wrong(f"has the unknown type {kind}")
        number = self.numbers(kind, 1)[0]
        # The shortest decimal that means this float32: 1e-05 as it was published, not 9.999999747378752e-06.
        return float(str(np.float32(number))) if kind == _FLOAT32 else number

    def numbers(self, kind: int, count: int) -> list[int | float | bool]:
        code = _NUMBERS[kind]
        found = struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))
        if kind != _BOOL:
            return list(found)
        if any(value > 1 for value in found):
            raise self.wrong("is a boolean that is neither 0 nor 1")
        return [bool(value) for value in found]

    def tensors(self, count: int, alignment: int) -> dict[str, Placed]:
        found: dict[str, Placed] = {}
        end = 0  # of the tensors so far, from where they start
        for number in range(count):
            self.place = f"tensor {number}"
            name = self.name("tensor")
            if name in found:
                raise self.wrong("stands there twice")
            n_dims = self.u32()
            if not 1 <= n_dims <= MOST_DIMS:
                raise self.wrong(f"has {n_dims} dimensions, expected 1 to {MOST_DIMS}")
            sizes = struct.unpack(f"<{n_dims}Q", self.take(8 * n_dims))
            kind, offset = self.u32(), self.u64()
            if kind not in TYPES:
                raise self.wrong(
                    f"has the unknown type {kind}; known: {', '.join(t.name for t in TYPES.values())}"
                )
            tensor = Placed(sizes[::-1], TYPES[kind], offset)
            if 0 in sizes:
                raise self.wrong(f"has the shape {list(tensor.shape)}, expected sizes above 0")
            if sizes[0] % tensor.type.block:
                raise self.wrong(
                    f"has rows of {sizes[0]}, no multiple of {tensor.type.name}'s {tensor.type.block}"
                )
            if offset != end:
                raise self.wrong(f"starts at {offset}, expected {end}, where the one before it ends")
            if offset + tensor.size > self.size:
                raise self.wrong(f"of {tensor.size} bytes reaches beyond the file's end ({self.size} bytes)")
            end = _aligned(offset + tensor.size, alignment)
            found[name] = tensor
        start = _aligned(self.at, alignment)
        for name, tensor in found.items():
            if start + tensor.offset + tensor.size > self.size:
                self.place = f"tensor {name!r}"
                raise self.wrong(
                    f"ends at byte {start + tensor.offset + tensor.size}, but the file ends at {self.size}: "
                    "it is cut short; download it again"
                )
        return {name: Placed(t.shape, t.type, start + t.offset) for name, t in found.items()}


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
