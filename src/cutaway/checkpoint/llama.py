"""Llama (Touvron et al. 2023): pre-norm with RMSNorm, rotary positions, gated feed-forward, grouped queries."""

from collections.abc import Mapping

from cutaway.checkpoint.table import Architecture, Key, Row


def _rope_base(value: object, theirs: Mapping[str, object]) -> object:
    rope = value or theirs.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise TypeError(rope)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"rope_type {kind!r} is not supported, only 'default'")
    return rope.get("rope_theta", theirs.get("rope_theta", 10_000.0))


L, M = "decoder.layers.{}.", "model.layers.{}."

LLAMA = Architecture(
    model_type="llama",
    class_name="LlamaForCausalLM",
    keys=(
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
        Key("head_dim", "d_head", None, write=lambda _, config: config.head_width),
        Key("intermediate_size", "d_ff"),
        Key("max_position_embeddings", "max_len", 2048),
        Key("rms_norm_eps", "norm_eps", 1e-6),
        Key(
            "rope_parameters",
            "rope_base",
            None,
            read=_rope_base,
            write=lambda base, _: {"rope_type": "default", "rope_theta": base},
        ),
        Key("rope_theta", "rope_base", write_only=True),  # what older readers look for
        Key("tie_word_embeddings", "tied", False),
        Key("attention_bias", "attn_bias", False),
        Key("mlp_bias", "mlp_bias", False),
        Key("pad_token_id", "pad_id", None),
        Key("bos_token_id", "bos_id", None),
        Key("eos_token_id", "eos_id", None),
    ),
    rows=(
        Row("model.embed_tokens", "embed.tokens"),
        Row("lm_head", "head.unembed"),
        Row("model.norm", "decoder.norm"),
        Row(M + "input_layernorm", L + "self_residual.norm"),
        Row(M + "post_attention_layernorm", L + "mlp_residual.norm"),
        *(Row(f"{M}self_attn.{n}_proj", f"{L}self_attn.{n}_proj") for n in "qkvo"),
        *(Row(f"{M}mlp.{n}_proj", f"{L}mlp.{n}") for n in ("gate", "up", "down")),
    ),
    fixed={
        "family": "decoder-only",
        "norm": "rmsnorm",
        "norm_order": "pre",
        "position": "rotary",
        "activation": "silu",
        "gated": True,
        "head": "linear",
    },
    constants={"hidden_act": "silu"},
    ignored=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
)
