"""From a config to a model, and the named sizes."""

from collections.abc import Mapping

import torch

from cutaway.config import ModelConfig, parse
from cutaway.errors import CutawayError, nearest
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.words import names_of

Model = EncoderDecoder | DecoderOnly | EncoderOnly

FAMILIES: dict[str, type[EncoderDecoder] | type[DecoderOnly] | type[EncoderOnly]] = {
    "encoder-decoder": EncoderDecoder,
    "decoder-only": DecoderOnly,
    "encoder-only": EncoderOnly,
}


def build(config: ModelConfig) -> Model:
    """A model with fresh weights from torch's global random state."""
    return FAMILIES[config.family](config)


def skeleton(config: ModelConfig) -> Model:
    """The model of a config without its weights: every module, name and shape on torch's meta device, the fixed tables
    real, and no memory for the parameters."""
    with torch.device("meta"):
        return build(config)


def _marian(d_model: int, n_heads: int, d_ff: int, dropout: float) -> dict[str, object]:
    """Vaswani et al. 2017, Table 3, in the shape of Marian's architecture: post-norm, sinusoids, tied."""
    return {
        "family": "encoder-decoder", "d_model": d_model, "n_layers": 6, "n_heads": n_heads, "d_ff": d_ff,
        "norm_order": "post", "position": "sinusoidal", "activation": "relu", "embed_scale": d_model**0.5,
        "head_bias": True, "dropout": dropout,
    }  # fmt: skip


# Everything but the vocabulary, which comes from the tokenizer.
PRESETS: dict[str, dict[str, object]] = {
    "transformer-base": _marian(512, 8, 2048, 0.1),
    "transformer-big": _marian(1024, 16, 4096, 0.3),
    "marian-tiny": {**_marian(256, 4, 1024, 0.1), "n_layers": 4},
    "m2m100-tiny": {
        "family": "encoder-decoder", "d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024,
        "norm_order": "pre", "position": "sinusoidal", "sinusoid": "halves_m2m", "position_offset": 2,
        "activation": "relu", "embed_scale": 16.0, "dropout": 0.1,
    },
    "gpt2-small": {
        "family": "decoder-only", "d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 3072,
        "max_len": 1024, "position": "learned", "activation": "gelu_tanh", "dropout": 0.1,
    },
    "llama-tiny": {
        "family": "decoder-only", "d_model": 256, "n_layers": 6, "n_heads": 4, "d_ff": 704, "max_len": 256,
        "norm": "rmsnorm", "position": "rotary", "activation": "silu", "gated": True, "attn_bias": False,
        "mlp_bias": False,
    },
    "bert-base": {
        "family": "encoder-only", "d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 3072, "max_len": 512,
        "norm_order": "post", "norm_eps": 1e-12, "position": "learned", "activation": "gelu",
        "embed_norm": True, "n_segments": 2, "head": "masked", "head_bias": True, "dropout": 0.1,
    },
    "bert-tiny": {
        "family": "encoder-only", "d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024, "max_len": 128,
        "norm_order": "post", "norm_eps": 1e-12, "position": "learned", "activation": "gelu",
        "embed_norm": True, "n_segments": 2, "head": "masked", "head_bias": True, "dropout": 0.1,
    },
}  # fmt: skip


def preset_values(name: object, where: object) -> dict[str, object]:
    """What preset `name` says of a config. Raises CutawayError that lists the presets."""
    if not isinstance(name, str) or name not in PRESETS:
        raise CutawayError(
            "{where}: unknown preset {name!r}{hint}; presets: {presets}",
            where=where,
            name=name,
            hint=nearest(str(name), PRESETS),
            presets=names_of(PRESETS),
        )
    return PRESETS[name]


def preset(name: str, changes: Mapping[str, object], where: str = "model") -> ModelConfig:
    """The config of preset `name` with `changes` (at least vocab_size) applied."""
    return parse(ModelConfig, {**preset_values(name, where), **changes}, where)
