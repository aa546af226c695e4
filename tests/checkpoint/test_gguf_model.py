"""Models from GGUF files: tiny ones of every architecture, converted as llama.cpp does, against transformers'."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf as reference
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from cutaway.checkpoint import folder
from cutaway.checkpoint.gguf_model import read_gguf
from cutaway.models.decoder_only import DecoderOnly

V = 64
EXPERT = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<block>\w+)\.experts\.(?P<number>\d+)\.(?P<part>\w+)")
EXPERTS = {  # what the converter calls the joined experts before it asks the table
    "block_sparse_moe": "layers.{layer}.feed_forward.experts.{part}",
    "mlp": "model.layers.{layer}.mlp.experts.{part}",
}
Writer = reference.GGUFWriter


def interleave(w: Tensor, heads: int) -> Tensor:
    """LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


@dataclass(frozen=True)
class Case:
    """`arch` and `write` are what llama.cpp's converter does for the model, beside the sizes that all have."""

    name: str
    arch: str
    config: transformers.PretrainedConfig
    write: Callable[[Writer], None] = lambda _: None
    interleaved: bool = False
    norm_offset: float = 0.0
    extra: dict[str, Tensor] = field(default_factory=dict)
    joined: bool = True  # the experts of a layer are one tensor


SIZES: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "head_dim": 8,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
MIXTRAL = transformers.MixtralConfig(
    **SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=False
)


def llama3_factors() -> Tensor:
    """LlamaModel.generate_extra_tensors of the same converter."""
    found: list[float] = []
    for frequency in (500_000.0 ** -(torch.arange(0, 8, 2, dtype=torch.float32) / 8)).tolist():
        wavelength = 2 * torch.pi / frequency
        if wavelength < 8192 / 4.0:
            found.append(1.0)
        elif wavelength > 8192 / 1.0:
            found.append(32.0)
        else:
            smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
            found.append(1 / ((1 - smooth) / 32.0 + smooth))
    return torch.tensor(found)


def mixture(writer: Writer) -> None:
    writer.add_expert_count(4)
    writer.add_expert_used_count(2)


def small_experts(writer: Writer) -> None:
    mixture(writer)
    writer.add_expert_feed_forward_length(24)


def scaled(kind: reference.RopeScalingType) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        writer.add_rope_scaling_type(kind)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32)

    return write


def gemma2(writer: Writer) -> None:
    writer.add_attn_logit_softcapping(50.0)
    writer.add_final_logit_softcapping(30.0)
    writer.add_sliding_window(5)


CASES = [
    Case("llama", "llama", transformers.LlamaConfig(**SIZES, tie_word_embeddings=False), interleaved=True),
    Case(
        "llama, tied, biases",
        "llama",
        transformers.LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
        interleaved=True,
    ),
    Case(
        "llama 3.2",
        "llama",
        transformers.LlamaConfig(**SIZES, tie_word_embeddings=True, rope_parameters=LLAMA3),
        interleaved=True,
        extra={"rope_freqs.weight": llama3_factors()},
    ),
    Case(
        "llama, positions scaled",
        "llama",
        transformers.LlamaConfig(
            **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
        ),
        scaled(reference.RopeScalingType.LINEAR),
        interleaved=True,
    ),
    Case(
        "mistral",
        "llama",
        transformers.MistralConfig(**SIZES, sliding_window=5),
        lambda writer: writer.add_sliding_window(5),
        interleaved=True,
    ),
    Case("mixtral", "llama", MIXTRAL, mixture, interleaved=True),
    Case("mixtral, one tensor an expert", "llama", MIXTRAL, mixture, interleaved=True, joined=False),
    Case("qwen2", "qwen2", transformers.Qwen2Config(**SIZES, tie_word_embeddings=True)),
    Case(
        "qwen2, yarn",
        "qwen2",
        transformers.Qwen2Config(
            **SIZES,
            rope_parameters={
                "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32
            },
        ),
        scaled(reference.RopeScalingType.YARN),
    ),
    Case("qwen3", "qwen3", transformers.Qwen3Config(**{**SIZES, "head_dim": 16})),
    Case(
        "qwen3 moe",
        "qwen3moe",
        transformers.Qwen3MoeConfig(
            **{**SIZES, "head_dim": 16}, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
            norm_topk_prob=True, decoder_sparse_step=1,
        ),
        small_experts,
    ),
    Case(
        "gemma2",
        "gemma2",
        transformers.Gemma2Config(**{**SIZES, "head_dim": 16}, sliding_window=5, query_pre_attn_scalar=16),
        gemma2,
        norm_offset=1.0,
    ),
    Case(
        "gemma3",
        "gemma3",
        transformers.Gemma3TextConfig(
            **{**SIZES, "head_dim": 16, "num_hidden_layers": 7}, sliding_window=5, query_pre_attn_scalar=16,
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        ),
        lambda writer: writer.add_sliding_window(5),
        norm_offset=1.0,
    ),
]  # fmt: skip


