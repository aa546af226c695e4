"""GPT-2 (Radford et al. 2019): pre-norm, learned positions, one fused query-key-value projection."""

from cutaway.checkpoint.config_keys import activation_key, control_ids
from cutaway.checkpoint.table import TRANSPOSE, Architecture, Config, Key, Row, Value, third

L, M = "decoder.layers.{}.", "transformer.h.{}."


def _inner_width(value: Value, theirs: Config) -> Value:
    width = theirs["n_embd"]
    return value or (4 * width if isinstance(width, int) else width)


GPT2 = Architecture(
    model_type="gpt2",
    class_name="GPT2LMHeadModel",
    keys=(
        Key("vocab_size", "vocab_size"),
        Key("n_embd", "d_model"),
        Key("n_layer", "n_layers"),
        Key("n_head", "n_heads"),
        Key("n_inner", "d_ff", None, read=_inner_width),
        Key("n_positions", "max_len", 1024),
        Key("layer_norm_epsilon", "norm_eps", 1e-5),
        activation_key("activation_function", "gelu_new"),
        Key("tie_word_embeddings", "tied", True),
        Key("scale_attn_weights", "attn_scale", True, read=lambda value, _: None if value else 1.0,
            write=lambda scale, _: scale != 1.0),
        Key("resid_pdrop", "dropout", 0.1),
        Key("embd_pdrop", "dropout", write_only=True),
        *control_ids(bos=50_256, eos=50_256),
    ),
    rows=(
        Row("transformer.wte", "embed.tokens"),
        Row("lm_head", "head.unembed"),
        Row("transformer.wpe", "embed.positions"),
        Row("transformer.ln_f", "decoder.norm"),
        Row(M + "ln_1", L + "self_residual.norm"),
        Row(M + "ln_2", L + "mlp_residual.norm"),
        *(Row(M + "attn.c_attn", f"{L}self_attn.{n}_proj", third(i)) for i, n in enumerate("qkv")),
        Row(M + "attn.c_proj", L + "self_attn.o_proj", TRANSPOSE),
        Row(M + "mlp.c_fc", L + "mlp.up", TRANSPOSE),
        Row(M + "mlp.c_proj", L + "mlp.down", TRANSPOSE),
    ),
    fixed={
        "family": "decoder-only", "norm": "layernorm", "norm_order": "pre", "position": "learned",
        "position_offset": 0, "gated": False, "head": "linear", "attn_bias": True, "mlp_bias": True,
    },
    constants={"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    written={"attn_pdrop": 0.0},
    ignored=(r"transformer\.h\.\d+\.attn\.(masked_)?bias",),
    base_class="GPT2Model",
    prefix="transformer.",
)  # fmt: skip
