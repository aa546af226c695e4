"""Models from GGUF files: tiny ones of every architecture, converted as llama.cpp does, against transformers'; and what
metadata means: sizes, token ids, tokenizer, chat template; what would change results is refused."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf as reference
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from cutaway.checkpoint import folder
from cutaway.checkpoint.gguf_model import read_gguf
from cutaway.decode.sentence_vectors import embed
from cutaway.errors import CutawayError
from cutaway.models.decoder_only import DecoderOnly

V = 64
EXPERT = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<block>\w+)\.experts\.(?P<number>\d+)\.(?P<part>\w+)")
EXPERTS = {  # what the converter calls the joined experts before it asks the table
    "block_sparse_moe": "layers.{layer}.feed_forward.experts.{part}",
    "mlp": "model.layers.{layer}.mlp.experts.{part}",
}
Writer = reference.GGUFWriter
Write = Callable[[Writer], object]


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


# Metadata.


def nothing(_: Writer) -> None:
    return


def model_file(path: Path, write: Write = nothing, arch: str = "llama", sizes: bool = True) -> Path:
    """A Llama of one layer and two heads of eight, with what `write` adds."""
    writer = Writer(path, arch)
    if sizes:
        writer.add_context_length(64)
        writer.add_embedding_length(16)
        writer.add_block_count(1)
        writer.add_feed_forward_length(24)
        writer.add_head_count(2)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_vocab_size(12)
    write(writer)
    shapes = {
        "token_embd": (12, 16), "output_norm": (16,), "blk.0.attn_norm": (16,), "blk.0.ffn_norm": (16,),
        "blk.0.attn_q": (16, 16), "blk.0.attn_k": (16, 16), "blk.0.attn_v": (16, 16), "blk.0.attn_output": (16, 16),
        "blk.0.ffn_gate": (24, 16), "blk.0.ffn_up": (24, 16), "blk.0.ffn_down": (16, 24),
    }  # fmt: skip
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensor(name: str, *shape: int, first: float = 1.0) -> Write:
    values = np.ones(shape, dtype=np.float32)
    values.flat[0] = first
    return lambda writer: writer.add_tensor(name, values)


def test_config(tmp_path: Path) -> None:
    contents = read_gguf(model_file(tmp_path / "model.gguf"))
    assert contents.config == {
        "model_type": "llama", "vocab_size": 12, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 24,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "hidden_act": "silu", "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    assert contents.tokenizer is None
    assert contents.generation == {}
    assert contents.chat_template is None


def test_tokens(tmp_path: Path) -> None:
    def write(writer: Writer) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(["<a>", "<b>", "<c>", "h", "i", "hi", "Ġ", "m", "n", "o", "p", "q"])
        writer.add_token_types([3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1])
        writer.add_token_merges(["h i"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
        writer.add_eot_token_id(2)
        writer.add_pad_token_id(2**32 - 1)
        writer.add_chat_template("{{ messages[0].content }}")

    contents = read_gguf(model_file(tmp_path / "model.gguf", write))
    assert contents.tokenizer is not None
    assert contents.tokenizer.encode("hi hip").ids == [5, 6, 5, 10]
    ids = {key: value for key, value in contents.config.items() if key.endswith("token_id")}
    assert ids == {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    assert contents.generation == {"bos_token_id": 0, "eos_token_id": [1, 2]}
    assert contents.chat_template == "{{ messages[0].content }}"


def test_one_size_for_each_layer(tmp_path: Path) -> None:
    def write(writer: Writer) -> None:
        writer.add_head_count_kv([2])
        writer.add_array("llama.rope.freq_base", [500.0, 500.0])

    config = read_gguf(model_file(tmp_path / "model.gguf", write)).config
    assert config["num_key_value_heads"] == 2
    assert config["rope_theta"] == 500.0


def test_without_a_count_of_key_heads_there_are_as_many_as_heads(tmp_path: Path) -> None:
    config = read_gguf(model_file(tmp_path / "model.gguf", arch="qwen2")).config
    assert config["num_key_value_heads"] == config["num_attention_heads"]


def not_scaled(writer: Writer) -> None:
    writer.add_rope_scaling_type(reference.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(1.0)


def both_scalings(writer: Writer) -> None:
    writer.add_rope_scaling_type(reference.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    tensor("rope_freqs.weight", 4)(writer)


def test_a_factor_of_one_is_no_scaling(tmp_path: Path) -> None:
    assert "rope_scaling" not in read_gguf(model_file(tmp_path / "model.gguf", not_scaled)).config


@pytest.mark.parametrize("key", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_factor_without_a_type_is_linear_as_in_llama_cpp(key: str, tmp_path: Path) -> None:
    file = model_file(tmp_path / "model.gguf", lambda w: w.add_float32(f"llama.{key}", 8.0))
    assert read_gguf(file).config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    scaling = folder.load(file).config.rope_scaling
    assert scaling is not None
    assert (scaling.kind, scaling.factor) == ("linear", 8.0)

    def none(writer: Writer) -> None:
        writer.add_float32(f"llama.{key}", 8.0)
        writer.add_rope_scaling_type(reference.RopeScalingType.NONE)

    assert "rope_scaling" not in read_gguf(model_file(tmp_path / "none.gguf", none)).config


def test_the_windows_of_gemma(tmp_path: Path) -> None:
    def config(arch: str, write: Write = nothing) -> dict[str, object]:
        def sizes(writer: Writer) -> None:
            writer.add_context_length(64)
            writer.add_embedding_length(16)
            writer.add_block_count(1)
            writer.add_feed_forward_length(24)
            writer.add_head_count(2)
            writer.add_layer_norm_rms_eps(1e-6)
            writer.add_vocab_size(12)
            write(writer)

        return dict(read_gguf(model_file(tmp_path / "model.gguf", sizes, arch, sizes=False)).config)

    # llama.cpp's, where the file has none
    assert config("gemma2")["sliding_window"] == 4096
    assert config("gemma2", lambda w: w.add_sliding_window(7))["sliding_window"] == 7
    # one number, or a truth value for each layer
    key = "gemma3.attention.sliding_window_pattern"
    assert config("gemma3")["sliding_window_pattern"] == 6
    assert config("gemma3", lambda w: w.add_uint32(key, 4))["sliding_window_pattern"] == 4
    assert config("gemma3", lambda w: w.add_array(key, [False]))["layer_types"] == ["full_attention"]
    assert config("gemma3", lambda w: w.add_array(key, [True]))["layer_types"] == ["sliding_attention"]
    with pytest.raises(
        CutawayError, match=r"sliding_window_pattern has 2 entries, expected true or false for"
    ):
        config("gemma3", lambda w: w.add_array(key, [True, False]))


REFUSED: dict[str, tuple[Write, str]] = {
    "an adapter": (lambda w: w.add_type("adapter"), "general.type is 'adapter'"),
    "one part of three": (lambda w: w.add_uint16("split.count", 3), "one of 3 parts"),
    "no causal mask": (lambda w: w.add_causal_attention(False), "llama.attention.causal is False"),
    "scores of another scale": (lambda w: w.add_attention_scale(0.5), "llama.attention.scale is 0.5"),
    "scaled logits": (lambda w: w.add_logit_scale(8.0), "llama.logit_scale is 8.0"),
    "capped logits": (lambda w: w.add_final_logit_softcapping(30.0), "llama.final_logit_softcapping is 30.0"),
    "half a head rotates": (lambda w: w.add_rope_dimension_count(4), "rope.dimension_count is 4 in heads of 8"),
    "wider values": (lambda w: w.add_value_length(16), "attention.value_length is 16"),
    "layers differ": (lambda w: w.add_head_count_kv([1, 2]), "head_count_kv differs from layer to layer"),
    "three heads for keys": (lambda w: w.add_head_count_kv(3), "16 rows, which 3 heads cannot share"),
    "no heads for keys": (lambda w: w.add_head_count_kv(0), "16 rows, which 0 heads cannot share"),
    "heads are words": (lambda w: w.add_string("llama.attention.head_count_kv", "two"), "'two' heads cannot share"),
    "two scalings": (both_scalings, "expected one of them"),
    "factors of no Llama": (tensor("rope_freqs.weight", 4, first=8.0), "rope_freqs.weight is not what Llama 3.1 has"),
    "factors of another width": (tensor("rope_freqs.weight", 5), "rope_freqs.weight is not what"),
    "a tensor of no layer": (tensor("attn_q.weight", 16, 16), "'attn_q.weight' is no part"),
    "an embedding in a layer": (tensor("blk.0.token_embd.weight", 16), "'blk.0.token_embd.weight' is no part"),
    "an unknown tensor": (tensor("blk.0.attn_sinks.weight", 2), "'blk.0.attn_sinks.weight' is no part of a"),
    "experts in a dense model": (tensor("blk.0.ffn_gate.0.weight", 24, 16), "'blk.0.ffn_gate.0.weight' is no part"),
    "layer 007": (tensor("blk.007.attn_norm.weight", 16), "'blk.007.attn_norm.weight' is no part"),
    "a name that climbs": (tensor("../weights", 16), "'../weights' is no part"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    write, message = REFUSED[name]
    with pytest.raises(CutawayError) as caught:
        read_gguf(model_file(tmp_path / "model.gguf", write))
    assert message in str(caught.value)
    assert str(tmp_path / "model.gguf") in str(caught.value)


def test_unknown_architecture(tmp_path: Path) -> None:
    with pytest.raises(
        CutawayError, match=r"'lama' \(did you mean 'llama'\?\); supported: llama, qwen2, qwen3.*gpt2, bert"
    ):
        read_gguf(model_file(tmp_path / "model.gguf", arch="lama"))


def test_missing_sizes(tmp_path: Path) -> None:
    with pytest.raises(CutawayError, match=r"llama\.embedding_length is None, expected a number above 0"):
        read_gguf(model_file(tmp_path / "model.gguf", sizes=False))


def test_a_missing_epsilon_is_refused_by_name(tmp_path: Path) -> None:
    def sizes(writer: Writer) -> None:
        writer.add_embedding_length(16)
        writer.add_block_count(1)
        writer.add_feed_forward_length(24)
        writer.add_head_count(2)

    file = model_file(tmp_path / "model.gguf", sizes, sizes=False)
    with pytest.raises(
        CutawayError, match=r"llama\.attention\.layer_norm_rms_epsilon is missing, expected a num"
    ):
        read_gguf(file)


# Models without rotary positions.


def small(path: Path, arch: str, tensors: dict[str, Tensor], write: Write) -> Path:
    writer = Writer(path, arch)
    writer.add_type("model")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(V)
    write(writer)
    blocks = {"gpt2": reference.MODEL_ARCH.GPT2, "bert": reference.MODEL_ARCH.BERT}
    names = reference.get_tensor_name_map(blocks[arch], 2)
    for name, tensor in tensors.items():
        stem, _, leaf = name.rpartition(".")
        theirs = names.get_name(stem)
        assert theirs is not None, name
        writer.add_tensor(f"{theirs}.{leaf}", tensor.contiguous().numpy())
    finish(writer)
    return path


@torch.no_grad()
@pytest.mark.parametrize("quantised", [False, True])
def test_gpt2(tmp_path: Path, quantised: bool) -> None:
    """As GPT2Model of llama.cpp's converter writes it: its matrices stand the other way round there."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=64, n_embd=32, n_layer=2, n_head=4, n_inner=48, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).eval()
    for tensor in theirs.parameters():
        tensor.normal_(0, 0.15)
    published = {name: tensor for name, tensor in theirs.state_dict().items() if name != "lm_head.weight"}
    turned = {
        name: tensor.T if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else tensor
        for name, tensor in published.items()
    }
    file = small(tmp_path / "model.gguf", "gpt2", turned, nothing)
    if quantised:
        file = requantised(file, tmp_path / "q8.gguf")
    ours = folder.load(file)
    assert ours.config.family == "decoder-only"
    assert isinstance(ours.model, DecoderOnly)
    ids = torch.randint(V, (2, 40), generator=torch.Generator().manual_seed(1))
    # eight bits keep about two digits
    torch.testing.assert_close(ours.model(ids), theirs(ids).logits, rtol=0, atol=0.1 if quantised else 1e-5)