def start(path: Path, arch: str, config: transformers.PretrainedConfig) -> Writer:
    writer = Writer(path, arch)
    writer.add_type("model")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_vocab_size(V)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    for role in ("bos", "eos", "pad"):
        if (number := getattr(config, f"{role}_token_id")) is not None:
            writer.add_uint32(f"tokenizer.ggml.{'padding' if role == 'pad' else role}_token_id", number)
    return writer


def finish(writer: Writer) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(case: Case, published: dict[str, Tensor], path: Path) -> None:
    """What convert_hf_to_gguf.py does with a model's tensors, by gguf-py's table of names."""
    config = case.config
    writer = start(path, case.arch, config)
    case.write(writer)
    arch = next(arch for arch, name in reference.MODEL_ARCH_NAMES.items() if name == case.arch)
    names = reference.get_tensor_name_map(arch, config.num_hidden_layers)
    experts: dict[str, list[Tensor]] = {}
    for name, tensor in case.extra.items():
        writer.add_tensor(name, tensor.numpy())
    for name, tensor in sorted(published.items()):
        stem, _, leaf = name.rpartition(".")
        changed = tensor
        if case.interleaved and stem.endswith(("q_proj", "k_proj")):
            changed = interleave(tensor, 4 if stem.endswith("q_proj") else 2)
        if case.norm_offset and stem.endswith("norm"):
            changed = tensor + case.norm_offset
        expert = EXPERT.fullmatch(stem)
        merged = EXPERTS[expert["block"]].format(**expert.groupdict()) if expert else stem
        theirs = names.get_name(merged)
        assert theirs is not None, merged
        if not expert:
            writer.add_tensor(f"{theirs}.{leaf}", changed.contiguous().numpy())
        elif case.joined:
            experts.setdefault(f"{theirs}.{leaf}", []).append(changed)
        else:
            writer.add_tensor(f"{theirs.removesuffix('_exps')}.{expert['number']}.{leaf}", changed.numpy())
    for name, tensors in experts.items():
        writer.add_tensor(name, torch.stack(tensors).numpy())
    finish(writer)


@torch.no_grad()
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_logits_as_the_model_it_was_made_from(case: Case, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(case.config).eval()
    theirs.set_attn_implementation("eager")
    for tensor in theirs.parameters():
        tensor.normal_(0, 0.15)
    theirs.save_pretrained(tmp_path / "theirs")
    published = load_file(tmp_path / "theirs" / "model.safetensors")
    convert(case, published, tmp_path / "model.gguf")
    contents = read_gguf(tmp_path / "model.gguf")
    assert set(contents.tensors) == set(published)
    for name, stored in contents.tensors.items():
        assert stored.kind == "F32"
        assert stored.shape == published[name].shape
        torch.testing.assert_close(stored.read(), published[name], rtol=0, atol=1e-6 * case.norm_offset)
    ours = folder.load(tmp_path / "model.gguf")
    assert ours.config == folder.load(tmp_path / "theirs").config
    ids = torch.randint(V, (2, 40), generator=torch.Generator().manual_seed(1))
    assert isinstance(ours.model, DecoderOnly)
    torch.testing.assert_close(ours.model(ids), theirs(ids).logits, rtol=0, atol=1e-5)
