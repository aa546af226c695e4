"""Mistral (Jiang et al. 2023): Llama with a sliding window."""

from cutaway.checkpoint.architectures import llama, window
from cutaway.checkpoint.architectures.rope import rope_keys
from cutaway.checkpoint.table import Architecture, Key, control_ids

MISTRAL = Architecture(
    model_type="mistral",
    class_name="MistralForCausalLM",
    keys=(
        *llama.SIZES,
        llama.HEAD_DIM,
        Key("max_position_embeddings", "max_len", 131_072),
        llama.EPS,
        *rope_keys(),
        *window.everywhere(4096),
        llama.TIED,
        *control_ids(bos=1, eos=2),
    ),
    rows=llama.ROWS,
    fixed={**llama.FIXED, "attn_bias": False, "mlp_bias": False},
    constants={"hidden_act": "silu"},
    ignored=llama.IGNORED,
    base_class="MistralModel",
    prefix="model.",
)
