"""BERT with its masked-word head (Devlin et al. 2019): post-norm, learned positions, segments."""

from cutaway.checkpoint.architectures.activations import activation_key
from cutaway.checkpoint.table import Architecture, Key, Row, control_ids


def keys(pad: int, bos: int | None = None, eos: int | None = None) -> tuple[Key, ...]:
    """What BERT and RoBERTa have in common; the defaults are those of their control tokens."""
    return (
        Key("vocab_size", "vocab_size"),
        Key("hidden_size", "d_model"),
        Key("num_hidden_layers", "n_layers"),
        Key("num_attention_heads", "n_heads"),
        Key("intermediate_size", "d_ff"),
        Key("type_vocab_size", "n_segments", 2),
        Key("layer_norm_eps", "norm_eps", 1e-12),
        activation_key("hidden_act", "gelu"),
        Key("hidden_dropout_prob", "dropout", 0.1),
        *control_ids(pad, bos, eos),
        Key("mask_token_id", "mask_id", None),
    )


def body_rows(prefix: str) -> tuple[Row, ...]:
    """Embeddings and blocks of BERT and RoBERTa."""
    ours, theirs = "encoder.layers.{}.", prefix + "encoder.layer.{}."
    return (
        Row(prefix + "embeddings.word_embeddings", "embed.tokens"),
        Row(prefix + "embeddings.position_embeddings", "embed.positions"),
        Row(prefix + "embeddings.token_type_embeddings", "embed.segments"),
        Row(prefix + "embeddings.LayerNorm", "embed.norm"),
        Row(theirs + "attention.self.query", ours + "self_attn.q_proj"),
        Row(theirs + "attention.self.key", ours + "self_attn.k_proj"),
        Row(theirs + "attention.self.value", ours + "self_attn.v_proj"),
        Row(theirs + "attention.output.dense", ours + "self_attn.o_proj"),
        Row(theirs + "attention.output.LayerNorm", ours + "self_residual.norm"),
        Row(theirs + "intermediate.dense", ours + "mlp.up"),
        Row(theirs + "output.dense", ours + "mlp.down"),
        Row(theirs + "output.LayerNorm", ours + "mlp_residual.norm"),
    )


FIXED: dict[str, object] = {
    "family": "encoder-only", "norm": "layernorm", "norm_order": "post", "position": "learned", "embed_norm": True,
    "tied": True, "head": "masked", "head_bias": True, "gated": False, "attn_bias": True, "mlp_bias": True,
}  # fmt: skip

BERT = Architecture(
    model_type="bert",
    class_name="BertForMaskedLM",
    keys=(*keys(pad=0), Key("max_position_embeddings", "max_len")),
    rows=(
        *body_rows("bert."),
        Row("cls.predictions.bias", "head.unembed.bias"),
        Row("cls.predictions.decoder", "head.unembed"),
        Row("cls.predictions.transform.dense", "head.dense"),
        Row("cls.predictions.transform.LayerNorm", "head.norm"),
    ),
    fixed={**FIXED, "position_offset": 0},
    constants={"tie_word_embeddings": True, "is_decoder": False},
    written={"attention_probs_dropout_prob": 0.0},
    fits=lambda config: config.n_segments > 0,
    ignored=(r"bert\.embeddings\.position_ids", r"bert\.pooler\..*", r"cls\.seq_relationship\..*"),
    base_class="BertModel",
    prefix="bert.",
)
