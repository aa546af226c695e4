"""The safetensors format: a header that is believed only after it was checked, tensors read and written one by one.

The file is an 8-byte length, a JSON header of that length and the tensors' bytes. Files come from strangers, so the
header is checked here, more strictly than the library does, which accepts a key that stands there twice and a header
that begins with a space. Tensors are read here too, each into memory of its own: the library maps the file, and
weights that stay mapped change or vanish with it. Written here, they need not lie in memory all at once.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from cutaway.checkpoint.contents import Stored
from cutaway.checkpoint.parameters import check_range
from cutaway.errors import CutawayError

MOST_HEADER_BYTES = 32_000_000
MOST_TENSORS = 100_000
MOST_NAME_BYTES = 512
MOST_DIMENSIONS = 8
MOST_COMMAS = 1_500_000  # so many do the most tensors need; they bound what parsing can take
METADATA = "__metadata__"
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_KEYS = {"dtype", "shape", "data_offsets"}


class _Pairs(list[tuple[str, object]]):
    """A JSON object as it stands there, with keys that occur twice."""


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies: bytes `begin` to `end` of the data."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


# Reading.


def read_header(path: Path) -> dict[str, Stored]:
    """The tensors of a safetensors file in the order in which they lie there; nothing is read but the header.

    Raises CutawayError that names the file and what is wrong with it, before anything of a claimed size is allocated.
    """
    try:
        with path.open("rb") as file:
            version = _version(file.fileno())
            size, data = os.fstat(file.fileno()).st_size, file.read(8)
            length = int.from_bytes(data, "little")
            most = min(size - 8, MOST_HEADER_BYTES)
            if len(data) < 8 or length > most:
                says = f"its header is said to have {length:,} bytes, expected at most {most:,}"
                raise _broken(path, says if len(data) == 8 else f"it has {size} bytes, expected 8 or more")
            header = file.read(length)
    except OSError as error:
        raise CutawayError(
            "{path}: cannot be read: {strerror}", path=path, strerror=error.strerror
        ) from error
    places = _places(path, header, size - 8 - length)
    return {
        name: Stored(place.shape, place.dtype, partial(_read, path, version, name, place, 8 + length))
        for name, place in places.items()
    }


def _read(path: Path, version: tuple[int, ...], name: str, place: _Place, start: int) -> Tensor:
    buffer = torch.empty(place.end - place.begin, dtype=torch.uint8)
    try:
        with path.open("rb") as file:
            changed = _version(file.fileno()) != version
            file.seek(start + place.begin)
            if changed or file.readinto(buffer.numpy().data) != len(buffer):
                raise CutawayError(
                    "{path}: changed while it was being read (at tensor {name!r}); open it again",
                    path=path,
                    name=name,
                )
    except OSError as error:
        raise CutawayError(
            "{path}: cannot be read: {strerror}", path=path, strerror=error.strerror
        ) from error
    return buffer.view(place.dtype).reshape(place.shape)


def _version(file: int) -> tuple[int, ...]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _places(path: Path, header: bytes, n_bytes: int) -> dict[str, _Place]:
    """The entries of a header that `n_bytes` of data follow, checked, in the order of the data."""
    places: dict[str, _Place] = {}
    seen: set[str] = set()
    for name, entry in _parse(path, header):
        if name in seen:
            raise _broken(path, f"tensor {_short(name)} stands there twice")
        seen.add(name)
        if name == METADATA:
            _check_metadata(path, entry)
        else:
            places[name] = _place(path, name, entry, n_bytes)
    ordered = sorted(places.items(), key=lambda item: (item[1].begin, item[1].end))
    end = 0
    for name, place in ordered:
        if place.begin != end:
            what = "overlaps the one before it" if place.begin < end else "leaves a gap before it"
            raise _broken(
                path, f"tensor {_short(name)} begins at byte {place.begin:,}, which {what} ({end:,})"
            )
        end = place.end
    if end != n_bytes:
        raise _broken(path, f"its tensors end at byte {end:,} of the data, which has {n_bytes:,}")
    return dict(ordered)


def _parse(path: Path, header: bytes) -> _Pairs:
    if not header.startswith(b"{"):
        raise _broken(path, f"its header begins with {header[:1]!r}, expected a brace")
    if header.count(b",") > MOST_COMMAS:
        raise _broken(path, f"its header lists more than {MOST_COMMAS:,} values")
    n_objects = 0

    def pairs(found: list[tuple[str, object]]) -> _Pairs:
        nonlocal n_objects
        n_objects += 1
        if n_objects > MOST_TENSORS + 2:  # the header itself and its metadata are objects too
            raise _broken(path, f"it has more than {MOST_TENSORS:,} tensors")
        return _Pairs(found)

    try:
        parsed = json.loads(header.decode("utf-8"), object_pairs_hook=pairs)
    except CutawayError:
        raise
    except UnicodeDecodeError as error:
        raise _broken(path, f"its header is not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"its header is not JSON: {error}") from error
    assert isinstance(parsed, _Pairs)
    return parsed


def _check_metadata(path: Path, entry: object) -> None:
    if not isinstance(entry, _Pairs) or not all(isinstance(value, str) for _, value in entry):
        raise _broken(path, f"{METADATA} is no table of texts")
    if len(dict(entry)) != len(entry):
        raise _broken(path, f"a key of {METADATA} stands there twice")


def _place(path: Path, name: str, entry: object, n_bytes: int) -> _Place:
    what = f"tensor {_short(name)}"
    if len(name.encode("utf-8", "surrogatepass")) > MOST_NAME_BYTES:
        raise _broken(path, f"{what} has a name of more than {MOST_NAME_BYTES} bytes")
    if not isinstance(entry, _Pairs) or len(entry) != len(_KEYS) or {key for key, _ in entry} != _KEYS:
        raise _broken(path, f"{what} is not described by dtype, shape and data_offsets, each once")
    values = dict(entry)
    kind, shape, offsets = values["dtype"], values["shape"], values["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise _broken(path, f"{what} has the dtype {_short(kind)}, expected one of {', '.join(DTYPES)}")
    dimensions, limits = _whole_numbers(shape, MOST_DIMENSIONS), _whole_numbers(offsets, 2)
    if dimensions is None or prod(max(size, 1) for size in dimensions) >= 2**63:
        raise _broken(
            path, f"{what} has the shape {_short(shape)}, expected at most {MOST_DIMENSIONS} whole numbers"
        )
    if limits is None or len(limits) != 2 or not limits[0] <= limits[1] <= n_bytes:
        raise _broken(path, f"{what} lies at {_short(offsets)}, expected two places within {n_bytes:,} bytes")
    begin, end = limits
    needed = prod(dimensions) * DTYPES[kind].itemsize
    if needed != end - begin:
        raise _broken(
            path,
            f"{what} is {kind} {list(dimensions)}, which takes {needed:,} bytes, but has {end - begin:,}",
        )
    return _Place(DTYPES[kind], dimensions, begin, end)


def _whole_numbers(value: object, most: int) -> tuple[int, ...] | None:
    """A list of at most `most` numbers from 0 to 2^63 - 1, or None when it is something else."""
    if not isinstance(value, list) or len(value) > most:
        return None
    numbers = [item for item in value if type(item) is int and 0 <= item < 2**63]
    return tuple(numbers) if len(numbers) == len(value) else None


def _short(value: object) -> str:
    text = repr(value[:9] if isinstance(value, list) else value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 80 else text[:79] + "…"


def _broken(path: Path, what: str) -> CutawayError:
    return CutawayError("{path}: not a whole safetensors file: {what}", path=path, what=what)


# Writing.


def n_bytes(stored: Stored, dtype: torch.dtype) -> int:
    """What a tensor takes in a file of that type."""
    return prod(stored.shape) * dtype.itemsize


def write(path: Path, tensors: Mapping[str, Stored], dtype: torch.dtype) -> None:
    """Write a safetensors file of the tensors in `dtype`, one after the other. A file of that name is replaced once the
    new one is whole. Raises CutawayError where values do not fit into the type."""
    header: dict[str, object] = {METADATA: {"format": "pt"}}
    end = 0
    for name, stored in tensors.items():
        begin, end = end, end + n_bytes(stored, dtype)
        header[name] = {"dtype": NAMES[dtype], "shape": list(stored.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8, as the library has it
    partly = path.with_name(f"{path.name}.partial")
    try:
        with partly.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, stored in tensors.items():
                tensor = stored.read()
                check_range(tensor, dtype, name, str(path))
                file.write(tensor.to("cpu", dtype).contiguous().reshape(-1).view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())
        partly.replace(path)
    finally:
        partly.unlink(missing_ok=True)
