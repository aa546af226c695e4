"""BERT with its masked-word head (Devlin et al. 2019): post-norm, learned positions, segments; RoBERTa (Liu et al.
2019), whose position table begins with the rows up to pad_id, which no token takes; DistilBERT (Sanh et al. 2019),
half of BERT's blocks and no segments; and RoBERTa's kin."""

from dataclasses import replace

from cutaway.checkpoint.config_keys import activation_key, control_ids
from cutaway.checkpoint.table import Architecture, Config, Key, Row, Value
from cutaway.config import ModelConfig
from cutaway.errors import CutawayError

TIED = Key("tie_word_embeddings", "tied", True)


def _keys(pad: int, bos: int | None = None, eos: int | None = None) -> tuple[Key, ...]:
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
        TIED,
    )


def _body_rows(prefix: str) -> tuple[Row, ...]:
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
    "head": "masked", "head_bias": True, "gated": False, "attn_bias": True, "mlp_bias": True,
}  # fmt: skip

BERT = Architecture(
    model_type="bert",
    class_name="BertForMaskedLM",
    keys=(*_keys(pad=0), Key("max_position_embeddings", "max_len")),
    rows=(
        *_body_rows("bert."),
        Row("cls.predictions.decoder.bias", "head.unembed.bias"),
        Row("cls.predictions.bias", "head.unembed.bias", spare=True),
        Row("cls.predictions.decoder.weight", "head.unembed.weight"),
        Row("cls.predictions.transform.dense", "head.dense"),
        Row("cls.predictions.transform.LayerNorm", "head.norm"),
    ),
    fixed={**FIXED, "position_offset": 0},
    constants={"is_decoder": False},
    written={"attention_probs_dropout_prob": 0.0},
    fits=lambda config: config.n_segments > 0,
    ignored=(r"bert\.embeddings\.position_ids", r"bert\.pooler\..*", r"cls\.seq_relationship\..*"),
    base_class="BertModel",
    prefix="bert.",
)


ROBERTA_PAD = 1  # the default of RobertaConfig


def _roberta_offset(pad: Value, _: Config) -> Value:
    # A wrong pad_token_id is named under its own key.
    return pad + 1 if isinstance(pad, int) else 0


def _roberta_length(rows: Value, theirs: Config) -> Value:
    pad = theirs.get("pad_token_id", ROBERTA_PAD)
    if not isinstance(rows, int) or not isinstance(pad, int):
        raise TypeError(rows)
    if rows <= pad + 1:
        raise CutawayError(
            "{rows} rows, of which the first {none} stand for no position; expected more rows than those",
            rows=rows,
            none=pad + 1,
        )
    return rows - pad - 1


def _roberta_positions_fit(config: ModelConfig) -> bool:
    return config.pad_id is not None and config.position_offset == config.pad_id + 1 and config.n_segments > 0


ROBERTA = replace(
    BERT,
    model_type="roberta",
    class_name="RobertaForMaskedLM",
    keys=(
        *_keys(pad=ROBERTA_PAD, bos=0, eos=2),
        Key("max_position_embeddings", "max_len", 512, read=_roberta_length,
            write=lambda _, config: config.max_len + config.position_offset),
        Key("pad_token_id", "position_offset", ROBERTA_PAD, read=_roberta_offset,
            write=lambda _, config: config.pad_id),
    ),
    rows=(
        *_body_rows("roberta."),
        Row("lm_head.decoder.bias", "head.unembed.bias"),
        Row("lm_head.bias", "head.unembed.bias", spare=True),
        Row("lm_head.decoder.weight", "head.unembed.weight"),
        Row("lm_head.dense", "head.dense"),
        Row("lm_head.layer_norm", "head.norm"),
    ),
    # The reference's head applies GELU whatever the activation of the blocks is.
    fixed={**FIXED, "head_activation": "gelu"},
    fits=_roberta_positions_fit,
    ignored=(r"roberta\.embeddings\.position_ids", r"roberta\.pooler\..*"),
    base_class="RobertaModel",
    prefix="roberta.",
)  # fmt: skip

