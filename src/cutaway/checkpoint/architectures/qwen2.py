"""Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on queries, keys and values."""

from cutaway.checkpoint.architectures import llama, window
from cutaway.checkpoint.architectures.rope import rope_keys
from cutaway.checkpoint.architectures.window import Config
from cutaway.checkpoint.table import Architecture, Key, Value, control_ids


def beyond_max_window_layers(layer: int, theirs: Config) -> bool:
    first: Value = theirs.get("max_window_layers", 28)
    return isinstance(first, int) and layer >= first


QWEN2 = Architecture(
    model_type="qwen2",
    class_name="Qwen2ForCausalLM",
    keys=(
        *llama.SIZES,
        Key("max_position_embeddings", "max_len", 32_768),
        llama.EPS,
        *rope_keys(),
        *window.by_layer(beyond_max_window_layers, 4096, switch="use_sliding_window"),
        llama.TIED,
        *control_ids(),
    ),
    rows=llama.ROWS,
    fixed={**llama.FIXED, "attn_bias": True, "attn_out_bias": False, "mlp_bias": False},
    constants={"hidden_act": "silu"},
    ignored=llama.IGNORED,
    base_class="Qwen2Model",
    prefix="model.",
)
