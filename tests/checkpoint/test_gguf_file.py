"""GGUF headers: what is read from a good one; a lying one is refused at once, without the memory it asks for."""

import math
import random
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from tests.limits import takes_less_than

from cutaway.checkpoint.gguf_file import CHUNK, TYPES, GgufType, Placed, read_header
from cutaway.checkpoint.gguf_model import read_gguf
from cutaway.checkpoint.stored import Place, version_of
from cutaway.errors import CutawayError

FLOAT32, STRING, ARRAY, U32 = 6, 8, 9, 4
F32, Q8_0 = 0, 8


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def number(key: bytes, value: int) -> bytes:
    return text(key) + struct.pack("<II", U32, value)


def array(key: bytes, kind: int, length: int, data: bytes = b"") -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, kind, length) + data


def tensor(name: bytes, sizes: tuple[int, ...], kind: int = F32, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def whole(
    pairs: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: int = 32,
    counts: tuple[int, int] | None = None,
    version: int = 3,
    magic: bytes = b"GGUF",
) -> bytes:
    """A file of these entries, with so many bytes of tensors; `counts` are what it claims instead of the truth."""
    n_tensors, n_pairs = counts or (len(tensors), len(pairs))
    header = magic + struct.pack("<IQQ", version, n_tensors, n_pairs) + b"".join(pairs) + b"".join(tensors)
    return header + b"\0" * (-len(header) % 32) + b"\0" * data


HOSTILE = {
    "empty": (b"", "must end within 0 bytes"),
    "only magic": (b"GGUF", "must end within 4 bytes"),
    "another format": (whole(magic=b"PK\3\4"), "no GGUF file"),
    "version 1": (whole(version=1), "version 1"),
    "version 4": (whole(version=4), "version 4"),
    "big-endian": (whole(version=3 << 24), "big-endian"),
    "2^64-1 tensors": (whole(counts=(2**64 - 1, 0)), "limit of 100000"),
    "100,001 tensors": (whole(counts=(100_001, 0)), "limit of 100000"),
    "100,000 tensors claimed": (whole(counts=(100_000, 0)), "tensor 0"),
    "2^63 entries": (whole(counts=(0, 2**63)), "limit of 10000"),
    "key of 2^63 bytes": (whole([text(b"k", 2**63)]), "name of 9223372036854775808 bytes"),
    "key of 0 bytes": (whole([number(b"", 1)]), "name of 0 bytes"),
    "key of 1 MB": (whole([number(b"k" * 1_000_000, 1)]), "name of 1000000 bytes"),
    "key not UTF-8": (whole([number(b"\xff", 1)]), "not UTF-8"),
    "duplicate key": (whole([number(b"k", 1), number(b"k", 2)]), "'k' stands there twice"),
    "unknown type": (whole([text(b"k") + struct.pack("<II", 13, 0)]), "unknown type 13"),
    "string of 2^62 bytes": (
        whole([text(b"k") + struct.pack("<I", STRING) + text(b"v", 2**62)]),
        "asks for 4611686018427387904 bytes",
    ),
    "string not UTF-8": (whole([text(b"k") + struct.pack("<I", STRING) + text(b"ab\xff")]), "byte 2"),
    "boolean of 2": (whole([text(b"k") + struct.pack("<IB", 7, 2)]), "neither 0 nor 1"),
    "array of 2^60 floats": (whole([array(b"k", FLOAT32, 2**60)]), "more than all arrays may have"),
    "array of 2,000,000 strings": (whole([array(b"k", STRING, 2_000_000)]), "'k' asks for"),
    "array of 2,000,000 floats": (whole([array(b"k", FLOAT32, 2_000_000)]), "asks for 8000000 bytes"),
    "array of arrays": (whole([array(b"k", ARRAY, 1)]), "array of type 9"),
    "alignment 0": (whole([number(b"general.alignment", 0)]), "power of two"),
    "alignment 48": (whole([number(b"general.alignment", 48)]), "power of two"),
    "alignment 2^31": (whole([number(b"general.alignment", 2**31)]), "power of two"),
    "name of 513 bytes": (whole(tensors=[tensor(b"t" * 513, (8,))]), "name of 513 bytes"),
    "no dimensions": (whole(tensors=[tensor(b"t", ())]), "0 dimensions"),
    "2^32-1 dimensions": (
        whole(tensors=[text(b"t") + struct.pack("<I", 2**32 - 1)]),
        "4294967295 dimensions",
    ),
    "size 0": (whole(tensors=[tensor(b"t", (8, 0))]), "shape [0, 8]"),
    "sizes beyond the file": (whole(tensors=[tensor(b"t", (2**32, 2**32, 2**32))]), "cut short"),
    "product of 2^64": (whole(tensors=[tensor(b"t", (2**32, 2**32))]), "cut short"),
    "unknown tensor type": (whole(tensors=[tensor(b"t", (8,), 99)]), "unknown type 99"),
    "a type that was removed": (whole(tensors=[tensor(b"t", (8,), 4)]), "unknown type 4"),
    "row that is no block": (whole(tensors=[tensor(b"t", (33,), Q8_0)]), "a multiple of Q8_0's 32"),
    "duplicate tensor": (
        whole(tensors=[tensor(b"t", (8,)), tensor(b"t", (8,), offset=32)], data=64),
        "'t' stands",
    ),
    "tensor over another": (whole(tensors=[tensor(b"t", (8,)), tensor(b"u", (8,))], data=64), "expected 32"),
    "hole": (whole(tensors=[tensor(b"t", (8,), offset=32)], data=64), "expected 0"),
    "offset 2^64-32": (whole(tensors=[tensor(b"t", (8,), offset=2**64 - 32)]), "expected 0"),
    "one byte short": (whole(tensors=[tensor(b"t", (8,))], data=31), "cut short"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_lying_header(name: str, tmp_path: Path) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    with takes_less_than(1), pytest.raises(CutawayError) as caught:
        read_header(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert peak < len(content) + 5_000_000


def test_a_header_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(b"k") + struct.pack("<I", STRING))
        file.write(struct.pack("<Q", 2**36))
        # the bytes are there, as a hole that takes no room on the disk
        file.truncate(2**36 + 1000)
    with pytest.raises(CutawayError, match="must end within 32000000 bytes"):
        read_header(path)


def test_as_many_tensors_as_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(
        whole(tensors=[tensor(b"t%d" % i, (8,), offset=32 * i) for i in range(100_000)], data=3_200_000)
    )
    # minutes if it were quadratic
    with takes_less_than(5):
        assert len(read_header(path).tensors) == 100_000


def test_not_there(tmp_path: Path) -> None:
    with pytest.raises(CutawayError, match=r"nothing\.gguf: cannot be read: No such file"):
        read_header(tmp_path / "nothing.gguf")


def small_file(path: Path) -> None:
    """A file that has every kind of metadata and two tensors."""
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_add_bos_token(False)
    writer.add_token_list(["a", "乙", "c"])
    writer.add_token_scores([0.5, -1.0, 2.0])
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -(2**62))
    writer.add_float64("f64", 0.1)
    writer.add_int8("i8", -3)
    writer.add_array("switches", [True, False])
    writer.add_tensor("one", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("two", np.ones(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_what_is_read(tmp_path: Path) -> None:
    small_file(tmp_path / "model.gguf")
    header = read_header(tmp_path / "model.gguf")
    assert header.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.tokens": ["a", "乙", "c"],
        "tokenizer.ggml.scores": [0.5, -1.0, 2.0],
        "u64": 2**63,
        "i64": -(2**62),
        "f64": 0.1,
        "i8": -3,
        "switches": [True, False],
    }
    assert [(name, t.shape, t.type.name) for name, t in header.tensors.items()] == [
        ("one", (2, 3), "F32"),
        ("two", (5,), "F16"),
    ]
    assert torch.equal(header.tensors["one"].read(), torch.arange(6.0).reshape(2, 3))
    assert torch.equal(header.tensors["two"].read(), torch.ones(5).half())
    assert torch.equal(header.tensors["one"].part(1).read(), torch.tensor([3.0, 4.0, 5.0]))


def test_cut_anywhere(tmp_path: Path) -> None:
    small_file(tmp_path / "model.gguf")
    content = (tmp_path / "model.gguf").read_bytes()
    end = read_header(tmp_path / "model.gguf").tensors["two"]
    cut = tmp_path / "cut.gguf"
    for length in range(0, end.place.begin + end.size, 3):
        cut.write_bytes(content[:length])
        with pytest.raises(CutawayError, match=r"cut\.gguf"):
            read_header(cut)


def test_changed_anywhere(tmp_path: Path) -> None:
    """Whatever a byte becomes, the file is opened or refused with a message, never anything else."""
    small_file(tmp_path / "model.gguf")
    content = (tmp_path / "model.gguf").read_bytes()
    header_ends = read_header(tmp_path / "model.gguf").tensors["one"].place.begin
    draw, changed = random.Random(0), tmp_path / "changed.gguf"
    refused: list[str] = []
    for _ in range(500):
        bad = bytearray(content)
        for _ in range(draw.choice((1, 1, 2, 8))):
            bad[draw.randrange(header_ends)] = draw.choice((0, 1, 8, 9, 127, 128, 255, draw.randrange(256)))
        changed.write_bytes(bad)
        try:
            read_gguf(changed)
        except CutawayError as error:
            refused.append(str(error))
    assert all(str(changed) in message for message in refused)
    assert len(refused) > 250


# Tensors of every type that there is, against independent calculations from the formats' definitions (ggml-common.h and
# ggml-quants.c of ggml-org/ggml).

BY_NAME = {kind.name: kind for kind in TYPES.values()}
CANNOT = {"Q8_1", "Q8_K", "Q1_0"}  # no file has the first two: they are for sums in between
NATIVE = [kind.name for kind in TYPES.values() if kind.dtype is not None]
QUANTISED = [kind.name for kind in TYPES.values() if kind.dtype is None and kind.name not in CANNOT]


def placed(path: Path, shape: tuple[int, ...], kind: GgufType, begin: int = 0) -> Placed:
    """A tensor in a file without a header."""
    return Placed(shape, kind, Place(path, version_of(path.stat()), begin))


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
    got = placed(path, (5, 8 * kind.block), kind, 6).read()
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
    got = placed(path, (len(blocks), kind.block), kind).read()
    with np.errstate(over="ignore", invalid="ignore"):
        expected = gguf.dequantize(blocks, GGMLQuantizationType[name])
    assert np.array_equal(got.numpy(), expected, equal_nan=True)
    assert np.isfinite(expected).mean() > 0.9


@pytest.mark.parametrize("name", NATIVE)
def test_types_that_torch_has(name: str, tmp_path: Path) -> None:
    kind, path = BY_NAME[name], tmp_path / "values"
    expected = torch.arange(-12, 12).reshape(2, 3, 4).to(kind.dtype)
    path.write_bytes(expected.view(torch.uint8).numpy().tobytes())
    got = placed(path, (2, 3, 4), kind).read()
    assert got.dtype == kind.dtype
    assert torch.equal(got, expected)
    path.write_bytes(b"")
    # its memory is its own
    assert torch.equal(got, expected)


@pytest.mark.parametrize("name", sorted(CANNOT))
def test_types_that_nobody_can_dequantise(name: str, tmp_path: Path) -> None:
    kind, path = BY_NAME[name], tmp_path / "model.gguf"
    path.write_bytes(bytes(kind.bytes))
    with pytest.raises(CutawayError, match=rf"model\.gguf: the type {name} cannot be dequantised"):
        placed(path, (kind.block,), kind).read()


@pytest.mark.parametrize("name", ["F16", "Q4_1"])
def test_a_file_that_became_shorter(name: str, tmp_path: Path) -> None:
    kind, path = BY_NAME[name], tmp_path / "model.gguf"
    path.write_bytes(bytes(kind.size(64) - 1))
    with pytest.raises(CutawayError, match="changed while it was being read"):
        placed(path, (64,), kind).read()


def test_infinite_scales_are_quiet(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(struct.pack("<e", math.inf) + bytes(32))
    assert placed(path, (32,), BY_NAME["Q8_0"]).read().isnan().all()