def requantised(source: Path, target: Path) -> Path:
    """The same file with its matrices as Q8_0."""
    reader = reference.GGUFReader(source)
    writer = Writer(target, "gpt2")
    for entry in reader.fields.values():
        if not entry.name.startswith(("GGUF.", "general.architecture")):
            writer.add_key_value(entry.name, entry.contents(), entry.types[0])
    for tensor in reader.tensors:
        if len(tensor.shape) == 1 or tensor.shape[0] % 32:
            writer.add_tensor(tensor.name, tensor.data)
            continue
        kind = reference.GGMLQuantizationType.Q8_0
        writer.add_tensor(tensor.name, reference.quants.quantize(tensor.data, kind), raw_dtype=kind)
    finish(writer)
    return target


PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "\u2581hello",
    "\u2581world",
    "\u2581un",
    "happy",
    "s",
    "\u2581,",
]


def bert_vocabulary(writer: Writer) -> None:
    """As BertModel of the same converter writes it."""
    writer.add_causal_attention(False)
    writer.add_pooling_type(reference.PoolingType.CLS)
    writer.add_tokenizer_model("bert")
    writer.add_token_list([*PIECES, *(f"\u2581x{i}" for i in range(V - len(PIECES)))])
    writer.add_token_types([3, 3, 3, 3, 3, *[1] * (V - 5)])
    for role, id in (("padding", 0), ("unknown", 1), ("cls", 2), ("seperator", 3), ("mask", 4)):
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", id)


