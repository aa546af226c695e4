"""The header of a safetensors file: what is right is read as the library reads it, what lies is refused at once."""

import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch

from cutaway.checkpoint.contents import Stored
from cutaway.checkpoint.safetensors_file import DTYPES, read_header, write
from cutaway.errors import CutawayError

Limit = Callable[[float], AbstractContextManager[None]]
ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
EIGHT = b"\0" * 8


def file_of(header: bytes | str | dict[str, object], data: bytes = EIGHT, length: int | None = None) -> bytes:
    """A safetensors file; `length` is what it says of its header."""
    text = json.dumps(header) if isinstance(header, dict) else header
    raw = text.encode() if isinstance(text, str) else text
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def one(**changes: object) -> bytes:
    return file_of({"a": ONE | changes})


def two(first: list[int], second: list[int], shape: list[int], data: int) -> bytes:
    entries: dict[str, object] = {
        name: ONE | {"shape": shape, "data_offsets": at} for name, at in (("a", first), ("b", second))
    }
    return file_of(entries, b"\0" * data)


def many(count: int) -> str:
    entry = '"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    return "{" + ",".join(entry % i for i in range(count)) + "}"


WHOLE = one()
TEXT = json.dumps({"a": ONE})
LIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it has 0 bytes"),
    "seven bytes": (b"\2\0\0\0\0\0\0", "it has 7 bytes"),
    "length alone": (EIGHT, "begins with b''"),
    "cut short": (WHOLE[:-1], "lies at [0, 8]"),
    "cut in the header": (WHOLE[:30], "header is said to have"),
    "bytes at the end": (WHOLE + b"PK", "end at byte 8 of the data, which has 10"),
    "length beyond the file": (file_of(TEXT, length=len(TEXT) + 9), "header is said to have"),
    "length of 2^63": (file_of(TEXT, length=2**63), "header is said to have 9,223,372,036,854,775,808"),
    "length of 100,000,001": (file_of(TEXT, length=100_000_001), "header is said to have 100,000,001"),
    "length too short": (file_of(TEXT, length=len(TEXT) - 2), "not JSON"),
    "length of 0": (file_of(TEXT, length=0), "begins with b''"),
    "space before": (file_of(" " + TEXT), "begins with b' '"),
    "byte order mark": (file_of("\ufeff" + TEXT), "begins with b'\\xef'"),
    "a list": (file_of("[]"), "begins with b'['"),
    "not JSON": (file_of("{'a'}"), "not JSON"),
    "two objects": (file_of(TEXT + "{}"), "not JSON"),
    "not UTF-8": (file_of(b'{"\xff": 1}'), "not UTF-8 at byte 2"),
    "nested deeply": (file_of('{"a":' * 100_000), "not JSON"),
    "nested lists": (file_of('{"a":' + "[" * 100_000), "not JSON"),
    "a number of 5,000 digits": (file_of('{"a":' + "9" * 5000 + "}"), "not JSON"),
    "a tensor twice": (file_of(TEXT[:-1] + "," + TEXT[1:]), "'a' stands there twice"),
    "a tensor twice, escaped": (file_of(TEXT[:-1] + ',"\\u0061"' + TEXT[4:]), "'a' stands there twice"),
    "a dtype twice": (file_of(TEXT.replace("[2],", '[2], "dtype": "I32",')), "described by dtype, shape and"),
    "metadata twice": (file_of('{"__metadata__":{},"__metadata__":{}}', b""), "twice"),
    "metadata of numbers": (file_of({"__metadata__": {"x": 1}, "a": ONE}), "no table of texts"),
    "metadata is a text": (file_of({"__metadata__": "x", "a": ONE}), "no table of texts"),
    "a metadata key twice": (file_of('{"__metadata__":{"x":"1","x":"2"}}', b""), "key of __metadata__"),
    "no dtype": (file_of({"a": {"shape": [2], "data_offsets": [0, 8]}}), "described by dtype"),
    "one key more": (one(strides=[1]), "described by dtype"),
    "an entry that is a number": (file_of({"a": 1}), "described by dtype"),
    "an entry that is nothing": (file_of({"a": None}), "described by dtype"),
    "unknown dtype": (one(dtype="F33"), "has the dtype 'F33', expected one of F64"),
    "dtype that is a list": (one(dtype=["F32"]), "has the dtype ['F32']"),
    "negative dimension": (one(shape=[-2]), "has the shape [-2]"),
    "fraction": (one(shape=[2.0]), "has the shape [2.0]"),
    "truth value": (one(shape=[True, 2]), "has the shape [True, 2]"),
    "shape that is a number": (one(shape=2), "has the shape 2"),
    "nine dimensions": (one(shape=[2] + [1] * 8), "expected at most 8 whole numbers"),
    "product of 2^64": (one(shape=[2**32, 2**32]), "has the shape [4294967296, 4294967296]"),
    "product that overflows to 2": (one(shape=[2**63 + 1, 2]), "has the shape"),
    "product of 2^80 times zero": (one(shape=[2**40, 2**40, 0], data_offsets=[0, 0]), "has the shape"),
    "dimension of 5,000 bits": (one(shape=[2**5000]), "has the shape"),
    "shape too large": (one(shape=[3]), "which takes 12 bytes, but has 8"),
    "shape too small": (one(shape=[1]), "which takes 4 bytes, but has 8"),
    "offsets backwards": (one(data_offsets=[8, 0]), "lies at [8, 0]"),
    "offsets negative": (one(data_offsets=[-8, 0]), "lies at [-8, 0]"),
    "offsets beyond the file": (one(shape=[2**40], data_offsets=[0, 2**42]), "expected two places within 8 bytes"),
    "three offsets": (one(data_offsets=[0, 4, 8]), "lies at [0, 4, 8]"),
    "offsets as texts": (one(data_offsets=["0", "8"]), "lies at ['0', '8']"),
    "a hole": (two([0, 4], [8, 12], [1], 12), "'b' begins at byte 8, which leaves a gap before it (4)"),
    "a hole at the start": (one(shape=[1], data_offsets=[4, 8]), "leaves a gap before it (0)"),
    "overlap": (two([0, 8], [4, 12], [2], 12), "'b' begins at byte 4, which overlaps the one before it (8)"),
    "the same range twice": (two([0, 8], [0, 8], [2], 8), "overlaps the one before it"),
    "an empty tensor within another": (
        file_of({"a": ONE, "b": ONE | {"shape": [0], "data_offsets": [4, 4]}}), "overlaps the one before it"
    ),
    "tensors without their bytes": (file_of("{}"), "end at byte 0 of the data, which has 8"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_at_once(
    lie: str, tmp_path: Path, grows_less_than: Limit, takes_less_than: Limit
) -> None:
    content, message = LIES[lie]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with takes_less_than(1), grows_less_than(50), pytest.raises(CutawayError) as error:
        read_header(path)
    assert str(error.value).startswith(f"{path}: not a whole safetensors file: ")
    assert message in str(error.value)
    assert len(str(error.value)) < 500


LARGE: dict[str, tuple[Callable[[], str], str]] = {
    "300,000 tensors": (lambda: many(300_000), "more than 100,000 tensors"),
    "300,000 tables": (
        lambda: "{" + ",".join(f'"{i}":{{}}' for i in range(300_000)) + "}",
        "100,000 tensors",
    ),
    "a name of 1 MB": (lambda: json.dumps({"n" * 10**6: ONE}), "name of more than 512 bytes"),
    "a shape of 10^6": (lambda: json.dumps({"a": ONE | {"shape": [1] * 10**6}}), "expected at most 8 whole"),
    "a shape of 10^7": (lambda: '{"a":[' + "1," * 10**7 + "1]}", "lists more than 1,500,000 values"),
    "31 MB of braces": (lambda: '{"a":' * 6_200_000, "not JSON"),
    "31 MB of text": (lambda: json.dumps({"a": "x" * 31_000_000}), "described by dtype"),
}


@pytest.mark.parametrize("lie", LARGE)
def test_large_headers_are_refused_in_little_memory(
    lie: str, tmp_path: Path, grows_less_than: Limit, takes_less_than: Limit
) -> None:
    header, message = LARGE[lie]
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(header()))
    with takes_less_than(2), grows_less_than(200), pytest.raises(CutawayError, match=message):
        read_header(path)


