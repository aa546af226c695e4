"""T5 (Raffel et al. 2020), its version 1.1 and Flan-T5: relative positions, RMSNorm, unscaled scores, no biases."""

from dataclasses import replace

from cutaway.checkpoint.config_keys import ACTIVATIONS, control_ids, unsupported
from cutaway.checkpoint.table import Architecture, Config, Key, Row, Value
from cutaway.config import ModelConfig


def _gated(theirs: Config) -> bool:
    if isinstance(told := theirs.get("is_gated_act"), bool):
        return told
    return str(theirs.get("feed_forward_proj", "relu")).startswith("gated-")


def _activation(value: Value, theirs: Config) -> str:
    # what it gives is in the file too, and wins
    if (told := theirs.get("dense_act_fn")) is not None:
        return _named(told)
    name = str(value).removeprefix("gated-")
    if name == "gelu" and _gated(theirs):
        # what version 1.1 was trained with, under that name
        return "gelu_tanh"
    return _named(name)


def _named(name: Value) -> str:
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise unsupported(name, ACTIVATIONS)
    return ACTIVATIONS[name]


_NAMES = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}


def _their_projection(activation: Value, config: ModelConfig) -> str:
    # after gated-, gelu is its approximation for other readers
    name = "gelu" if config.gated and activation == "gelu_tanh" else _NAMES[str(activation)]
    return f"gated-{name}" if config.gated else name


def _logit_scale(value: Value, theirs: Config) -> float:
    """The first T5 divides its logits by √d_model, as tied models do in its authors' library; 1.1 does not."""
    scales = theirs.get("tie_word_embeddings", True) is not False if value is None else value
    width = theirs["d_model"]
    return width**-0.5 if scales and isinstance(width, int) and width > 0 else 1.0


def _attention(theirs: str, ours: str) -> list[Row]:
    return [Row(f"{theirs}.{n}", f"{ours}.{n}_proj") for n in "qkvo"]


def _stack(side: str, cross: bool, gated: bool) -> list[Row]:
    theirs, ours = f"{side}.block.{{}}.layer.", f"{side}.layers.{{}}."
    mlp = f"{theirs}{2 if cross else 1}."
    rows = [
        Row(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias", f"{side}.relative.table"),
        *_attention(f"{theirs}0.SelfAttention", f"{ours}self_attn"),
        Row(f"{theirs}0.layer_norm", f"{ours}self_residual.norm"),
        Row(mlp + ("DenseReluDense.wi_1" if gated else "DenseReluDense.wi"), f"{ours}mlp.up"),
        Row(mlp + "DenseReluDense.wo", f"{ours}mlp.down"),
        Row(mlp + "layer_norm", f"{ours}mlp_residual.norm"),
        Row(f"{side}.final_layer_norm", f"{side}.norm"),
    ]
    if gated:
        rows.append(Row(mlp + "DenseReluDense.wi_0", f"{ours}mlp.gate"))
    if cross:
        rows += [
            *_attention(f"{theirs}1.EncDecAttention", f"{ours}cross_attn"),
            Row(f"{theirs}1.layer_norm", f"{ours}cross_residual.norm"),
        ]
    return rows


KEYS = (
    Key("vocab_size", "vocab_size"),
    Key("d_model", "d_model"),
    Key("d_kv", "d_head", 64, write=lambda _, config: config.head_width),
    Key("d_ff", "d_ff"),
    Key("num_layers", "n_encoder_layers", write=lambda _, config: config.encoder_layers),
    Key("num_decoder_layers", "n_layers", None,
        read=lambda value, theirs: theirs["num_layers"] if value is None else value),
    Key("num_heads", "n_heads"),
    Key("n_positions", "max_len", 512),  # no limit of the positions, but what these models were trained on
    Key("relative_attention_num_buckets", "relative_buckets", 32),
    Key("relative_attention_max_distance", "relative_max_distance", 128),
    Key("layer_norm_epsilon", "norm_eps", 1e-6),
    Key("feed_forward_proj", "activation", "relu", read=_activation, write=_their_projection),
    Key("dense_act_fn", "activation", write_only=True, write=lambda value, _: _NAMES[str(value)]),
    Key("is_gated_act", "gated", write_only=True),
    Key("tie_word_embeddings", "tied", True),
    Key("scale_decoder_outputs", "logit_scale", None, read=_logit_scale, write=lambda scale, _: scale != 1.0),
    Key("dropout_rate", "dropout", 0.1),
    *control_ids(pad=0, eos=1),
    Key("decoder_start_token_id", "decoder_start_id", None,
        read=lambda value, theirs: theirs.get("pad_token_id", 0) if value is None else value),
)  # fmt: skip
FIXED: dict[str, object] = {
    "family": "encoder-decoder", "norm": "rmsnorm", "norm_order": "pre", "position": "relative",
    "attn_bias": False, "mlp_bias": False, "attn_scale": 1.0, "head": "linear", "head_bias": False,
}  # fmt: skip


def _t5(gated: bool) -> Architecture:
    return Architecture(
        model_type="t5",
        class_name="T5ForConditionalGeneration",
        keys=KEYS,
        rows=(
            Row("encoder.embed_tokens", "source_embed.tokens"),
            Row("decoder.embed_tokens", "target_embed.tokens"),
            Row("shared", "source_embed.tokens", spare=True),
            Row("shared", "target_embed.tokens", spare=True),
            Row("lm_head", "head.unembed"),
            *_stack("encoder", False, gated),
            *_stack("decoder", True, gated),
        ),
        fixed={**FIXED, "gated": gated},
        written={"is_encoder_decoder": True},
        # Older files hold a table that the decoder's cross-attention never read.
        ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
        when=lambda theirs: _gated(theirs) == gated,
    )


T5, T5_GATED = _t5(gated=False), _t5(gated=True)


def _mt5(gated: bool) -> Architecture:
    """mT5 (Xue et al. 2021): version 1.1 of T5 under another name, gated unless the config says otherwise."""
    proj = Key("feed_forward_proj", "activation", "gated-gelu", read=_activation, write=_their_projection)
    kept = tuple(key for key in KEYS if key.theirs not in ("feed_forward_proj", "scale_decoder_outputs"))
    return replace(
        _t5(gated),
        model_type="mt5",
        class_name="MT5ForConditionalGeneration",
        keys=(*kept, proj),
        fixed={**FIXED, "gated": gated, "logit_scale": 1.0},
        when=lambda theirs: _gated({"feed_forward_proj": "gated-gelu", **theirs}) == gated,
    )


MT5, MT5_GATED = _mt5(gated=False), _mt5(gated=True)
