"""Small models of every structure, to count and to describe."""

from cutaway.config import ModelConfig, parse
from cutaway.models.build import PRESETS

SMALL = {
    "vocab_size": 61,
    "d_model": 24,
    "n_layers": 3,
    "n_heads": 4,
    "d_ff": 40,
    "dropout": 0.0,
    "max_len": 32,
}
EXPERTS = {"n_experts": 5, "n_experts_per_token": 2, "d_expert": 16}
MODELS = {
    "post-norm, sinusoids": {**PRESETS["marian-tiny"], **SMALL, "n_encoder_layers": 2},
    "pre-norm, sinusoids": {**PRESETS["m2m100-tiny"], **SMALL, "embed_scale": 24**0.5},
    "T5": {**PRESETS["m2m100-tiny"], **SMALL, "position": "relative", "position_offset": 0, "attn_scale": 1.0,
           "norm": "rmsnorm", "gated": True, "attn_bias": False, "mlp_bias": False, "d_head": 8, "tied": False},
    "Llama, grouped": {**PRESETS["llama-tiny"], **SMALL, "n_kv_heads": 2, "tied": False},
    "Qwen3, grouped": {**PRESETS["llama-tiny"], **SMALL, "n_kv_heads": 1, "d_head": 8, "qk_norm": True},
    "Gemma 2": {**PRESETS["llama-tiny"], **SMALL, "norm": "rmsnorm1p", "norm_order": "sandwich", "window": 4,
                "window_layers": [0, 2], "attn_softcap": 50.0, "logit_softcap": 30.0},
    "mixture of experts": {**PRESETS["llama-tiny"], **SMALL, **EXPERTS, "n_kv_heads": 2},
    "experts but in one layer": {**PRESETS["llama-tiny"], **SMALL, **EXPERTS, "dense_layers": [1]},
    "GPT-2": {**PRESETS["gpt2-small"], **SMALL},
    "ALiBi": {**PRESETS["gpt2-small"], **SMALL, "position": "alibi", "tied": False, "head_bias": True},
    "BERT": {**PRESETS["bert-tiny"], **SMALL},
    "BERT without a head": {**PRESETS["bert-tiny"], **SMALL, "head": "none", "head_bias": False},
}  # fmt: skip


def config(name: str) -> ModelConfig:
    return parse(ModelConfig, MODELS[name], name)
