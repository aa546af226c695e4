"""Marian (Junczys-Dowmunt et al. 2018; OPUS-MT), the original Transformer's shape, and those that are Marian with a
difference: M2M100 (Fan et al. 2020) is pre-norm; BART (Lewis et al. 2020) and mBART (Liu et al. 2020) have learned
positions from the table's third row on and a norm after the embeddings, BART post-norm and mBART pre-norm."""

from dataclasses import replace

from cutaway.checkpoint.config_keys import activation_key, control_ids
from cutaway.checkpoint.table import ROW_VECTOR, Architecture, Config, Key, Row, Value
from cutaway.config import ModelConfig
from cutaway.errors import CutawayError


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


def _keys(activation: str, scaled: bool, **ids: Value) -> tuple[Key, ...]:
    """What all have, with the defaults of an architecture; `ids` are those of its control tokens."""
    return (
        Key("d_model", "d_model"),
        Key("encoder_layers", "n_encoder_layers", write=lambda _, config: config.encoder_layers),
        Key("decoder_layers", "n_layers"),
        Key(
            "encoder_attention_heads", "n_encoder_heads", write=lambda _, config: config.encoder_side.n_heads
        ),
        Key("decoder_attention_heads", "n_heads"),
        Key("encoder_ffn_dim", "d_encoder_ff", write=lambda _, config: config.encoder_side.d_ff),
        Key("decoder_ffn_dim", "d_ff"),
        Key("max_position_embeddings", "max_len", 1024),
        activation_key("activation_function", activation),
        Key("scale_embedding", "embed_scale", scaled, read=_scale, write=lambda value, _: value != 1.0),
        Key("dropout", "dropout", 0.1),
        Key("tie_word_embeddings", "tied", True),
        *control_ids(**ids),
    )


# One matrix for everything, or, where nothing is tied, a matrix for each use.
ONE_VOCABULARY = (
    Key("vocab_size", "vocab_size"),
    Key("tie_word_embeddings", "shared_tables", True, write=lambda _, config: config.tied),
)
ROWS = (
    Row("model.encoder.embed_tokens", "source_embed.tokens"),
    Row("model.decoder.embed_tokens", "target_embed.tokens"),
    Row("model.shared", "source_embed.tokens", spare=True),
    Row("model.shared", "target_embed.tokens", spare=True),
    Row("lm_head", "head.unembed"),
    *_stack("encoder", cross=False),
    *_stack("decoder", cross=True),
)
FINAL_NORM_ROWS = (
    Row("model.encoder.layer_norm", "encoder.norm"),
    Row("model.decoder.layer_norm", "decoder.norm"),
)
FIXED: dict[str, object] = {
    "family": "encoder-decoder", "norm": "layernorm", "norm_eps": 1e-5, "head": "linear",
    "gated": False, "attn_bias": True, "mlp_bias": True,
}  # fmt: skip


def _separate(theirs: Config) -> bool:
    return not theirs.get("share_encoder_decoder_embeddings", True) or not theirs.get(
        "tie_word_embeddings", True
    )


def _target_size(value: Value, theirs: Config) -> Value:
    """Of tables that are shared, the decoder's own size is not read, though an output that is not tied has it."""
    source = theirs["vocab_size"]
    if (
        theirs.get("share_encoder_decoder_embeddings", True)
        and value not in (None, source)
        and _separate(theirs)
    ):
        raise CutawayError(
            "{value!r}, expected vocab_size ({size!r}) or share_encoder_decoder_embeddings false",
            value=value,
            size=source,
        )
    return value if value and _separate(theirs) else source


MARIAN = Architecture(
    model_type="marian",
    class_name="MarianMTModel",
    keys=(
        *_keys("gelu", False, pad=58_100, bos=None, eos=0, decoder_start=58_100),
        Key("decoder_vocab_size", "vocab_size", None, read=_target_size),
        Key("vocab_size", "source_vocab_size", write=lambda _, config: config.encoder_side.vocab_size),
        Key("share_encoder_decoder_embeddings", "shared_tables", True,
            read=lambda _, theirs: not _separate(theirs)),
    ),
    rows=(Row("final_logits_bias", "head.unembed.bias", ROW_VECTOR), *ROWS),
    fixed={
        **FIXED, "norm_order": "post", "position": "sinusoidal", "sinusoid": "halves", "position_offset": 0,
        "head_bias": True,
    },
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


def _after_pad(pad: Value, theirs: Config) -> int:
    if isinstance(pad, int) and theirs.get("decoder_start_token_id", 2) == pad:
        raise CutawayError(
            "{pad} is decoder_start_token_id too, which the reference gives no position", pad=pad
        )
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
        *_keys("relu", True, pad=1, bos=0, eos=2, decoder_start=2),
        *ONE_VOCABULARY,
        Key("pad_token_id", "position_offset", 1, read=_after_pad, write=lambda _, config: config.pad_id),
    ),
    rows=(*ROWS, *FINAL_NORM_ROWS),
    fixed={
        **FIXED, "norm_order": "pre", "position": "sinusoidal", "sinusoid": "halves_m2m", "head_bias": False,
    },
    fits=_positions_fit,
)  # fmt: skip

BART = replace(
    MARIAN,
    model_type="bart",
    class_name="BartForConditionalGeneration",
    keys=(*_keys("gelu", False, pad=1, bos=0, eos=2, decoder_start=2), *ONE_VOCABULARY),
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
    ignored=(),
)  # fmt: skip

MBART = replace(
    BART,
    model_type="mbart",
    class_name="MBartForConditionalGeneration",
    # Where a file names no start, the reference's search begins with the beginning of a text.
    keys=(
        *_keys("gelu", False, pad=1, bos=0, eos=2),
        *ONE_VOCABULARY,
        Key("decoder_start_token_id", "decoder_start_id", None,
            read=lambda value, theirs: theirs.get("bos_token_id", 0) if value is None else value),
    ),
    rows=(*BART.rows, *FINAL_NORM_ROWS),
    fixed={**BART.fixed, "norm_order": "pre"},
)  # fmt: skip
