"""Llama (Touvron et al. 2023; Llama 3: Dubey et al. 2024): pre-norm with RMSNorm, rotary positions, gated
feed-forward, grouped queries. Many decoder-only architectures are this one with a difference; here are those of
Microsoft, Mistral and Qwen."""

from dataclasses import replace

from cutaway.checkpoint.config_keys import (
    activation_key,
    control_ids,
    rope_keys,
    window_keys,
    window_keys_by_layer,
)
from cutaway.checkpoint.table import FUSED_GATE_UP, FUSED_QKV, Architecture, Config, Key, Row, Value

L, M = "decoder.layers.{}.", "model.layers.{}."


def sizes(kv_heads: int | None) -> tuple[Key, ...]:
    """The keys of sizes; `kv_heads` is an architecture's own default, None as many as there are heads."""
    return (
        Key("vocab_size", "vocab_size"),
        Key("hidden_size", "d_model"),
        Key("num_hidden_layers", "n_layers"),
        Key("num_attention_heads", "n_heads"),
        Key("num_key_value_heads", "n_kv_heads", kv_heads,
            read=lambda value, theirs: theirs["num_attention_heads"] if value is None else value,
            write=lambda _, config: config.kv_heads),
        Key("intermediate_size", "d_ff"),
    )  # fmt: skip


HEAD_DIM = Key("head_dim", "d_head", None, write=lambda _, config: config.head_width)
EPS = Key("rms_norm_eps", "norm_eps", 1e-6)
TIED = Key("tie_word_embeddings", "tied", False)
ATTENTION_BIAS = Key("attention_bias", "attn_bias", False)


def _keys(
    max_len: int,
    *own: Key,
    kv_heads: int | None = None,
    eps: float = 1e-6,
    rope_base: float = 10_000.0,
    scaled: bool = True,
    **ids: int,
) -> tuple[Key, ...]:
    """What all have, with an architecture's defaults, and what is its own; `ids` are of bos and eos."""
    return (
        *sizes(kv_heads),
        Key("max_position_embeddings", "max_len", max_len),
        replace(EPS, default=eps),
        *rope_keys(rope_base, scaled),
        *own,
        activation_key("hidden_act", "silu"),
        TIED,
        *control_ids(**ids),
    )


ATTENTION_ROWS = (
    Row("model.embed_tokens", "embed.tokens"),
    Row("lm_head", "head.unembed"),
    Row("model.norm", "decoder.norm"),
    Row(M + "input_layernorm", L + "self_residual.norm"),
    *(Row(f"{M}self_attn.{n}_proj", f"{L}self_attn.{n}_proj") for n in "qkvo"),
)
MLP_ROWS = tuple(Row(f"{M}mlp.{n}_proj", f"{L}mlp.{n}") for n in ("gate", "up", "down"))
MLP_NORM_ROW = Row(M + "post_attention_layernorm", L + "mlp_residual.norm")
QK_NORM_ROWS = tuple(Row(f"{M}self_attn.{n}_norm", f"{L}self_attn.{n}_norm") for n in "qk")
FIXED: dict[str, object] = {
    "family": "decoder-only", "norm": "rmsnorm", "norm_order": "pre", "position": "rotary",
    "gated": True, "head": "linear",
}  # fmt: skip

LLAMA = Architecture(
    model_type="llama",
    class_name="LlamaForCausalLM",
    keys=_keys(2048, HEAD_DIM, ATTENTION_BIAS, Key("mlp_bias", "mlp_bias", False), bos=1, eos=2),
    rows=(*ATTENTION_ROWS, MLP_NORM_ROW, *MLP_ROWS),
    fixed=FIXED,
    ignored=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
    base_class="LlamaModel",
    prefix="model.",
)


# Phi-3 (Abdin et al. 2024): Llama with queries, keys and values in one matrix, gate and up in another.
PHI3 = replace(
    LLAMA,
    model_type="phi3",
    class_name="Phi3ForCausalLM",
    keys=_keys(
        4096, HEAD_DIM, *window_keys(None), scaled=False, eps=1e-5, pad=32_000, bos=1, eos=32_000
    ),
    rows=(
        *(row for row in ATTENTION_ROWS if row.ours.rpartition(".")[2] not in ("q_proj", "k_proj", "v_proj")),
        *(Row(M + "self_attn.qkv_proj", f"{L}self_attn.{n}_proj", FUSED_QKV[i]) for i, n in enumerate("qkv")),
        *(Row(M + "mlp.gate_up_proj", f"{L}mlp.{n}", FUSED_GATE_UP[i]) for i, n in enumerate(("gate", "up"))),
        Row(M + "mlp.down_proj", L + "mlp.down"),
        MLP_NORM_ROW,
    ),
    fixed={**FIXED, "attn_bias": False, "mlp_bias": False},
    base_class="Phi3Model",
)  # fmt: skip

