"""Gemma (2024): Llama with scaled embeddings and norms of 1 + weight. Gemma 2 (2024) and the text model of Gemma 3
(2025): sandwich norms, and windows in most layers; Gemma 2 caps its scores softly, Gemma 3 normalises queries and keys
instead."""

import math
from dataclasses import replace

from cutaway.checkpoint.architectures import llama
from cutaway.checkpoint.architectures.llama import L, M
from cutaway.checkpoint.config_keys import (
    activation_key,
    control_ids,
    local_rope_keys,
    rope_keys,
    window_keys_by_layer,
)
from cutaway.checkpoint.table import Architecture, Config, Key, Row, Value
from cutaway.config import ModelConfig
from cutaway.errors import CutawayError


def _embed_scale(width: Value, _: Config) -> float:
    # A wrong width is named under its own key.
    return width**0.5 if isinstance(width, int) and width > 0 else 1.0


def _attn_scale(value: Value, _: Config) -> float:
    if not isinstance(value, int | float) or not value > 0:
        raise CutawayError("{value!r}, expected a number above 0", value=value)
    return value**-0.5


def _scalar(_: Value, config: ModelConfig) -> float:
    """The number whose inverse root the scale is; a whole one as such."""
    scalar = (config.head_width**-0.5 if config.attn_scale is None else config.attn_scale) ** -2
    return round(scalar) if math.isclose(scalar, round(scalar), rel_tol=1e-12) else scalar


def _every_second(layer: int, _: Config) -> bool:
    return (layer + 1) % 2 == 1


def _all_but_every_nth(layer: int, theirs: Config) -> bool:
    every = theirs.get("sliding_window_pattern", theirs.get("_sliding_window_pattern", 6))
    return isinstance(every, int) and every > 0 and (layer + 1) % every != 0


def _keys(kv_heads: int, activation: Key) -> tuple[Key, ...]:
    """What all have; `kv_heads` is a default."""
    return (
        *llama.sizes(kv_heads),
        Key("hidden_size", "embed_scale", read=_embed_scale, write=lambda _, config: config.d_model),
        Key("head_dim", "d_head", 256, write=lambda _, config: config.head_width),
        llama.EPS,
        activation,
        Key("tie_word_embeddings", "tied", True),
        llama.ATTENTION_BIAS,
        *control_ids(pad=0, bos=2, eos=1),
    )


_PLAIN = activation_key("hidden_act", "gelu_pytorch_tanh")


def _first_activation(value: Value, theirs: Config) -> Value:
    """Gemma's first files say gelu and mean its approximation."""
    return "gelu_tanh" if value == "gelu" else _PLAIN.read(value, theirs)


GEMMA = replace(
    llama.LLAMA,
    model_type="gemma",
    class_name="GemmaForCausalLM",
    keys=(
        *_keys(16, replace(_PLAIN, read=_first_activation,
                           write=lambda value, _: "gelu_python" if value == "gelu" else _PLAIN.write(value, _))),
        Key("max_position_embeddings", "max_len", 8192),
        *rope_keys(),
    ),
    fixed={**llama.FIXED, "norm": "rmsnorm1p", "mlp_bias": False},
    constants={"use_bidirectional_attention": False},
    base_class="GemmaModel",
)  # fmt: skip

KEYS = (
    *_keys(4, activation_key("hidden_activation", "gelu_pytorch_tanh")),
    Key("query_pre_attn_scalar", "attn_scale", 256, read=_attn_scale, write=_scalar),
)
GEMMA2 = Architecture(
    model_type="gemma2",
    class_name="Gemma2ForCausalLM",
    keys=(
        *KEYS,
        Key("max_position_embeddings", "max_len", 8192),
        *rope_keys(),
        *window_keys_by_layer(_every_second, 4096),
        Key("attn_logit_softcapping", "attn_softcap", 50.0),
        Key("final_logit_softcapping", "logit_softcap", 30.0),
    ),
    rows=(
        *llama.ATTENTION_ROWS,
        *llama.MLP_ROWS,
        Row(M + "post_attention_layernorm", L + "self_residual.out_norm"),
        Row(M + "pre_feedforward_layernorm", L + "mlp_residual.norm"),
        Row(M + "post_feedforward_layernorm", L + "mlp_residual.out_norm"),
    ),
    fixed={
        "family": "decoder-only", "norm": "rmsnorm1p", "norm_order": "sandwich", "position": "rotary", "gated": True,
        "mlp_bias": False, "head": "linear", "qk_norm": False,
    },
    constants={"use_bidirectional_attention": False},
    ignored=llama.LLAMA.ignored,
    base_class="Gemma2Model",
    prefix="model.",
)  # fmt: skip

GEMMA3 = replace(
    GEMMA2,
    model_type="gemma3_text",
    class_name="Gemma3ForCausalLM",
    keys=(
        *KEYS,
        Key("max_position_embeddings", "max_len", 131_072),
        *local_rope_keys(1e6, 1e4),
        *window_keys_by_layer(_all_but_every_nth, 4096),
        Key("final_logit_softcapping", "logit_softcap", None),
    ),
    rows=(*GEMMA2.rows, *llama.QK_NORM_ROWS),
    # The reference's config has attn_logit_softcapping, and nothing reads it.
    fixed={**GEMMA2.fixed, "qk_norm": True, "attn_softcap": None},
    base_class="Gemma3TextModel",
)
