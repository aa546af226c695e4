"""Mixtral (Jiang et al. 2024): Mistral with eight feed-forward networks, of which two work on a token."""

from cutaway.checkpoint.architectures import llama, window
from cutaway.checkpoint.architectures.llama import L, M
from cutaway.checkpoint.architectures.rope import rope_keys
from cutaway.checkpoint.table import Architecture, Key, Row, control_ids

MIXTRAL = Architecture(
    model_type="mixtral",
    class_name="MixtralForCausalLM",
    keys=(
        *llama.SIZES,
        llama.HEAD_DIM,
        Key("max_position_embeddings", "max_len", 131_072),
        Key("rms_norm_eps", "norm_eps", 1e-5),
        *rope_keys(1e6),
        *window.everywhere(None),
        Key("num_local_experts", "n_experts", 8),
        Key("num_experts_per_tok", "n_experts_per_token", 2),
        llama.TIED,
        *control_ids(bos=1, eos=2),
    ),
    rows=(
        *llama.ATTENTION_ROWS,
        Row(M + "post_attention_layernorm", L + "mlp_residual.norm"),
        Row(M + "block_sparse_moe.gate", L + "mlp.router"),
        Row(M + "block_sparse_moe.experts.{}.w1", L + "mlp.experts.{}.gate"),
        Row(M + "block_sparse_moe.experts.{}.w3", L + "mlp.experts.{}.up"),
        Row(M + "block_sparse_moe.experts.{}.w2", L + "mlp.experts.{}.down"),
    ),
    fixed={
        **llama.FIXED, "attn_bias": False, "mlp_bias": False, "experts_renormalised": True, "dense_layers": (),
        "d_expert": None,
    },
    constants={"hidden_act": "silu"},
    ignored=llama.IGNORED,
    base_class="MixtralModel",
    prefix="model.",
    fits=lambda config: config.n_experts > 0,
)  # fmt: skip
