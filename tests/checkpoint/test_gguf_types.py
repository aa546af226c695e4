"""Tensors of GGUF files: every type that there is, against independent calculations from the formats' definitions
(ggml-common.h and ggml-quants.c of ggml-org/ggml)."""

import math
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from cutaway.checkpoint.gguf.types import CHUNK, TYPES, GgufType, read_tensor
from cutaway.errors import CutawayError

BY_NAME = {kind.name: kind for kind in TYPES.values()}
CANNOT = {"Q8_1", "Q8_K", "Q1_0"}  # no file has the first two: they are for sums in between
NATIVE = [kind.name for kind in TYPES.values() if kind.dtype is not None]
QUANTISED = [kind.name for kind in TYPES.values() if kind.dtype is None and kind.name not in CANNOT]


def half(block: bytes, at: int) -> float:
    return struct.unpack_from("<e", block, at)[0]


def q4_0(block: bytes) -> list[float]:
    low, high = [b & 15 for b in block[2:]], [b >> 4 for b in block[2:]]
    return [half(block, 0) * (q - 8) for q in low + high]


def q4_1(block: bytes) -> list[float]:
    low, high = [b & 15 for b in block[4:]], [b >> 4 for b in block[4:]]
    return [half(block, 0) * q + half(block, 2) for q in low + high]


def q5_0(block: bytes) -> list[float]:
    fifth = int.from_bytes(block[2:6], "little")
    low, high = [b & 15 for b in block[6:]], [b >> 4 for b in block[6:]]
    return [half(block, 0) * ((q | (fifth >> i & 1) << 4) - 16) for i, q in enumerate(low + high)]


def q8_0(block: bytes) -> list[float]:
    return [half(block, 0) * q for q in struct.unpack_from("<32b", block, 2)]


def q4_k(block: bytes) -> list[float]:
    """Eight groups of 32, each with a scale and a minimum of six bits, packed into twelve bytes."""
    scale, least, packed, quants = half(block, 0), half(block, 2), block[4:16], block[16:]
    values: list[float] = []
    for group in range(8):
        if group < 4:
            s, m = packed[group] & 63, packed[group + 4] & 63
        else:
            s = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
            m = packed[group + 4] >> 4 | packed[group] >> 6 << 4
        part = quants[group // 2 * 32 :][:32]
        values += [scale * s * (b >> 4 if group % 2 else b & 15) - least * m for b in part]
    return values


def q6_k(block: bytes) -> list[float]:
    """Two halves of 128; four low bits in one array, two high bits in another, a scale of eight bits for each 16."""
    low, high, scales = block[:128], block[128:192], struct.unpack_from("<16b", block, 192)
    scale = half(block, 208)
    values = [0.0] * 256
    for n in range(256):
        part, within = divmod(n, 128)
        row, column = divmod(within, 32)
        nibble = low[64 * part + 32 * (row % 2) + column]
        bits = (nibble >> 4 if row >= 2 else nibble & 15) | (high[32 * part + column] >> 2 * row & 3) << 4
        values[n] = scale * scales[n // 16] * (bits - 32)
    return values


DEFINITIONS: dict[str, Callable[[bytes], list[float]]] = {
    "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q8_0": q8_0, "Q4_K": q4_k, "Q6_K": q6_k,
}  # fmt: skip


def random_blocks(kind: GgufType, count: int) -> np.ndarray:
    """Random bytes whose 16-bit scales are finite: no byte is one that makes an infinite half."""
    raw = np.random.default_rng(kind.number).integers(0, 256, (count, kind.bytes), dtype=np.uint8)
    raw[raw & 0x7C == 0x7C] ^= 0x40
    return raw


def test_the_table_is_complete() -> None:
    assert {kind.number: (kind.name, kind.block, kind.bytes) for kind in TYPES.values()} == {
        kind.value: (kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGMLQuantizationType
    }


@pytest.mark.parametrize("name", DEFINITIONS)
def test_against_the_definition(name: str, tmp_path: Path) -> None:
    kind, path = BY_NAME[name], tmp_path / "blocks"
    blocks = random_blocks(kind, 40)
    path.write_bytes(b"before" + blocks.tobytes() + b"after")
    got = read_tensor(path, (5, 8 * kind.block), kind, offset=6)
    expected = torch.tensor([DEFINITIONS[name](block.tobytes()) for block in blocks], dtype=torch.float64)
    assert got.dtype == torch.float32
    assert got.shape == (5, 8 * kind.block)
    assert expected.abs().max() > 1
    torch.testing.assert_close(got.double().flatten(), expected.flatten(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", QUANTISED)
def test_longer_than_a_chunk(name: str, tmp_path: Path) -> None:
    kind, path = BY_NAME[name], tmp_path / "blocks"
    blocks = random_blocks(kind, 2 * CHUNK // kind.block + 3)
    path.write_bytes(blocks.tobytes())
    got = read_tensor(path, (len(blocks), kind.block), kind, offset=0)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = gguf.dequantize(blocks, GGMLQuantizationType[name])
    assert np.array_equal(got.numpy(), expected, equal_nan=True)
    assert np.isfinite(expected).mean() > 0.9


@pytest.mark.parametrize("name", NATIVE)
def test_types_that_torch_has(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)  # as if it were not installed
    kind, path = BY_NAME[name], tmp_path / "values"
    expected = torch.arange(-12, 12).reshape(2, 3, 4).to(kind.dtype)
    path.write_bytes(expected.view(torch.uint8).numpy().tobytes())
    got = read_tensor(path, (2, 3, 4), kind, offset=0)
    assert got.dtype == kind.dtype
    assert torch.equal(got, expected)
    path.write_bytes(b"")
    assert torch.equal(got, expected)  # its memory is its own


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(34))
    with pytest.raises(
        CutawayError, match=r"model\.gguf: its weights are quantised \(Q8_0\).*pip install gg"
    ):
        read_tensor(path, (32,), BY_NAME["Q8_0"], offset=0)


@pytest.mark.parametrize("name", sorted(CANNOT))
def test_types_that_nobody_can_dequantise(name: str, tmp_path: Path) -> None:
    kind, path = BY_NAME[name], tmp_path / "model.gguf"
    path.write_bytes(bytes(kind.bytes))
    with pytest.raises(CutawayError, match=rf"model\.gguf: the type {name} cannot be dequantised"):
        read_tensor(path, (kind.block,), kind, offset=0)


@pytest.mark.parametrize("name", ["F16", "Q4_1"])
def test_a_file_that_became_shorter(name: str, tmp_path: Path) -> None:
    kind, path = BY_NAME[name], tmp_path / "model.gguf"
    path.write_bytes(bytes(kind.size(64) - 1))
    with pytest.raises(CutawayError, match="ends in the middle of a tensor"):
        read_tensor(path, (64,), kind, offset=0)


def test_infinite_scales_are_quiet(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(struct.pack("<e", math.inf) + bytes(32))
    assert read_tensor(path, (32,), BY_NAME["Q8_0"], offset=0).isnan().all()
