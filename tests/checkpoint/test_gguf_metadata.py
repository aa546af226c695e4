"""What GGUF metadata means: sizes, token ids, tokenizer, chat template; what would change results is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter, RopeScalingType

from cutaway.checkpoint.gguf_model import read_gguf
from cutaway.errors import CutawayError

Write = Callable[[GGUFWriter], object]


def nothing(_: GGUFWriter) -> None:
    return


def model_file(path: Path, write: Write = nothing, arch: str = "llama", sizes: bool = True) -> Path:
    """A Llama of one layer and two heads of eight, with what `write` adds."""
    writer = GGUFWriter(path, arch)
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
    def write(writer: GGUFWriter) -> None:
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
    def write(writer: GGUFWriter) -> None:
        writer.add_head_count_kv([2])
        writer.add_array("llama.rope.freq_base", [500.0, 500.0])

    config = read_gguf(model_file(tmp_path / "model.gguf", write)).config
    assert config["num_key_value_heads"] == 2
    assert config["rope_theta"] == 500.0


def not_scaled(writer: GGUFWriter) -> None:
    writer.add_rope_scaling_type(RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(1.0)


def both_scalings(writer: GGUFWriter) -> None:
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    tensor("rope_freqs.weight", 4)(writer)


def test_a_factor_of_one_is_no_scaling(tmp_path: Path) -> None:
    assert "rope_scaling" not in read_gguf(model_file(tmp_path / "model.gguf", not_scaled)).config


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
        CutawayError, match=r"'lama' \(did you mean 'llama'\?\); supported: llama, qwen2, qwen3"
    ):
        read_gguf(model_file(tmp_path / "model.gguf", arch="lama"))


def test_missing_sizes(tmp_path: Path) -> None:
    with pytest.raises(CutawayError, match=r"llama\.embedding_length is None, expected a number above 0"):
        read_gguf(model_file(tmp_path / "model.gguf", sizes=False))


def test_experts_that_are_not_there(tmp_path: Path) -> None:
    def write(writer: GGUFWriter) -> None:
        writer.add_expert_count(4)
        writer.add_expert_used_count(2)
        tensor("blk.0.ffn_gate_exps.weight", 3, 24, 16)(writer)

    with pytest.raises(CutawayError, match=r"shape \[3, 24, 16\], expected 4 matrices"):
        read_gguf(model_file(tmp_path / "model.gguf", write))
