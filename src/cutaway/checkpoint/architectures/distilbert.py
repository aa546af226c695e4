"""DistilBERT (Sanh et al. 2019): half of BERT's blocks, and no segments."""

from cutaway.checkpoint.architectures import bert
from cutaway.checkpoint.architectures.activations import activation_key
from cutaway.checkpoint.table import Architecture, Key, Row, control_ids

L, M = "encoder.layers.{}.", "distilbert.transformer.layer.{}."

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
    fixed={**bert.FIXED, "norm_eps": 1e-12, "n_segments": 0, "position_offset": 0},
    constants={"tie_word_embeddings": True},
    # Fixed sinusoids, where a model has them, lie in the file as a table like learned positions.
    written={"attention_dropout": 0.0, "sinusoidal_pos_embds": False},
    base_class="DistilBertModel",
    prefix="distilbert.",
)
