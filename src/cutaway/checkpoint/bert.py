"""BERT with its masked-word head (Devlin et al. 2019): post-norm, learned positions, segments."""

from cutaway.checkpoint.table import Architecture, Key, Row

L, M = "encoder.layers.{}.", "bert.encoder.layer.{}."
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "relu": "relu", "silu": "silu"}
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}

BERT = Architecture(
    model_type="bert",
    class_name="BertForMaskedLM",
    keys=(
        Key("vocab_size", "vocab_size"),
        Key("hidden_size", "d_model"),
        Key("num_hidden_layers", "n_layers"),
        Key("num_attention_heads", "n_heads"),
        Key("intermediate_size", "d_ff"),
        Key("max_position_embeddings", "max_len"),
        Key("type_vocab_size", "n_segments"),
        Key("layer_norm_eps", "norm_eps", 1e-12),
        Key(
            "hidden_act",
            "activation",
            "gelu",
            read=lambda value, _: ACTIVATIONS[str(value)],
            write=lambda value, _: THEIR_ACTIVATIONS.get(str(value)),
        ),
        Key("hidden_dropout_prob", "dropout", 0.1),
        Key("pad_token_id", "pad_id", None),
        Key("bos_token_id", "bos_id", None),
        Key("eos_token_id", "eos_id", None),
        Key("mask_token_id", "mask_id", None),
    ),
    rows=(
        Row("bert.embeddings.word_embeddings", "embed.tokens"),
        Row("cls.predictions.bias", "head.unembed.bias"),
        Row("cls.predictions.decoder", "head.unembed"),
        Row("bert.embeddings.position_embeddings", "embed.positions"),
        Row("bert.embeddings.token_type_embeddings", "embed.segments"),
        Row("bert.embeddings.LayerNorm", "embed.norm"),
        Row(M + "attention.self.query", L + "self_attn.q_proj"),
        Row(M + "attention.self.key", L + "self_attn.k_proj"),
        Row(M + "attention.self.value", L + "self_attn.v_proj"),
        Row(M + "attention.output.dense", L + "self_attn.o_proj"),
        Row(M + "attention.output.LayerNorm", L + "self_residual.norm"),
        Row(M + "intermediate.dense", L + "mlp.up"),
        Row(M + "output.dense", L + "mlp.down"),
        Row(M + "output.LayerNorm", L + "mlp_residual.norm"),
        Row("cls.predictions.transform.dense", "head.dense"),
        Row("cls.predictions.transform.LayerNorm", "head.norm"),
    ),
    fixed={
        "family": "encoder-only",
        "norm": "layernorm",
        "norm_order": "post",
        "position": "learned",
        "position_offset": 0,
        "embed_norm": True,
        "tied": True,
        "head": "masked",
        "head_bias": True,
        "gated": False,
        "attn_bias": True,
        "mlp_bias": True,
    },
    constants={"tie_word_embeddings": True, "is_decoder": False},
    written={"attention_probs_dropout_prob": 0.0},
    fits=lambda config: config.n_segments > 0,
    ignored=(r"bert\.embeddings\.position_ids", r"bert\.pooler\..*", r"cls\.seq_relationship\..*"),
)
