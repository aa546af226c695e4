"""The safetensors weights of a folder: one file, or several and an index of which tensor lies in which.

A file is an 8-byte length, a JSON header of that length and the tensors' bytes. Files come from strangers, so a header
is believed only after the library has accepted it and what the library lets pass is refused here: a key that stands
there twice, of which two readers could take either, and sizes that only a hostile file has. Tensors are read here, each
into memory of its own: the library maps the file, and weights that stay mapped change or vanish with it. They are
written here, one after the other, so that they need not lie in memory all at once.
"""

import json
import os
import re
from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open

from cutaway.checkpoint.stored import Place, Stored, changed, check_range, version_of
from cutaway.errors import CutawayError, about, brief
from cutaway.files import inside, parse_json, read_inside, unreadable, write_json
from cutaway.words import Text, names_of, say

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MOST_HEADER_BYTES = 32_000_000
MOST_TENSORS = 100_000
MOST_COMMAS = 1_500_000  # so many do the most tensors need; they bound what parsing can take
MOST_NAME_BYTES = 512
MOST_DIMENSIONS = 8
METADATA = "__metadata__"
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ENTRY = {"dtype", "shape", "data_offsets"}
_OURS = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


# Reading.


def found_in(folder: Path) -> bool:
    """Whether the folder names safetensors weights."""
    return any((folder / name).exists() or (folder / name).is_symlink() for name in (WEIGHTS, INDEX))


def open_weights(folder: Path) -> tuple[dict[str, Stored], str]:
    """The tensors of a folder, read when asked for, and what messages call the place of them.

    Raises CutawayError that names the file which is missing, broken, outside the folder or not as the index says.
    """
    # as transformers chooses where both are there
    if (folder / WEIGHTS).exists() or not found_in(folder):
        path = inside(folder, WEIGHTS)
        return read_header(path), str(path)
    where, file_of = folder / INDEX, read_inside(folder, INDEX).get("weight_map")
    with about(where):
        if not isinstance(file_of, dict) or not file_of:
            raise CutawayError("weight_map is missing or empty, expected the file of every tensor")
        for name, file in file_of.items():
            if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
                raise CutawayError(
                    "weight_map says that {name} lies in {file}, expected the name of a safetensors file in this "
                    "folder",
                    name=brief(name),
                    file=brief(file),
                )
    paths = [inside(folder, file) for file in sorted(set(file_of.values()))]  # all, before the first is read
    tensors: dict[str, Stored] = {}
    for path in paths:
        for name, stored in read_header(path).items():
            if file_of.get(name) != path.name:
                raise CutawayError(
                    "{path}: holds {name!r}; its place by {index}: {place}",
                    path=path,
                    name=name,
                    index=INDEX,
                    place=file_of.get(name) or say("nowhere"),
                )
            tensors[name] = stored
    if missing := sorted(set(file_of) - set(tensors)):
        raise CutawayError(
            "{path}: tensor {name} is missing, which {index} says lies there; fetch the file again",
            path=folder / file_of[missing[0]],
            name=missing[0],
            index=INDEX,
        )
    return tensors, str(where)


