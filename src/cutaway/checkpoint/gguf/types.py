"""The types that tensors have in a GGUF file, and how one tensor is read, dequantised where it is quantised."""

import math
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import CutawayError

CHUNK = (
    2**18
)  # values dequantised at once: they stay in the processor's cache, and need little memory beside the result


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


TYPES = {
    kind.number: kind
    for kind in (
        GgufType(0, "F32", 1, 4, torch.float32),
        GgufType(1, "F16", 1, 2, torch.float16),
        GgufType(2, "Q4_0", 32, 18),
        GgufType(3, "Q4_1", 32, 20),
        GgufType(6, "Q5_0", 32, 22),
        GgufType(7, "Q5_1", 32, 24),
        GgufType(8, "Q8_0", 32, 34),
        GgufType(9, "Q8_1", 32, 40),
        GgufType(10, "Q2_K", 256, 84),
        GgufType(11, "Q3_K", 256, 110),
        GgufType(12, "Q4_K", 256, 144),
        GgufType(13, "Q5_K", 256, 176),
        GgufType(14, "Q6_K", 256, 210),
        GgufType(15, "Q8_K", 256, 292),
        GgufType(16, "IQ2_XXS", 256, 66),
        GgufType(17, "IQ2_XS", 256, 74),
        GgufType(18, "IQ3_XXS", 256, 98),
        GgufType(19, "IQ1_S", 256, 50),
        GgufType(20, "IQ4_NL", 32, 18),
        GgufType(21, "IQ3_S", 256, 110),
        GgufType(22, "IQ2_S", 256, 82),
        GgufType(23, "IQ4_XS", 256, 136),
        GgufType(24, "I8", 1, 1, torch.int8),
        GgufType(25, "I16", 1, 2, torch.int16),
        GgufType(26, "I32", 1, 4, torch.int32),
        GgufType(27, "I64", 1, 8, torch.int64),
        GgufType(28, "F64", 1, 8, torch.float64),
        GgufType(29, "IQ1_M", 256, 56),
        GgufType(30, "BF16", 1, 2, torch.bfloat16),
        GgufType(34, "TQ1_0", 256, 54),
        GgufType(35, "TQ2_0", 256, 66),
        GgufType(39, "MXFP4", 32, 17),
        GgufType(40, "NVFP4", 64, 36),
        GgufType(41, "Q1_0", 128, 18),
    )
}


def read_tensor(path: Path, shape: tuple[int, ...], kind: GgufType, offset: int) -> Tensor:
    """The tensor that starts at byte `offset` of the file, in memory of its own: in the file's type where torch has it,
    else dequantised to fp32. The file is read, not mapped, so that one that shrinks meanwhile is an error and no crash.

    Raises CutawayError where the file ends too early, or a quantised type cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            if kind.dtype is None:
                return _dequantised(file, path, shape, kind)
            tensor = torch.empty(shape, dtype=kind.dtype, device="cpu")
            _fill(file, path, tensor.view(-1).view(torch.uint8).numpy())
            return tensor
    except OSError as error:
        raise CutawayError(
            "{path}: cannot be read: {strerror}", path=path, strerror=error.strerror
        ) from error


def _dequantised(file: FileIO, path: Path, shape: tuple[int, ...], kind: GgufType) -> Tensor:
    try:
        from gguf import quants
        from gguf.constants import GGMLQuantizationType
    except ImportError as error:
        raise CutawayError(
            "{path}: its weights are quantised ({name}); to read them install the package gguf: "
            "pip install gguf",
            path=path,
            name=kind.name,
        ) from error
    if not hasattr(quants, kind.name):  # it has one class for each type
        raise CutawayError(
            "{path}: the type {name} cannot be dequantised by the installed package gguf; convert "
            "the model to a usual type, such as Q8_0 or F16",
            path=path,
            name=kind.name,
        )
    tensor = torch.empty(shape, dtype=torch.float32, device="cpu")
    values = tensor.view(-1).numpy()
    step = CHUNK // kind.block * kind.block
    packed = np.empty(kind.size(min(step, math.prod(shape))), dtype=np.uint8)
    for start in range(0, len(values), step):
        chunk = values[start : start + step]
        blocks = packed[: kind.size(len(chunk))]
        _fill(file, path, blocks)
        with np.errstate(over="ignore", invalid="ignore"):  # a file's scales may be infinite
            chunk[:] = quants.dequantize(blocks[None], GGMLQuantizationType(kind.number))[0]
    return tensor


def _fill(file: FileIO, path: Path, into: np.ndarray) -> None:
    view, filled = into.data, 0
    while filled < len(view):
        count = file.readinto(view[filled:])
        if not count:
            raise CutawayError(
                "{path}: ends in the middle of a tensor: it changed while it was read", path=path
            )
        filled += count
