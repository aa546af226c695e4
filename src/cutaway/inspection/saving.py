"""A result as arrays, and those in a file: safetensors, npz or csv."""

import csv
import dataclasses
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor

from cutaway.errors import CutawayError, nearest
from cutaway.inspection.answers import fields_of
from cutaway.words import Phrase, names_of, said, say

Texts = str | Sequence[object]  # one text, or lists of texts as rectangular as a tensor
ENDINGS = (".safetensors", ".npz", ".csv")


def check_ending(option: str, path: Path, endings: Sequence[str]) -> None:
    """CutawayError for a file whose name does not say how to write it, or that has no folder."""
    if path.suffix.lower() not in endings:
        raise CutawayError(
            "--{option} {path}: ends in {given}{hint}, expected {expected}",
            option=option,
            path=path,
            given=repr(path.suffix) if path.suffix else say("nothing"),
            hint=nearest(path.suffix, endings),
            expected=names_of(endings),
        )
    if not path.parent.is_dir():
        raise CutawayError(
            "--{option} {path}: there is no folder {parent}; make it first",
            option=option,
            path=path,
            parent=path.parent,
        )


def arrays(value: object, name: str = "") -> Iterator[tuple[str, Tensor | Texts]]:
    """Every tensor, number, text and list of such in a result, by its path (`effects.enc`); what several records of
    one kind have in common becomes one array (`items.value`) where its shape allows."""
    match value:
        case Tensor():
            yield name, value.detach().cpu()
        case bool() | int() | float():
            yield name, torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)
        case str():
            yield name, str(value)
        case Phrase():
            yield name, said(value)
        case Mapping():
            for key, each in value.items():
                yield from arrays(each, _under(name, str(key)))
        case frozenset():
            yield from arrays(sorted(value), name)
        case list() | tuple():
            if value and all(isinstance(each, int | float) for each in value):
                whole = all(isinstance(each, int) for each in value)
                yield name, torch.tensor(value, dtype=torch.int64 if whole else torch.float64)
            else:
                yield from _records([dict(arrays(each)) for each in value], name)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field, each in fields_of(value):
                yield from arrays(each, _under(name, field))


def _records(found: list[dict[str, Tensor | Texts]], name: str) -> Iterator[tuple[str, Tensor | Texts]]:
    for key in dict.fromkeys(key for record in found for key in record):
        each = [record.get(key) for record in found]
        tensors = [one for one in each if isinstance(one, Tensor)]
        texts: list[Any] = [one for one in each if isinstance(one, str | list)]
        if len(tensors) == len(each) and len({(one.shape, one.dtype) for one in tensors}) == 1:
            yield _under(name, key), torch.stack(tensors)
        elif len(texts) == len(each) and len({np.shape(one) for one in texts}) == 1:
            yield _under(name, key), texts
        else:
            for place, one in enumerate(each):
                if one is not None:
                    yield _under(_under(name, str(place)), key), one


def _under(name: str, part: str) -> str:
    return f"{name}.{part}" if name and part else name or part


def save(path: Path, about: Mapping[str, str], result: object) -> list[str]:
    """Write the arrays of a result, with what they are about, and return the arrays' names. Never as pickle.

    safetensors: tensors; texts as JSON and `about` in the metadata. npz: arrays, texts too, and `about.model` and so
    on. csv: the same, one line a number or text: the array's name, its place in each dimension, and the value.
    """
    path.write_bytes(to_bytes(path.suffix.lower(), about, result))
    return [name for name, _ in arrays(result)]


def to_bytes(ending: str, about: Mapping[str, str], result: object) -> bytes:
    """What `save` writes into a file whose name has that ending, one of ENDINGS."""
    found = dict(arrays(result))
    tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    texts = {name: value for name, value in found.items() if not isinstance(value, Tensor)}
    origin = {f"about.{name}": value for name, value in about.items()}
    match ending:
        case ".safetensors":
            tensors = {name: value.contiguous().clone() for name, value in tensors.items()}
            metadata = {**about, "texts": json.dumps(texts, ensure_ascii=False)}
            return to_safetensors(tensors, metadata)
        case ".npz":
            widened = {
                name: value.float() for name, value in tensors.items() if value.dtype == torch.bfloat16
            }
            written = {name: np.asarray(value) for name, value in (origin | found | widened).items()}
            file = io.BytesIO()
            np.savez(file, allow_pickle=False, **written)
            return file.getvalue()
    return _csv(origin | found).encode()


def _csv(found: Mapping[str, Tensor | Texts]) -> str:
    entries = {
        name: np.array(value.tolist() if isinstance(value, Tensor) else value, dtype=object)
        for name, value in found.items()
    }
    deepest = max((each.ndim for each in entries.values()), default=0)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["array", *(f"index{n}" for n in range(deepest)), "value"])
    for name, each in entries.items():
        for index, one in np.ndenumerate(each):
            writer.writerow([name, *index, *[""] * (deepest - each.ndim), one])
    return file.getvalue()
