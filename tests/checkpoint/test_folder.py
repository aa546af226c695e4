"""A model folder: written and read back the same, refused with a clear word when anything in it is wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from cutaway.checkpoint import folder
from cutaway.config import ModelConfig, parse
from cutaway.errors import CutawayError
from cutaway.models.build import PRESETS, build

SMALL = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 40}
CONFIGS: dict[str, dict[str, object]] = {
    "marian": {
        **PRESETS["marian-tiny"], **SMALL, "embed_scale": 24**0.5, "pad_id": 0, "eos_id": 2, "decoder_start_id": 0,
    },
    "m2m_100": {
        **PRESETS["m2m100-tiny"], **SMALL, "embed_scale": 24**0.5, "pad_id": 0, "eos_id": 2,
        "decoder_start_id": 2, "position_offset": 1,
    },
    "llama": {**PRESETS["llama-tiny"], **SMALL, "n_kv_heads": 2},
    "gpt2": {**PRESETS["gpt2-small"], **SMALL},
    "bert": {**PRESETS["bert-tiny"], **SMALL},
    # what no published architecture here can say is written as our own
    "cutaway, an activation": {**PRESETS["gpt2-small"], **SMALL, "activation": "silu"},
    "cutaway, no segments": {**PRESETS["bert-tiny"], **SMALL, "n_segments": 0},
    "cutaway": {**PRESETS["llama-tiny"], **SMALL, "position": "alibi", "qk_norm": True},
}  # fmt: skip


def write(where: Path, kind: str) -> Path:
    torch.manual_seed(0)
    model = build(parse(ModelConfig, CONFIGS[kind], kind))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    folder.save(where, model)
    return where


@pytest.mark.parametrize("kind", CONFIGS)
def test_saved_and_loaded_is_the_same_model(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a", kind)
    assert json.loads((path / "config.json").read_text())["model_type"] == kind.partition(",")[0]
    loaded = folder.load(path)
    folder.save(tmp_path / "b", loaded.model)
    for name in ("config.json", "model.safetensors", "generation_config.json"):
        assert (path / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert loaded.config.vocab_size == 61


def test_half_precision_takes_half_the_room_and_is_read_back(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "marian")
    loaded = folder.load(path)
    folder.save(tmp_path / "b", loaded.model, dtype=torch.bfloat16)
    whole, half = (p / "model.safetensors" for p in (path, tmp_path / "b"))
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    again = folder.load(tmp_path / "b")
    for name, parameter in again.model.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, loaded.model.get_parameter(name).bfloat16().float()), name


def tensors(path: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(path / "model.safetensors")


def rewrite(path: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    found = tensors(path)
    change(found)
    safetensors.torch.save_file({k: v.clone() for k, v in found.items()}, path / "model.safetensors")


def test_a_tied_matrix_may_lie_under_either_name(tmp_path: Path) -> None:
    path = write(tmp_path, "llama")
    expected = folder.load(path).model.state_dict()
    rewrite(path, lambda t: t.update({"lm_head.weight": t.pop("model.embed_tokens.weight")}))
    for name, value in folder.load(path).model.state_dict().items():
        assert torch.equal(value, expected[name]), name
    rewrite(path, lambda t: t.update({"model.embed_tokens.weight": t["lm_head.weight"]}))
    folder.load(path)
    rewrite(path, lambda t: t.update({"model.embed_tokens.weight": t["lm_head.weight"] + 1}))
    with pytest.raises(CutawayError, match=r"tied by the config but differ"):
        folder.load(path)
    rewrite(path, lambda t: (t.pop("lm_head.weight"), t.pop("model.embed_tokens.weight")))
    with pytest.raises(CutawayError, match=r"model\.embed_tokens\.weight or lm_head\.weight is missing"):
        folder.load(path)


def test_wrong_tensors_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "bert")
    rewrite(path, lambda t: t.pop("cls.predictions.transform.dense.bias"))
    with pytest.raises(CutawayError, match=r"cls\.predictions\.transform\.dense\.bias is missing"):
        folder.load(path)
    write(tmp_path, "bert")
    rewrite(
        path, lambda t: t.update({"bert.extra": torch.zeros(1), "bert.pooler.dense.bias": torch.zeros(24)})
    )
    with pytest.raises(CutawayError, match=r"1 tensors belong to no part of a bert model: bert\.extra"):
        folder.load(path)
    write(tmp_path, "bert")
    rewrite(path, lambda t: t.update({"bert.embeddings.LayerNorm.bias": torch.zeros(25)}))
    with pytest.raises(CutawayError, match=r"shape \[25\], the config asks for \[24\]"):
        folder.load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "lama"}, r"model_type is 'lama' \(did you mean 'llama'\?\)"),
        ({"hidden_size": None}, "d_model is None"),
        ({"hidden_size": "24"}, "d_model is '24', expected a whole number"),
        ({"hidden_size": -24}, "d_model is -24"),
        ({"num_attention_heads": 5}, "multiple of n_heads"),
        (
            {"rope_parameters": {"rope_type": "llama3"}},
            "rope_parameters: rope_type 'llama3' is not supported",
        ),
        ({"rope_parameters": 3}, "rope_parameters is 3"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is supported for llama"),
    ],
)
def test_a_wrong_config_names_the_key(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    path = write(tmp_path, "llama")
    values = json.loads((path / "config.json").read_text())
    for key in ("head_dim",) if "num_attention_heads" in changes else ():
        values[key] = None
    (path / "config.json").write_text(json.dumps(values | changes))
    with pytest.raises(CutawayError, match=message) as error:
        folder.load(path)
    assert "config.json" in str(error.value)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "gpt2")
    values = json.loads((path / "config.json").read_text())
    del values["n_embd"]
    (path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CutawayError, match=r"config\.json: key 'n_embd' is missing"):
        folder.load(path)


def test_what_is_no_model_folder(tmp_path: Path) -> None:
    with pytest.raises(CutawayError, match="no such model folder"):
        folder.load(tmp_path / "nothing")
    with pytest.raises(CutawayError, match=r"config\.json is missing"):
        folder.load(tmp_path)
    path = write(tmp_path / "model", "llama")
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[:-8])
    with pytest.raises(CutawayError, match=r"model\.safetensors: not a whole safetensors file"):
        folder.load(path)
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(CutawayError, match=r"pytorch_model\.bin is a pickle.*convert it to safetensors"):
        folder.load(path)
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes(whole)
    (path / "model.safetensors").symlink_to(outside)
    with pytest.raises(CutawayError, match="leads out of the model folder"):
        folder.load(path)
    (path / "config.json").write_text('{"model_type": "llama", "model_type": "gpt2"}')
    with pytest.raises(CutawayError, match="'model_type' stands there twice"):
        folder.load(path)
