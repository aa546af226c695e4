"""Small model folders that tests write, spoil and read."""

import json
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from cutaway.checkpoint import folder
from cutaway.config import ModelConfig, parse
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
    "cutaway, a norm": {**PRESETS["gpt2-small"], **SMALL, "norm": "rmsnorm"},
    "cutaway, an order": {**PRESETS["bert-tiny"], **SMALL, "norm_order": "pre"},
    "cutaway": {**PRESETS["llama-tiny"], **SMALL, "position": "alibi", "qk_norm": True},
}  # fmt: skip


def write(where: Path, kind: str, shard_size: int | None = None) -> Path:
    """A model folder of one of `CONFIGS` with random weights."""
    torch.manual_seed(0)
    model = build(parse(ModelConfig, CONFIGS[kind], kind))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    folder.save(where, model, shard_size=shard_size)
    return where


def tensors(path: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(path / "model.safetensors")


def rewrite(path: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Write the folder's tensors anew after `change`."""
    found = tensors(path)
    change(found)
    safetensors.torch.save_file({k: v.clone() for k, v in found.items()}, path / "model.safetensors")


def change_json(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