# XLM-RoBERTa (Conneau et al. 2020): RoBERTa under another name.
XLM_ROBERTA = replace(
    ROBERTA, model_type="xlm-roberta", class_name="XLMRobertaForMaskedLM", base_class="XLMRobertaModel"
)

L, N = "encoder.layers.{}.", "mpnet.encoder.layer.{}."

# MPNet (Song et al. 2020): RoBERTa without segments, and with T5's bias by distance, which all layers share.
_MPNET_OFFSET = 2  # its code counts positions from there whatever pad_token_id is


def _mpnet_length(rows: Value, _: Config) -> Value:
    return rows - _MPNET_OFFSET if isinstance(rows, int) else rows


MPNET = replace(
    ROBERTA,
    model_type="mpnet",
    class_name="MPNetForMaskedLM",
    keys=(
        *(key for key in _keys(pad=1, bos=0, eos=2) if key.ours != "n_segments"),
        Key("max_position_embeddings", "max_len", 512, read=_mpnet_length,
            write=lambda _, config: config.max_len + _MPNET_OFFSET),
    ),
    rows=(
        *(row for row in _body_rows("mpnet.") if ".attention." not in row.theirs and row.ours != "embed.segments"),
        *(Row(f"{N}attention.attn.{n}", f"{L}self_attn.{n}_proj") for n in "qkvo"),
        Row(N + "attention.LayerNorm", L + "self_residual.norm"),
        Row("mpnet.encoder.relative_attention_bias", "encoder.relative.table"),
        *(row for row in ROBERTA.rows if row.ours.startswith("head.")),
    ),
    fixed={
        **ROBERTA.fixed, "position": "learned_relative", "position_offset": _MPNET_OFFSET, "n_segments": 0,
        "relative_buckets": 32, "relative_max_distance": 128,
    },
    # its code reads as many buckets whatever the config says
    constants={"relative_attention_num_buckets": 32},
    fits=lambda config: True,
    ignored=(r"mpnet\.embeddings\.position_ids", r"mpnet\.pooler\..*"),
    base_class="MPNetModel",
    prefix="mpnet.",
)  # fmt: skip

M = "distilbert.transformer.layer.{}."

DISTILBERT = Architecture(
    model_type="distilbert",
    class_name="DistilBertForMaskedLM",
    keys=(
        Key("vocab_size", "vocab_size"),
        Key("dim", "d_model"),
        Key("n_layers", "n_layers"),
        Key("n_heads", "n_heads"),
        Key("hidden_dim", "d_ff"),
        Key("max_position_embeddings", "max_len", 512),
        activation_key("activation", "gelu"),
        Key("dropout", "dropout", 0.1),
        *control_ids(pad=0),
        Key("mask_token_id", "mask_id", None),
        TIED,
    ),
    rows=(
        Row("distilbert.embeddings.word_embeddings", "embed.tokens"),
        Row("distilbert.embeddings.position_embeddings", "embed.positions"),
        Row("distilbert.embeddings.LayerNorm", "embed.norm"),
        *(Row(f"{M}attention.{n}_lin", f"{L}self_attn.{n}_proj") for n in "qkv"),
        Row(M + "attention.out_lin", L + "self_attn.o_proj"),
        Row(M + "sa_layer_norm", L + "self_residual.norm"),
        Row(M + "ffn.lin1", L + "mlp.up"),
        Row(M + "ffn.lin2", L + "mlp.down"),
        Row(M + "output_layer_norm", L + "mlp_residual.norm"),
        Row("vocab_transform", "head.dense"),
        Row("vocab_layer_norm", "head.norm"),
        Row("vocab_projector", "head.unembed"),
    ),
    fixed={**FIXED, "norm_eps": 1e-12, "n_segments": 0, "position_offset": 0},
    # Fixed sinusoids, where a model has them, lie in the file as a table like learned positions.
    written={"attention_dropout": 0.0, "sinusoidal_pos_embds": False},
    base_class="DistilBertModel",
    prefix="distilbert.",
)
