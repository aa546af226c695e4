"""Qwen3-MoE (Yang et al. 2025): Qwen3 with many small experts, in all layers or in some."""

from cutaway.checkpoint.architectures import llama, window
from cutaway.checkpoint.architectures.llama import L, M
from cutaway.checkpoint.architectures.qwen2 import beyond_max_window_layers
from cutaway.checkpoint.architectures.rope import rope_keys
from cutaway.checkpoint.architectures.window import Config
from cutaway.checkpoint.table import Architecture, Key, Row, Value, control_ids


def _dense_layers(value: Value, theirs: Config) -> list[int]:
    layers, step = theirs["num_hidden_layers"], theirs.get("decoder_sparse_step", 1)
    named = [] if value is None else value
    if not isinstance(layers, int) or not isinstance(step, int) or step < 1 or not isinstance(named, list):
        raise TypeError(named)
    return [i for i in range(min(layers, 1000)) if i in named or (i + 1) % step]


QWEN3_MOE = Architecture(
    model_type="qwen3_moe",
    class_name="Qwen3MoeForCausalLM",
    keys=(
        *llama.SIZES,
        llama.HEAD_DIM,
        Key("max_position_embeddings", "max_len", 32_768),
        llama.EPS,
        *rope_keys(),
        *window.by_layer(beyond_max_window_layers, 4096, switch="use_sliding_window"),
        Key("num_experts", "n_experts", None,
            read=lambda value, theirs: theirs.get("num_local_experts", 128) if value is None else value),
        Key("num_experts_per_tok", "n_experts_per_token", 8),
        Key("moe_intermediate_size", "d_expert", 768, write=lambda _, config: config.expert_width),
        Key("norm_topk_prob", "experts_renormalised", False),
        Key("mlp_only_layers", "dense_layers", None, read=_dense_layers,
            write=lambda _, config: list(config.dense_layers)),
        llama.TIED,
        Key("attention_bias", "attn_bias", False),
        *control_ids(),
    ),
    rows=(
        *llama.ROWS,
        *llama.QK_NORM_ROWS,
        Row(M + "mlp.gate", L + "mlp.router"),
        *(Row(f"{M}mlp.experts.{{}}.{n}_proj", f"{L}mlp.experts.{{}}.{n}") for n in ("gate", "up", "down")),
    ),
    fixed={**llama.FIXED, "qk_norm": True, "mlp_bias": False},
    constants={"hidden_act": "silu"},
    written={"decoder_sparse_step": 1},
    ignored=llama.IGNORED,
    base_class="Qwen3MoeModel",
    prefix="model.",
    fits=lambda config: config.n_experts > 0,
)  # fmt: skip
