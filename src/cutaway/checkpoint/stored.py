"""What a model's files hold, before a model is made of them; every file format is brought into this one form."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.files import unreadable
from cutaway.text.tokens.tokenizer import Tokenizer

Version = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """A tensor that lies in a file until it is read. `read` gives it in `dtype`, or dequantised to fp32 where the
    file's own type is no torch type (then `dtype` is torch.float32 and `kind` names the file's). What it gives is
    memory of its own: it may become a parameter as it is, and the file may change or go."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], Tensor]
    kind: str = ""  # the file's own name of a quantised type, such as Q4_1


@dataclass(frozen=True)
class Contents:
    """The parts of a checkpoint. `config` has the keys of Hugging Face's config.json, `tensors` the names of its
    model.safetensors; nothing has been read of the tensors but their headers."""

    config: Mapping[str, object]
    config_file: str  # what messages call the place where `config` stands
    tensors: Mapping[str, Stored]
    weights_file: str  # and the place of the tensors
    tokenizer: Tokenizer | None = None
    generation: Mapping[str, object] = field(default_factory=dict)  # generation_config.json
    chat_template: str | None = None

    def weights_type(self) -> torch.dtype:
        """The type that holds all weights as they are; float32 for quantised ones, and at most."""
        kinds = {stored.dtype for stored in self.tensors.values() if stored.dtype.is_floating_point}
        return kinds.pop() if kinds in ({torch.float16}, {torch.bfloat16}) else torch.float32


class Place(NamedTuple):
    """Where a tensor's bytes lie: from byte `begin` of a file that had this `version` when its header was read.

    The bytes are read, not mapped: a mapped tensor changes with its file, and a file that shrinks while it is mapped
    ends the process. Here a file that is another one meanwhile is a CutawayError.
    """

    path: Path
    version: Version
    begin: int

    @contextmanager
    def open(self) -> Iterator[BufferedReader]:
        """The file, at `begin`."""
        try:
            with self.path.open("rb") as file:
                if version_of(os.fstat(file.fileno())) != self.version:
                    raise changed(self.path)
                file.seek(self.begin)
                yield file
        except OSError as error:
            raise unreadable(self.path, error) from error

    def fill(self, file: BufferedReader, memory: np.ndarray) -> None:
        """Read as many bytes as `memory` (of uint8) takes."""
        if file.readinto(memory.data) != memory.size:
            raise changed(self.path)

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The bytes as a tensor in memory of its own."""
        tensor = torch.empty(shape, dtype=dtype, device="cpu")
        with self.open() as file:
            self.fill(file, tensor.view(-1).view(torch.uint8).numpy())
        return tensor


def version_of(status: os.stat_result) -> Version:
    """What changes when a file is replaced, written to or cut."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def changed(path: Path) -> CutawayError:
    return CutawayError("{path}: changed while it was being read; open it again", path=path)


def check_range(value: Tensor, dtype: torch.dtype, name: str) -> None:
    """Raises CutawayError when a finite value would be infinite in `dtype`. Only float16 is that narrow."""
    if dtype != torch.float16 or value.dtype == dtype or not value.numel():
        return
    largest = max(abs(float(edge)) for edge in value.aminmax())
    # halfway to the number after the largest
    if 65_520 <= largest < math.inf:
        raise CutawayError(
            "tensor {name!r} has values up to {largest:.4g}, more than float16 can hold; use bfloat16 or float32",
            name=name,
            largest=largest,
        )