@torch.no_grad()
def test_bert(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, layer_norm_eps=1e-5,
    )  # fmt: skip
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    for tensor in theirs.parameters():
        tensor.normal_(0, 0.15)
    published = {name: t for name, t in theirs.state_dict().items() if not name.endswith("position_ids")}
    ours = folder.load(small(tmp_path / "model.gguf", "bert", published, bert_vocabulary))
    assert (ours.config.family, ours.config.head) == ("encoder-only", "none")
    assert ours.tokenizer is not None
    assert ours.tokenizer.encode("Hello, unhappys").pieces == ["hello", ",", "un", "##happy", "##s"]
    vectors = embed(ours, ["hello , world"])
    expected = theirs(torch.tensor([[2, 5, 10, 6, 3]])).last_hidden_state[0, 0]
    # by the file's own pooling, which is the first token
    torch.testing.assert_close(
        torch.as_tensor(vectors.vectors[0]), expected / expected.norm(), rtol=0, atol=1e-5
    )


def test_a_bert_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    def write(writer: Writer) -> None:
        writer.add_causal_attention(False)
        writer.add_tokenizer_model("t5")

    with pytest.raises(CutawayError, match=r"tokenizer\.ggml\.model is 't5'; of a bert model only bert is"):
        read_gguf(small(tmp_path / "model.gguf", "bert", {}, write))


def test_experts_that_are_not_there(tmp_path: Path) -> None:
    def write(writer: Writer) -> None:
        writer.add_expert_count(4)
        writer.add_expert_used_count(2)
        tensor("blk.0.ffn_gate_exps.weight", 3, 24, 16)(writer)

    with pytest.raises(CutawayError, match=r"shape \[3, 24, 16\], expected 4 matrices"):
        read_gguf(model_file(tmp_path / "model.gguf", write))