def test_what_the_library_writes_is_read_as_the_library_reads_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "x.safetensors"
    given = {name: torch.randint(0, 2, (3, 5)).to(dtype) for name, dtype in DTYPES.items()}
    given |= {"scalar": torch.tensor(3.5), "none": torch.zeros(0, 7), "é": torch.randn(2, 3, 4).bfloat16()}
    safetensors.torch.save_file(given, path, metadata={"format": "pt", "commas": ",,,"})
    found = read_header(path)
    assert set(found) == set(given)
    for name, expected in safetensors.torch.load_file(path).items():
        stored = found[name]
        assert (stored.shape, stored.dtype) == (expected.shape, expected.dtype), name
        value = stored.read()
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype), name
        assert torch.equal(value.view(torch.uint8) if value.ndim else value,
                           expected.view(torch.uint8) if value.ndim else expected), name  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_is_written_is_read_by_the_library(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "x.safetensors"
    given = {
        "a": torch.randn(3, 5),
        "b": torch.tensor(3.5),
        "none": torch.zeros(0, 7),
        "é": torch.randn(7).half(),
    }
    stored = {name: Stored(tuple(t.shape), t.dtype, t.clone) for name, t in given.items()}
    write(path, stored, dtype)
    found = safetensors.torch.load_file(path)
    assert set(found) == set(given)
    assert all(torch.equal(found[name], given[name].to(dtype)) for name in given)
    with safetensors.safe_open(path, "pt") as opened:
        assert opened.metadata() == {"format": "pt"}
    assert [other.name for other in tmp_path.iterdir()] == ["x.safetensors"]


def test_values_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    fits, too_large = torch.tensor([65519.0, -3.0]), torch.tensor([1.0, -65520.0])
    write(path, {"a": Stored((2,), torch.float32, lambda: fits)}, torch.float16)
    before = path.read_bytes()
    with pytest.raises(
        CutawayError, match=r"tensor 'a' has values up to 6.552e\+04, more than float16 can hold"
    ):
        write(path, {"a": Stored((2,), torch.float32, lambda: too_large)}, torch.float16)
    assert path.read_bytes() == before  # neither half a file nor a spoilt one
    assert [other.name for other in tmp_path.iterdir()] == ["x.safetensors"]


@pytest.mark.parametrize("change", ["cut", "replaced", "gone"])
def test_a_file_that_changes_before_a_tensor_is_read(change: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(WHOLE)
    stored = read_header(path)["a"]
    if change == "cut":
        path.write_bytes(WHOLE[:-4])
    elif change == "replaced":
        path.rename(tmp_path / "old")
        path.write_bytes(WHOLE)
    else:
        path.unlink()
    message = "cannot be read: No such file" if change == "gone" else "changed while it was being read"
    with pytest.raises(CutawayError, match=message):
        stored.read()


def test_whatever_bytes_change_nothing_but_an_error_comes_of_it(tmp_path: Path) -> None:
    """What our check lets pass, the library opens too, with the same tensors."""
    path = tmp_path / "x.safetensors"
    safetensors.torch.save_file({"a": torch.ones(2, 3), "b": torch.zeros(4).half()}, path)
    whole, draw, passed = path.read_bytes(), random.Random(0), 0
    for _ in range(800):
        spoilt = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(whole) - 32)
            spoilt[place] = draw.choice(b'0123456789{}[]":, \\-eF\xff\0' if place >= 8 else range(256))
        path.write_bytes(spoilt)
        try:
            found = read_header(path)
        except CutawayError:
            continue
        passed += 1
        with safetensors.safe_open(path, "pt") as opened:
            assert set(opened.keys()) == set(found)
            for name, stored in found.items():
                assert opened.get_slice(name).get_shape() == list(stored.shape)
    assert 10 < passed < 400