def read_header(path: Path) -> dict[str, Stored]:
    """The tensors of a safetensors file in the order in which they lie there; nothing is read but the header.

    Raises CutawayError that names the file and what is wrong with it, before anything of a claimed size is allocated.
    """
    try:
        with path.open("rb") as file:
            version, length = version_of(os.fstat(file.fileno())), int.from_bytes(file.read(8), "little")
            if length > MOST_HEADER_BYTES:
                raise _broken(path, say("its header is said to have {length:,} bytes", length=length))
            header = file.read(length)
        # Cheap bounds of what parsing may take, the library's and ours.
        if header.count(b"{") > MOST_TENSORS + 2 or header.count(b",") > MOST_COMMAS:
            raise _broken(path, say("its header lists more than {most:,} tensors", most=MOST_TENSORS))
        # refuses what the format forbids
        with safe_open(path, "np"):
            if version_of(path.stat()) != version:
                raise changed(path)
    except OSError as error:
        raise unreadable(path, error) from error
    except SafetensorError as error:
        raise _broken(path, str(error).partition(": ")[2][:200]) from error
    if not header.startswith(b"{"):
        raise _broken(path, say("its header begins with {start!r}, expected a brace", start=header[:1]))
    entries = cast(dict[str, dict[str, Any]], parse_json(header.decode(), path))  # as the library has found
    entries.pop(METADATA, None)
    stored: dict[str, Stored] = {}
    with about(path):
        for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
            as_in_models = len(name.encode()) <= MOST_NAME_BYTES and len(entry["shape"]) <= MOST_DIMENSIONS
            if not as_in_models or entry.keys() != _ENTRY:
                raise CutawayError(
                    "tensor {name} is not described as in any model: by dtype, data_offsets and a shape of at "
                    "most {dimensions} sizes, under a name of at most {bytes} bytes",
                    name=brief(name),
                    dimensions=MOST_DIMENSIONS,
                    bytes=MOST_NAME_BYTES,
                )
            if entry["dtype"] not in DTYPES:
                raise CutawayError(
                    "tensor {name!r} has the dtype {dtype}, expected one of {known}",
                    name=name,
                    dtype=entry["dtype"],
                    known=names_of(DTYPES),
                )
            shape, dtype = tuple(entry["shape"]), DTYPES[entry["dtype"]]
            place = Place(path, version, 8 + length + entry["data_offsets"][0])
            stored[name] = Stored(shape, dtype, partial(place.tensor, shape, dtype))
    return stored


def _broken(path: Path, reason: Text) -> CutawayError:
    return CutawayError(
        "{path}: not a whole safetensors file ({reason}); download it again", path=path, reason=reason
    )


# Writing.


def write_weights(
    folder: Path, tensors: Mapping[str, Stored], dtype: torch.dtype, shard_size: int | None = None
) -> None:
    """Write the tensors, in files of at most `shard_size` bytes of weights (a larger tensor has one for itself).
    Weights that lay there before are replaced."""
    shards: list[dict[str, Stored]] = [{}]
    held = 0  # bytes of the last one
    for name, stored in tensors.items():
        size = _size(stored, dtype)
        if shard_size is not None and shards[-1] and held + size > shard_size:
            shards.append({})
            held = 0
        held += size
        shards[-1][name] = stored
    several = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    files = dict(zip(several if len(shards) > 1 else [WEIGHTS], shards, strict=True))
    for file, shard in files.items():
        write(folder / file, shard, dtype)
    written = {*files, INDEX} if len(shards) > 1 else {*files}
    if len(shards) > 1:
        total = sum(_size(stored, dtype) for stored in tensors.values())
        weight_map = {name: file for file, shard in files.items() for name in shard}
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
    for path in folder.iterdir():
        if path.name not in written and (path.name in (WEIGHTS, INDEX) or _OURS.fullmatch(path.name)):
            path.unlink()


def write(path: Path, tensors: Mapping[str, Stored], dtype: torch.dtype) -> None:
    """Write a safetensors file of the tensors in `dtype`, one after the other. A file of that name is replaced once the
    new one is whole. Raises CutawayError where values are not finite or do not fit into the type."""
    header: dict[str, object] = {METADATA: {"format": "pt"}}
    end = 0
    for name, stored in tensors.items():
        begin, end = end, end + _size(stored, dtype)
        header[name] = {"dtype": NAMES[dtype], "shape": list(stored.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8, as the library has it
    partly = path.with_name(f"{path.name}.partial")
    try:
        with about(path), partly.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, stored in tensors.items():
                tensor = stored.read()
                if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                    raise CutawayError(
                        "tensor {name!r} holds NaN or an infinity, expected finite weights; take another file or an "
                        "earlier checkpoint of the model",
                        name=name,
                    )
                check_range(tensor, dtype, name)
                file.write(tensor.to("cpu", dtype).contiguous().reshape(-1).view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())
        partly.replace(path)
    finally:
        partly.unlink(missing_ok=True)


def _size(stored: Stored, dtype: torch.dtype) -> int:
    """Bytes of a tensor in a file of that type."""
    return prod(stored.shape) * dtype.itemsize
