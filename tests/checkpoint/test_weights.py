"""Safetensors weights: what is right is read as the library reads it, what lies is refused at once; one file or several
with an index."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from tests.checkpoint.models import write
from tests.limits import grows_less_than, takes_less_than

from cutaway.checkpoint import folder
from cutaway.checkpoint.stored import Stored
from cutaway.checkpoint.weights import DTYPES, INDEX, read_header
from cutaway.checkpoint.weights import write as write_file
from cutaway.errors import CutawayError

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
BROKEN = "not a whole safetensors file ("
LIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", BROKEN),
    "seven bytes": (b"\2\0\0\0\0\0\0", BROKEN),
    "length alone": (EIGHT, BROKEN),
    "cut short": (WHOLE[:-1], BROKEN),
    "cut in the header": (WHOLE[:30], BROKEN),
    "bytes at the end": (WHOLE + b"PK", BROKEN),
    "length beyond the file": (file_of(TEXT, length=len(TEXT) + 9), BROKEN),
    "length of 2^63": (file_of(TEXT, length=2**63), "header is said to have 9,223,372,036,854,775,808"),
    "length of 100,000,001": (file_of(TEXT, length=100_000_001), "header is said to have 100,000,001"),
    "length too short": (file_of(TEXT, length=len(TEXT) - 2), BROKEN),
    "length of 0": (file_of(TEXT, length=0), BROKEN),
    "space before": (file_of(" " + TEXT), "begins with b' '"),
    "byte order mark": (file_of("\ufeff" + TEXT), BROKEN),
    "a list": (file_of("[]"), BROKEN),
    "not JSON": (file_of("{'a'}"), BROKEN),
    "two objects": (file_of(TEXT + "{}"), BROKEN),
    "not UTF-8": (file_of(b'{"\xff": 1}'), BROKEN),
    "nested deeply": (file_of('{"a":' * 100_000), BROKEN),
    "nested lists": (file_of('{"a":' + "[" * 100_000), BROKEN),
    "a number of 5,000 digits": (file_of('{"a":' + "9" * 5000 + "}"), BROKEN),
    "a tensor twice": (file_of(TEXT[:-1] + "," + TEXT[1:]), "'a' stands there twice"),
    "a tensor twice, escaped": (file_of(TEXT[:-1] + ',"\\u0061"' + TEXT[4:]), "'a' stands there twice"),
    "a dtype twice": (file_of(TEXT.replace("[2],", '[2], "dtype": "I32",')), BROKEN),
    "metadata twice": (file_of('{"__metadata__":{},"__metadata__":{}}', b""), BROKEN),
    "metadata of numbers": (file_of({"__metadata__": {"x": 1}, "a": ONE}), BROKEN),
    "metadata is a text": (file_of({"__metadata__": "x", "a": ONE}), BROKEN),
    "a metadata key twice": (file_of('{"__metadata__":{"x":"1","x":"2"}}', b""), "'x' stands there twice"),
    "no dtype": (file_of({"a": {"shape": [2], "data_offsets": [0, 8]}}), BROKEN),
    "one key more": (one(strides=[1]), "not described as in any model"),
    "an entry that is a number": (file_of({"a": 1}), BROKEN),
    "an entry that is nothing": (file_of({"a": None}), BROKEN),
    "unknown dtype": (one(dtype="F33"), BROKEN),
    "dtype that is a list": (one(dtype=["F32"]), BROKEN),
    "negative dimension": (one(shape=[-2]), BROKEN),
    "fraction": (one(shape=[2.0]), BROKEN),
    "truth value": (one(shape=[True, 2]), BROKEN),
    "shape that is a number": (one(shape=2), BROKEN),
    "nine dimensions": (one(shape=[2] + [1] * 8), "not described as in any model"),
    "product of 2^64": (one(shape=[2**32, 2**32]), BROKEN),
    "product that overflows to 2": (one(shape=[2**63 + 1, 2]), BROKEN),
    "product of 2^80 times zero": (one(shape=[2**40, 2**40, 0], data_offsets=[0, 0]), BROKEN),
    "dimension of 5,000 bits": (one(shape=[2**5000]), BROKEN),
    "shape too large": (one(shape=[3]), BROKEN),
    "shape too small": (one(shape=[1]), BROKEN),
    "offsets backwards": (one(data_offsets=[8, 0]), BROKEN),
    "offsets negative": (one(data_offsets=[-8, 0]), BROKEN),
    "offsets beyond the file": (one(shape=[2**40], data_offsets=[0, 2**42]), BROKEN),
    "three offsets": (one(data_offsets=[0, 4, 8]), BROKEN),
    "offsets as texts": (one(data_offsets=["0", "8"]), BROKEN),
    "a hole": (two([0, 4], [8, 12], [1], 12), BROKEN),
    "a hole at the start": (one(shape=[1], data_offsets=[4, 8]), BROKEN),
    "overlap": (two([0, 8], [4, 12], [2], 12), BROKEN),
    "the same range twice": (two([0, 8], [0, 8], [2], 8), BROKEN),
    "an empty tensor within another": (file_of({"a": ONE, "b": ONE | {"shape": [0], "data_offsets": [4, 4]}}), BROKEN),
    "tensors without their bytes": (file_of("{}"), BROKEN),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_at_once(lie: str, tmp_path: Path) -> None:
    content, message = LIES[lie]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with takes_less_than(1), grows_less_than(50), pytest.raises(CutawayError) as error:
        read_header(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert len(str(error.value)) < 500


LARGE: dict[str, tuple[Callable[[], str], str]] = {
    "300,000 tensors": (lambda: many(300_000), "lists more than 100,000 tensors"),
    "300,000 tables": (lambda: "{" + ",".join(f'"{i}":{{}}' for i in range(300_000)) + "}", "not a whole"),
    "a name of 1 MB": (lambda: json.dumps({"n" * 10**6: ONE}), "not described as in any model"),
    "a shape of 10^6": (lambda: json.dumps({"a": ONE | {"shape": [1] * 10**6}}), "not a whole"),
    "a shape of 10^6 that fits": (
        lambda: json.dumps({"a": ONE | {"shape": [2, *[1] * 10**6]}}), "not described as in any model",
    ),
    "a shape of 10^7": (lambda: '{"a":[' + "1," * 10**7 + "1]}", "lists more than 100,000 tensors"),
    "31 MB of braces": (lambda: '{"a":' * 6_200_000, "not a whole"),
    "31 MB of text": (lambda: json.dumps({"a": "x" * 31_000_000}), "not a whole"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LARGE)
def test_large_headers_are_refused_in_little_memory(lie: str, tmp_path: Path) -> None:
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
    write_file(path, stored, dtype)
    found = safetensors.torch.load_file(path)
    assert set(found) == set(given)
    assert all(torch.equal(found[name], given[name].to(dtype)) for name in given)
    with safetensors.safe_open(path, "pt") as opened:
        assert opened.metadata() == {"format": "pt"}
    assert [other.name for other in tmp_path.iterdir()] == ["x.safetensors"]


def test_values_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    fits, too_large = torch.tensor([65519.0, -3.0]), torch.tensor([1.0, -65520.0])
    write_file(path, {"a": Stored((2,), torch.float32, lambda: fits)}, torch.float16)
    before = path.read_bytes()
    with pytest.raises(
        CutawayError, match=r"tensor 'a' has values up to 6.552e\+04, more than float16 can hold"
    ):
        write_file(path, {"a": Stored((2,), torch.float32, lambda: too_large)}, torch.float16)
    # neither half a file nor a spoilt one
    assert path.read_bytes() == before
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


def same(first: folder.Loaded, second: folder.Loaded) -> bool:
    expected = dict(first.model.named_parameters())
    found = dict(second.model.named_parameters())
    return set(found) == set(expected) and all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "marian", "cutaway"])
def test_written_in_shards_and_read_back_is_the_same_model(kind: str, tmp_path: Path) -> None:
    whole = folder.load(write(tmp_path / "whole", kind))
    folder.save(tmp_path / "parts", whole.model, shard_size=10_000)
    files = sorted(file.name for file in (tmp_path / "parts").glob("*.safetensors"))
    count = len(files)
    assert count > 2
    assert files == [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    index = json.loads((tmp_path / "parts" / INDEX).read_text())
    assert set(index["weight_map"].values()) == set(files)
    sizes = [file.stat().st_size for file in (tmp_path / "parts").glob("*.safetensors")]
    assert index["metadata"]["total_size"] < sum(sizes)
    assert same(folder.load(tmp_path / "parts"), whole)


def test_no_more_bytes_than_asked_for(tmp_path: Path) -> None:
    model = folder.load(write(tmp_path / "whole", "llama")).model
    largest = max(p.numel() for p in model.parameters())
    for dtype, width in ((torch.float32, 4), (torch.float16, 2)):
        for size in (1, largest * width, 10**9):
            folder.save(tmp_path / "parts", model, dtype=dtype, shard_size=size)
            files = list((tmp_path / "parts").glob("*.safetensors"))
            tensors = [read_header(file) for file in files]
            for held in tensors:
                bytes_held = sum(stored.read().numel() * width for stored in held.values())
                assert bytes_held <= size or len(held) == 1
            assert (len(files) == 1) == (size == 10**9)
            assert (tmp_path / "parts" / INDEX).exists() == (size < 10**9)
            # what lay there before is gone
            folder.load(tmp_path / "parts")
