"""Marian (Junczys-Dowmunt et al. 2018; OPUS-MT), the original Transformer's shape, and those that are Marian with a
difference: M2M100 (Fan et al. 2020) is pre-norm; BART (Lewis et al. 2020) and mBART (Liu et al. 2020) have learned
positions from the table's third row on and a norm after the embeddings, BART post-norm and mBART pre-norm."""

from dataclasses import replace

from cutaway.checkpoint.config_keys import activation_key, token_id
from cutaway.checkpoint.table import ROW_VECTOR, Architecture, Config, Key, Row, Value
from cutaway.config import ModelConfig


def _scale(value: Value, theirs: Config) -> float:
    width = theirs["d_model"]
    # A wrong d_model is named under its own key.
    return width**0.5 if value and isinstance(width, int) else 1.0


def _stack(side: str, cross: bool) -> tuple[Row, ...]:
    theirs, ours = f"model.{side}.layers.{{}}.", f"{side}.layers.{{}}."
    rows = [
        Row(f"{theirs}fc1", f"{ours}mlp.up"),
        Row(f"{theirs}fc2", f"{ours}mlp.down"),
        Row(f"{theirs}final_layer_norm", f"{ours}mlp_residual.norm"),
    ]
    for attn, kind in (
        [("self_attn", "self"), ("encoder_attn", "cross")] if cross else [("self_attn", "self")]
    ):
        rows += [
            *(Row(f"{theirs}{attn}.{n}_proj", f"{ours}{kind}_attn.{n}_proj") for n in "qkv"),
            Row(f"{theirs}{attn}.out_proj", f"{ours}{kind}_attn.o_proj"),
            Row(f"{theirs}{attn}_layer_norm", f"{ours}{kind}_residual.norm"),
        ]
    return tuple(rows)


KEYS = (
    Key("vocab_size", "vocab_size"),
    Key("d_model", "d_model"),
    Key("encoder_layers", "n_encoder_layers", write=lambda _, config: config.encoder_layers),
    Key("decoder_layers", "n_layers"),
    Key("encoder_attention_heads", "n_heads"),
    Key("decoder_attention_heads", "n_heads"),
    Key("encoder_ffn_dim", "d_ff"),
    Key("decoder_ffn_dim", "d_ff"),
    Key("max_position_embeddings", "max_len", 1024),
    activation_key("activation_function", "gelu"),
    Key("scale_embedding", "embed_scale", False, read=_scale, write=lambda value, _: value != 1.0),
    Key("dropout", "dropout", 0.0),
    Key("pad_token_id", "pad_id"),
    Key("bos_token_id", "bos_id", None),
    Key("eos_token_id", "eos_id", read=token_id),
    Key("decoder_start_token_id", "decoder_start_id", None),
)
ROWS = (
    Row("model.shared", "source_embed.tokens"),
    Row("model.encoder.embed_tokens", "source_embed.tokens"),
    Row("model.decoder.embed_tokens", "target_embed.tokens"),
    Row("lm_head", "head.unembed"),
    *_stack("encoder", cross=False),
    *_stack("decoder", cross=True),
)
FINAL_NORM_ROWS = (
    Row("model.encoder.layer_norm", "encoder.norm"),
    Row("model.decoder.layer_norm", "decoder.norm"),
)
FIXED: dict[str, object] = {
    "family": "encoder-decoder", "norm": "layernorm", "norm_eps": 1e-5, "tied": True, "head": "linear",
    "gated": False, "attn_bias": True, "mlp_bias": True,
}  # fmt: skip

MARIAN = Architecture(
    model_type="marian",
    class_name="MarianMTModel",
    keys=(
        *KEYS,
        Key("decoder_vocab_size", "vocab_size", None, read=lambda v, theirs: v or theirs["vocab_size"]),
    ),
    rows=(Row("final_logits_bias", "head.unembed.bias", ROW_VECTOR), *ROWS),
    fixed={
        **FIXED, "norm_order": "post", "position": "sinusoidal", "sinusoid": "halves", "position_offset": 0,
        "head_bias": True,
    },
    constants={"tie_word_embeddings": True, "share_encoder_decoder_embeddings": True},
    written={
        "is_encoder_decoder": True, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "activation_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    # The fixed sinusoids, which older files store.
    ignored=(r"model\.(en|de)coder\.embed_positions\.weights?",),
    # Files of the base class, such as BART's first ones, have no bias of the output.
    zero_if_absent=("head.unembed.bias",),
    prefix="model.",
)  # fmt: skip


def _after_pad(_: Value, theirs: Config) -> int:
    pad = theirs["pad_token_id"]
    # A wrong pad_token_id is named under its own key.
    return pad + 1 if isinstance(pad, int) else 0


def _positions_fit(config: ModelConfig) -> bool:
    # M2M100's code counts positions from pad_id + 1 and gives a pad token none, so a decoder must not start with it.
    return (
        config.pad_id is not None
        and config.position_offset == config.pad_id + 1
        and config.decoder_start_id not in (None, config.pad_id)
    )


M2M100 = replace(
    MARIAN,
    model_type="m2m_100",
    class_name="M2M100ForConditionalGeneration",
    keys=(
        *KEYS,
        Key("pad_token_id", "position_offset", read=_after_pad, write=lambda _, config: config.pad_id),
    ),
    rows=(*ROWS, *FINAL_NORM_ROWS),
    fixed={
        **FIXED, "norm_order": "pre", "position": "sinusoidal", "sinusoid": "halves_m2m", "head_bias": False,
    },
    constants={"tie_word_embeddings": True},
    fits=_positions_fit,
)  # fmt: skip

BART = replace(
    MARIAN,
    model_type="bart",
    class_name="BartForConditionalGeneration",
    keys=KEYS,
    rows=(
        *MARIAN.rows,
        Row("model.encoder.embed_positions", "source_embed.positions"),
        Row("model.decoder.embed_positions", "target_embed.positions"),
        Row("model.encoder.layernorm_embedding", "source_embed.norm"),
        Row("model.decoder.layernorm_embedding", "target_embed.norm"),
    ),
    fixed={
        **FIXED, "norm_order": "post", "position": "learned", "position_offset": 2, "embed_norm": True,
        "head_bias": True,
    },
    constants={"tie_word_embeddings": True},
    ignored=(),
)  # fmt: skip

MBART = replace(
    BART,
    model_type="mbart",
    class_name="MBartForConditionalGeneration",
    rows=(*BART.rows, *FINAL_NORM_ROWS),
    fixed={**BART.fixed, "norm_order": "pre"},
)
