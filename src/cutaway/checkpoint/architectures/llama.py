"""Llama (Touvron et al. 2023; Llama 3: Dubey et al. 2024): pre-norm with RMSNorm, rotary positions, gated
feed-forward, grouped queries. Many decoder-only architectures are this one with a difference."""

from cutaway.checkpoint.architectures.rope import rope_keys
from cutaway.checkpoint.table import Architecture, Key, Row, control_ids

L, M = "decoder.layers.{}.", "model.layers.{}."

SIZES = (
    Key("vocab_size", "vocab_size"),
    Key("hidden_size", "d_model"),
    Key("num_hidden_layers", "n_layers"),
    Key("num_attention_heads", "n_heads"),
    Key(
        "num_key_value_heads",
        "n_kv_heads",
        None,
        read=lambda value, theirs: value or theirs["num_attention_heads"],
        write=lambda _, config: config.kv_heads,
    ),
    Key("intermediate_size", "d_ff"),
)
HEAD_DIM = Key("head_dim", "d_head", None, write=lambda _, config: config.head_width)
EPS = Key("rms_norm_eps", "norm_eps", 1e-6)
TIED = Key("tie_word_embeddings", "tied", False)
ATTENTION_ROWS = (
    Row("model.embed_tokens", "embed.tokens"),
    Row("lm_head", "head.unembed"),
    Row("model.norm", "decoder.norm"),
    Row(M + "input_layernorm", L + "self_residual.norm"),
    *(Row(f"{M}self_attn.{n}_proj", f"{L}self_attn.{n}_proj") for n in "qkvo"),
)
MLP_ROWS = tuple(Row(f"{M}mlp.{n}_proj", f"{L}mlp.{n}") for n in ("gate", "up", "down"))
ROWS = (*ATTENTION_ROWS, Row(M + "post_attention_layernorm", L + "mlp_residual.norm"), *MLP_ROWS)
QK_NORM_ROWS = tuple(Row(f"{M}self_attn.{n}_norm", f"{L}self_attn.{n}_norm") for n in "qk")
FIXED: dict[str, object] = {
    "family": "decoder-only", "norm": "rmsnorm", "norm_order": "pre", "position": "rotary", "activation": "silu",
    "gated": True, "head": "linear",
}  # fmt: skip
IGNORED = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)

LLAMA = Architecture(
    model_type="llama",
    class_name="LlamaForCausalLM",
    keys=(
        *SIZES,
        HEAD_DIM,
        Key("max_position_embeddings", "max_len", 2048),
        EPS,
        *rope_keys(),
        TIED,
        Key("attention_bias", "attn_bias", False),
        Key("mlp_bias", "mlp_bias", False),
        *control_ids(bos=1, eos=2),
    ),
    rows=ROWS,
    fixed=FIXED,
    constants={"hidden_act": "silu"},
    ignored=IGNORED,
    base_class="LlamaModel",
    prefix="model.",
)
