"""Qwen3 (Yang et al. 2025): Llama with a norm over each head's query and key."""

from cutaway.checkpoint.architectures import llama, window
from cutaway.checkpoint.architectures.qwen2 import beyond_max_window_layers
from cutaway.checkpoint.architectures.rope import rope_keys
from cutaway.checkpoint.table import Architecture, Key, control_ids

HEAD_DIM = Key("head_dim", "d_head", 128, write=lambda _, config: config.head_width)

QWEN3 = Architecture(
    model_type="qwen3",
    class_name="Qwen3ForCausalLM",
    keys=(
        *llama.SIZES,
        HEAD_DIM,
        Key("max_position_embeddings", "max_len", 32_768),
        llama.EPS,
        *rope_keys(),
        *window.by_layer(beyond_max_window_layers, 4096, switch="use_sliding_window"),
        llama.TIED,
        Key("attention_bias", "attn_bias", False),
        *control_ids(),
    ),
    rows=(*llama.ROWS, *llama.QK_NORM_ROWS),
    fixed={**llama.FIXED, "qk_norm": True, "mlp_bias": False},
    constants={"hidden_act": "silu"},
    ignored=llama.IGNORED,
    base_class="Qwen3Model",
    prefix="model.",
)
