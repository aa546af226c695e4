"""The weights of a folder: one safetensors file, or several and an index of which tensor lies in which."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from cutaway.checkpoint import json_file, safetensors_file
from cutaway.checkpoint.contents import Stored
from cutaway.errors import CutawayError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_OURS = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
MOST_SHARDS = 10_000


def there(folder: Path) -> bool:
    """Whether the folder names safetensors weights."""
    return any((folder / name).exists() or (folder / name).is_symlink() for name in (WEIGHTS, INDEX))


def open_weights(folder: Path) -> tuple[dict[str, Stored], str]:
    """The tensors of a folder, read when asked for, and what messages call the place of them.

    Raises CutawayError that names the file which is missing, broken, outside the folder or not as the index says.
    """
    if (folder / WEIGHTS).exists() or not there(folder):  # as transformers chooses where both are there
        path = json_file.inside(folder, WEIGHTS)
        return safetensors_file.read_header(path), str(path)
    index, where = json_file.read(folder, INDEX), folder / INDEX
    said = index.get("weight_map")
    if not isinstance(said, dict) or not said:
        raise CutawayError(
            "{where}: weight_map is missing or empty, expected the file of every tensor", where=where
        )
    for name, file in said.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise CutawayError(
                "{where}: weight_map says that {name!r} lies in {file!r}, expected the name of a "
                "safetensors file in this folder",
                where=where,
                name=name[:60],
                file=str(file)[:60],
            )
    files = sorted({str(file) for file in said.values()})
    if len(files) > MOST_SHARDS:
        raise CutawayError(
            "{where}: weight_map names {count:,} files, expected at most {most_shards:,}",
            where=where,
            count=len(files),
            most_shards=MOST_SHARDS,
        )
    tensors: dict[str, Stored] = {}
    for file, path in [(file, json_file.inside(folder, file)) for file in files]:
        for name, stored in safetensors_file.read_header(path).items():
            if said.get(name) != file:
                expected = f"in {said[name]}" if name in said else "nowhere"
                raise CutawayError(
                    "{path}: holds {name!r}, which {index} says lies {expected}",
                    path=path,
                    name=name,
                    index=INDEX,
                    expected=expected,
                )
            tensors[name] = stored
    if missing := sorted(set(said) - set(tensors)):
        raise CutawayError(
            "{folder}: tensor {missing} is missing, which {index} says lies there",
            folder=folder / str(said[missing[0]]),
            missing=missing[0],
            index=INDEX,
        )
    return tensors, str(where)


def write_weights(
    folder: Path, tensors: Mapping[str, Stored], dtype: torch.dtype, shard_size: int | None = None
) -> list[Path]:
    """Write the tensors, in files of at most `shard_size` bytes of weights (a larger tensor has one for itself), and
    give what was written. Weights that lay there before are replaced."""
    shards: list[dict[str, Stored]] = [{}]
    room = shard_size
    for name, stored in tensors.items():
        size = safetensors_file.n_bytes(stored, dtype)
        if room is not None and shard_size is not None:
            if size > room and shards[-1]:
                shards.append({})
                room = shard_size
            room -= size
        shards[-1][name] = stored
    names = (
        [WEIGHTS]
        if len(shards) == 1
        else [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    )
    for name, shard in zip(names, shards, strict=True):
        safetensors_file.write(folder / name, shard, dtype)
    written = [folder / name for name in names]
    if len(shards) > 1:
        total = sum(safetensors_file.n_bytes(stored, dtype) for stored in tensors.values())
        weight_map = {name: file for file, shard in zip(names, shards, strict=True) for name in shard}
        json_file.write(folder, INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
        written.append(folder / INDEX)
    for path in folder.iterdir():
        if path not in written and (path.name in (WEIGHTS, INDEX) or _OURS.fullmatch(path.name)):
            path.unlink()
    return written
