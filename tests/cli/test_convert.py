"""`cutaway convert`: what it writes opens here and in transformers, and what it may not do."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from cutaway import load, save
from cutaway.cli.convert import size_in_bytes
from cutaway.errors import CutawayError


def values(path: Path) -> dict[str, torch.Tensor]:
    return dict(load(path).model.named_parameters())


def test_a_converted_model_is_the_same_model(cutaway, translator: Path, tmp_path: Path):
    result = cutaway("convert", translator, "out")
    assert (result.code, result.err) == (0, "")
    out = tmp_path / "out"
    for file in out.iterdir():
        assert f"{file.name}" in result.out
        assert f"{file.stat().st_size:,}" in result.out
        assert file.read_bytes() == (translator / file.name).read_bytes()
    assert {file.name for file in out.iterdir()} == {file.name for file in translator.iterdir()}
    parameters = sum(value.numel() for value in values(out).values())
    assert result.out.splitlines()[-1] == f"out: marian, {parameters:,} parameters, float32"
    first, second = (cutaway("translate", "好久不见。", "-m", model) for model in (translator, out))
    assert first == second


def test_type_and_shards(cutaway, poet: Path, tmp_path: Path):
    result = cutaway("convert", poet, "out", "--dtype", "bfloat16", "--shard-size", "4kB")
    assert (result.code, result.err) == (0, "")
    out = tmp_path / "out"
    shards = sorted(out.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"
    expected = values(poet)
    for name, value in values(out).items():
        assert torch.equal(value, expected[name].bfloat16().float()), name
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert theirs.dtype == torch.bfloat16
    again = cutaway("convert", out, "again")  # the files' own type is kept
    assert again.out.splitlines()[-1].endswith(", bfloat16")
    assert (tmp_path / "again" / "model.safetensors").exists()


def test_what_belongs_to_a_model_comes_along(cutaway, masked: Path, tmp_path: Path):
    source = tmp_path / "source"
    loaded = load(masked)
    save(source, loaded.model, loaded.tokenizer, {"num_beams": 7}, chat_template="{{ messages }}")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (source / "modules.json").write_text("[]")
    assert cutaway("convert", source, "out").code == 0
    found = load(tmp_path / "out")
    assert found.chat_template == "{{ messages }}"
    assert found.generation["num_beams"] == 7
    for name in ("modules.json", "1_Pooling/config.json"):
        assert (tmp_path / "out" / name).read_text() == (source / name).read_text()


def test_nothing_is_overwritten(cutaway, poet: Path, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    result = cutaway("convert", poet, "full")
    assert (result.code, result.out) == (2, "")
    assert result.err == "error: full: holds files already; give a new or an empty folder\n"
    result = cutaway("convert", poet, "full/mine.txt")
    assert result.err == "error: full/mine.txt: a file that is already there; give a new name\n"
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert cutaway("convert", poet, "empty").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dtype", "int8"), "--dtype is int8, expected float32, float16 or bfloat16"),
        (("--shard-size", "big"), "shard size is 'big', expected a size such as 500MB or 2GB"),
        (("--shard-size", "0"), "shard size is '0'"),
        (("--shard-size", "-5MB"), "shard size is '-5MB'"),
        (("--shard-size", "5TB"), "shard size is '5TB'"),
    ],
)
def test_wrong_options(cutaway, poet: Path, tmp_path: Path, arguments: tuple[str, str], message: str):
    result = cutaway("convert", poet, "out", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert not (tmp_path / "out").exists()


def test_values_that_do_not_fit_are_named(cutaway, poet: Path, tmp_path: Path):
    loaded = load(poet)
    with torch.no_grad():
        loaded.model.get_parameter("embed.tokens.weight")[0, 0] = 1e6
    save(tmp_path / "large", loaded.model, loaded.tokenizer)
    result = cutaway("convert", "large", "out", "--dtype", "float16")
    assert (result.code, result.out) == (2, "")
    assert "'model.embed_tokens.weight' has values up to 1e+06, more than float16 can hold" in result.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
@pytest.mark.parametrize("dtype", [(), ("--dtype", "bfloat16")])
def test_weights_that_are_not_finite_are_refused(
    cutaway, poet: Path, tmp_path: Path, value: float, dtype: tuple[str, ...]
):
    shutil.copytree(poet, tmp_path / "broken")
    tensors = load_file(poet / "model.safetensors")
    tensors["model.embed_tokens.weight"][3, 0] = value
    save_file(tensors, tmp_path / "broken" / "model.safetensors", {"format": "pt"})
    result = cutaway("convert", "broken", "out", *dtype)
    assert (result.code, result.out) == (2, "")
    assert (
        "tensor 'model.embed_tokens.weight' holds NaN or an infinity, expected finite weights" in result.err
    )
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_above_that_is_not_there_is_named(cutaway, poet: Path, tmp_path: Path):
    result = cutaway("convert", poet, "modles/out")
    assert (result.code, result.err) == (
        2,
        "error: modles/out: there is no folder modles to write to; make it first\n",
    )
    assert not (tmp_path / "modles").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1000000", 10**6), ("500MB", 500 * 10**6), ("500mb", 500 * 10**6), ("1.5 GiB", 3 * 2**29), ("2G", 2 * 10**9),
     ("7b", 7)],
)  # fmt: skip
def test_sizes(text: str, expected: int):
    assert size_in_bytes(text) == expected
    with pytest.raises(CutawayError):
        size_in_bytes(f"{text}x")
