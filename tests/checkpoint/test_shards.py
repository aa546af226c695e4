"""Weights in several files with an index: read as transformers writes them, written as transformers reads them."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from tests.checkpoint.models import write

from cutaway.checkpoint import folder

INDEX = "model.safetensors.index.json"


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
            tensors = [folder.shards.safetensors_file.read_header(file) for file in files]
            for held in tensors:
                bytes_held = sum(stored.read().numel() * width for stored in held.values())
                assert bytes_held <= size or len(held) == 1
            assert (len(files) == 1) == (size == 10**9)
            assert (tmp_path / "parts" / INDEX).exists() == (size < 10**9)
            folder.load(tmp_path / "parts")  # what lay there before is gone


def test_transformers_opens_our_shards_and_we_open_its(tmp_path: Path) -> None:
    ours = folder.load(write(tmp_path / "ours", "llama", shard_size=20_000))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float32).eval()
    ids = torch.randint(0, 61, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits, ours.model(ids), atol=1e-5)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert (tmp_path / "theirs" / INDEX).exists()
    assert same(folder.load(tmp_path / "theirs"), ours)
