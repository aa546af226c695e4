"""Files and folders of other tools: said what they are, and what to do."""

import json
import struct
from pathlib import Path

import pytest
from tests.checkpoint.models import change_json, write

from cutaway.checkpoint import folder
from cutaway.errors import CutawayError

PICKLED = b"\x80\x02}q\x00."
CTRANSLATE2 = struct.pack("<I", 6) + struct.pack("<H", 16) + b"TransformerSpec\0" + bytes(40)
LLAMA2_C = struct.pack("<7i", 288, 768, 6, 6, 6, 32_000, 256) + bytes(40)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("model.bin", CTRANSLATE2, "a model of CTranslate2.*open the model that it was converted from"),
        ("stories15M.bin", LLAMA2_C, r"a model of llama2\.c: write it as a Hugging Face folder"),
        ("stories.bin", b"24ka" + bytes(60), r"a model of llama2\.c"),
        ("ggml-model.bin", b"tjgg" + bytes(60), "a GGML file, the form before GGUF"),
        ("model.pt", PICKLED, "a pickle.*the library that wrote it"),
        ("tiny.bin", b"", "a pickle"),
    ],
)
def test_weights_that_are_not_read(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model", "llama")
    (path / "model.safetensors").unlink()
    (path / name).write_bytes(data)
    for given in (path, path / name):
        with pytest.raises(CutawayError, match=f"{name} is {message}"):
            folder.load(given)


def test_an_adapter_names_its_base_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "someone/base"}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(CutawayError, match=r"an adapter and not a model: merge it into .*'someone/base'"):
        folder.load(tmp_path)
    # some hold their base's config too
    model = write(tmp_path / "model", "llama")
    (model / "model.safetensors").unlink()
    (tmp_path / "adapter_config.json").rename(model / "adapter_config.json")
    with pytest.raises(CutawayError, match="an adapter and not a model"):
        folder.load(model)


def test_a_cache_of_downloads_names_its_versions(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--someone--something"
    write(repository / "snapshots" / "0a1b", "llama")
    with pytest.raises(CutawayError, match=r"give the folder of a version in it, snapshots/0a1b"):
        folder.load(repository)
    for cache in (tmp_path, tmp_path / "hub"):
        with pytest.raises(
            CutawayError, match=r"a cache of downloads: .*models--someone--something/snapshots/"
        ):
            folder.load(cache)


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8"])
def test_quantised_weights_are_refused_by_their_method(method: str, tmp_path: Path) -> None:
    path = write(tmp_path, "llama")
    change_json(path / "config.json", quantization_config={"quant_method": method, "bits": 4})
    with pytest.raises(CutawayError, match=f"quantised by '{method}', which is not read.*or a GGUF file"):
        folder.load(path)