# Mistral (Jiang et al. 2023): a sliding window.
MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    class_name="MistralForCausalLM",
    keys=_keys(131_072, HEAD_DIM, *window_keys(4096), kv_heads=8, bos=1, eos=2),
    fixed={**FIXED, "attn_bias": False, "mlp_bias": False},
    base_class="MistralModel",
)

ROUTER_LOSS = Key("router_aux_loss_coef", "router_aux_coef", 0.001)

# Mixtral (Jiang et al. 2024): Mistral with eight feed-forward networks, of which two work on a token.
MIXTRAL = replace(
    LLAMA,
    model_type="mixtral",
    class_name="MixtralForCausalLM",
    keys=_keys(
        131_072,
        HEAD_DIM,
        *window_keys(None),
        Key("num_local_experts", "n_experts", 8),
        Key("num_experts_per_tok", "n_experts_per_token", 2),
        ROUTER_LOSS,
        kv_heads=8, eps=1e-5, rope_base=1e6, bos=1, eos=2,
    ),
    rows=(
        *ATTENTION_ROWS,
        MLP_NORM_ROW,
        Row(M + "block_sparse_moe.gate", L + "mlp.router"),
        Row(M + "block_sparse_moe.experts.{}.w1", L + "mlp.experts.{}.gate"),
        Row(M + "block_sparse_moe.experts.{}.w3", L + "mlp.experts.{}.up"),
        Row(M + "block_sparse_moe.experts.{}.w2", L + "mlp.experts.{}.down"),
    ),
    fixed={
        **FIXED, "attn_bias": False, "mlp_bias": False, "experts_renormalised": True, "dense_layers": (),
        "d_expert": None,
    },
    base_class="MixtralModel",
    fits=lambda config: config.n_experts > 0,
)  # fmt: skip


def _beyond_max_window_layers(layer: int, theirs: Config) -> bool:
    first = theirs.get("max_window_layers", 28)
    return isinstance(first, int) and layer >= first


QWEN_WINDOW = window_keys_by_layer(_beyond_max_window_layers, 4096, switch="use_sliding_window")

# Qwen2 and Qwen2.5 (Yang et al. 2024): biases on queries, keys and values.
QWEN2 = replace(
    LLAMA,
    model_type="qwen2",
    class_name="Qwen2ForCausalLM",
    keys=_keys(32_768, HEAD_DIM, *QWEN_WINDOW, kv_heads=32),
    fixed={**FIXED, "attn_bias": True, "attn_out_bias": False, "mlp_bias": False},
    base_class="Qwen2Model",
)

# Qwen3 (Yang et al. 2025): a norm over each head's query and key.
QWEN3 = replace(
    LLAMA,
    model_type="qwen3",
    class_name="Qwen3ForCausalLM",
    keys=_keys(32_768, replace(HEAD_DIM, default=128), *QWEN_WINDOW, ATTENTION_BIAS, kv_heads=32),
    rows=(*LLAMA.rows, *QK_NORM_ROWS),
    fixed={**FIXED, "qk_norm": True, "mlp_bias": False},
    base_class="Qwen3Model",
)


def _dense_layers(value: Value, theirs: Config) -> list[int]:
    layers, step = theirs["num_hidden_layers"], theirs.get("decoder_sparse_step", 1)
    named = [] if value is None else value
    if not isinstance(layers, int) or not isinstance(step, int) or step < 1 or not isinstance(named, list):
        raise TypeError(named)
    return [i for i in range(min(layers, 1000)) if i in named or (i + 1) % step]


# Qwen3-MoE (Yang et al. 2025): Qwen3 with many small experts, in all layers or in some.
QWEN3_MOE = replace(
    QWEN3,
    model_type="qwen3_moe",
    class_name="Qwen3MoeForCausalLM",
    keys=_keys(
        32_768,
        HEAD_DIM,
        *window_keys(4096, switch="use_sliding_window"),
        Key("num_experts", "n_experts", None,
            read=lambda value, theirs: theirs.get("num_local_experts", 128) if value is None else value),
        Key("num_experts_per_tok", "n_experts_per_token", 8),
        ROUTER_LOSS,
        Key("moe_intermediate_size", "d_expert", 768, write=lambda _, config: config.expert_width),
        Key("norm_topk_prob", "experts_renormalised", False),
        Key("mlp_only_layers", "dense_layers", None, read=_dense_layers,
            write=lambda _, config: list(config.dense_layers)),
        ATTENTION_BIAS,
        kv_heads=4,
    ),
    rows=(
        *QWEN3.rows,
        Row(M + "mlp.gate", L + "mlp.router"),
        *(Row(f"{M}mlp.experts.{{}}.{n}_proj", f"{L}mlp.experts.{{}}.{n}") for n in ("gate", "up", "down")),
    ),
    written={"decoder_sparse_step": 1},
    base_class="Qwen3MoeModel",
    fits=lambda config: config.n_experts > 0,
)  # fmt: skip
