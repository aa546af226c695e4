"""Marian (Junczys-Dowmunt et al. 2018; OPUS-MT) and M2M100 (Fan et al. 2020): the original Transformer's shape,
post-norm and pre-norm."""

from collections.abc import Mapping

from cutaway.checkpoint.architectures.activations import activation_key
from cutaway.checkpoint.table import ROW_VECTOR, Architecture, Key, Row, token_id
from cutaway.config import ModelConfig


def _scale(value: object, theirs: Mapping[str, object]) -> float:
    width = theirs["d_model"]
    return (
        width**0.5 if value and isinstance(width, int) else 1.0
    )  # a wrong d_model is named under its own key


def _stack(side: str, cross: bool) -> tuple[Row, ...]:
    theirs, ours = f"model.{side}.layers.{{}}.", f"{side}.layers.{{}}."
    rows = [
        *(Row(f"{theirs}self_attn.{n}_proj", f"{ours}self_attn.{n}_proj") for n in "qkv"),
        Row(f"{theirs}self_attn.out_proj", f"{ours}self_attn.o_proj"),
        Row(f"{theirs}self_attn_layer_norm", f"{ours}self_residual.norm"),
        Row(f"{theirs}fc1", f"{ours}mlp.up"),
        Row(f"{theirs}fc2", f"{ours}mlp.down"),
        Row(f"{theirs}final_layer_norm", f"{ours}mlp_residual.norm"),
    ]
    if cross:
        rows += [
            *(Row(f"{theirs}encoder_attn.{n}_proj", f"{ours}cross_attn.{n}_proj") for n in "qkv"),
            Row(f"{theirs}encoder_attn.out_proj", f"{ours}cross_attn.o_proj"),
            Row(f"{theirs}encoder_attn_layer_norm", f"{ours}cross_residual.norm"),
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
FIXED: dict[str, object] = {
    "family": "encoder-decoder", "norm": "layernorm", "norm_eps": 1e-5, "tied": True, "head": "linear",
    "gated": False, "attn_bias": True, "mlp_bias": True,
}  # fmt: skip
CONSTANTS: dict[str, object] = {"tie_word_embeddings": True}
WRITTEN: dict[str, object] = {
    "is_encoder_decoder": True, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "activation_dropout": 0.0,
    "attention_dropout": 0.0,
}  # fmt: skip
TABLES = (r"model\.(en|de)coder\.embed_positions\.weights?",)  # the fixed sinusoids, which older files store
ZERO = (
    "head.unembed.bias",
)  # files of the base class, such as BART's first ones, have no bias of the output

MARIAN = Architecture(
    model_type="marian",
    class_name="MarianMTModel",
    keys=(
        *KEYS,
        Key("decoder_vocab_size", "vocab_size", None, read=lambda v, theirs: v or theirs["vocab_size"]),
    ),
    rows=(Row("final_logits_bias", "head.unembed.bias", ROW_VECTOR), *ROWS),
    fixed={
        **FIXED,
        "norm_order": "post",
        "position": "sinusoidal",
        "sinusoid": "halves",
        "position_offset": 0,
        "head_bias": True,
    },
    constants={**CONSTANTS, "share_encoder_decoder_embeddings": True},
    written=WRITTEN,
    ignored=TABLES,
    zero_if_absent=ZERO,
    prefix="model.",
)


def _after_pad(_: object, theirs: Mapping[str, object]) -> int:
    pad = theirs["pad_token_id"]
    return pad + 1 if isinstance(pad, int) else 0  # a wrong pad_token_id is named under its own key


def _positions_agree(config: ModelConfig) -> bool:
    # M2M100's code counts positions from pad_id + 1 and gives a pad token none, so a decoder must not start with it
    return (
        config.pad_id is not None
        and config.position_offset == config.pad_id + 1
        and config.decoder_start_id not in (None, config.pad_id)
    )


M2M100 = Architecture(
    model_type="m2m_100",
    class_name="M2M100ForConditionalGeneration",
    keys=(
        *KEYS,
        Key("pad_token_id", "position_offset", read=_after_pad, write=lambda _, config: config.pad_id),
    ),
    rows=(
        *ROWS,
        Row("model.encoder.layer_norm", "encoder.norm"),
        Row("model.decoder.layer_norm", "decoder.norm"),
    ),
    fixed={
        **FIXED,
        "norm_order": "pre",
        "position": "sinusoidal",
        "sinusoid": "halves_m2m",
        "head_bias": False,
    },
    constants=CONSTANTS,
    written=WRITTEN,
    ignored=TABLES,
    zero_if_absent=ZERO,
    prefix="model.",
    fits=_positions_agree,
)
