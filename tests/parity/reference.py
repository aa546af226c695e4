"""The reference: tiny models of transformers with random weights, one or more for every architecture that is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from cutaway.checkpoint import folder
from cutaway.models.encoder_decoder import EncoderDecoder

V = 97


@dataclass(frozen=True)
class Case:
    """`older` are keys of config.json as files from before version 5 have them; None takes a key out."""

    name: str
    model: type[transformers.PreTrainedModel]
    config: transformers.PretrainedConfig
    older: Mapping[str, object] = field(default_factory=dict)

    @property
    def model_type(self) -> str:
        return self.config.model_type


SEQ2SEQ: dict[str, Any] = {
    "vocab_size": V, "d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "scale_embedding": True, "forced_eos_token_id": None,
}  # fmt: skip
T5: dict[str, Any] = {
    "vocab_size": V, "d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 3, "num_decoder_layers": 2,
    "num_heads": 4, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
}  # fmt: skip
CAUSAL: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MASKED: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip
LLAMA3_ROPE: dict[str, Any] = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN: dict[str, Any] = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16
}  # fmt: skip
LINEAR: dict[str, Any] = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}
DYNAMIC: dict[str, Any] = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}

CASES = [
    Case(
        "marian",
        transformers.MarianMTModel,
        transformers.MarianConfig(**SEQ2SEQ, decoder_start_token_id=0, activation_function="silu"),
    ),
    Case(
        "m2m_100",
        transformers.M2M100ForConditionalGeneration,
        transformers.M2M100Config(**SEQ2SEQ, decoder_start_token_id=2),
    ),
    Case(
        "bart",
        transformers.BartForConditionalGeneration,
        transformers.BartConfig(**{**SEQ2SEQ, "scale_embedding": False}, decoder_start_token_id=2),
    ),
    Case(
        "mbart",
        transformers.MBartForConditionalGeneration,
        transformers.MBartConfig(**SEQ2SEQ, decoder_start_token_id=2, activation_function="relu"),
    ),
    Case("t5", transformers.T5ForConditionalGeneration, transformers.T5Config(**T5, feed_forward_proj="relu")),
    Case(
        "t5, version 1.1, output tied by the reference",
        transformers.T5ForConditionalGeneration,
        transformers.T5Config(**{**T5, "tie_word_embeddings": False}, feed_forward_proj="gated-gelu"),
    ),
    Case("mt5", transformers.MT5ForConditionalGeneration, transformers.MT5Config(**T5)),
    Case(
        "marian, two vocabularies",
        transformers.MarianMTModel,
        transformers.MarianConfig(
            **{**SEQ2SEQ, "encoder_attention_heads": 2, "encoder_ffn_dim": 40}, decoder_start_token_id=0,
            share_encoder_decoder_embeddings=False, decoder_vocab_size=V + 20,
        ),
    ),
    Case(
        "bart, nothing tied",
        transformers.BartForConditionalGeneration,
        transformers.BartConfig(**SEQ2SEQ, decoder_start_token_id=2, tie_word_embeddings=False),
    ),
    Case(
        "llama",
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**CAUSAL, tie_word_embeddings=False, rms_norm_eps=1e-5),
    ),
    Case(
        "llama, tied, biases",
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            **{**CAUSAL, "num_key_value_heads": 4}, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        ),
    ),
    Case(
        "llama 3, scaled positions",
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**CAUSAL, rope_parameters=LLAMA3_ROPE),
    ),
    Case(
        "llama 3, as older files say it",
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**CAUSAL, rope_parameters=LLAMA3_ROPE),
        older={
            "rope_parameters": None, "rope_theta": 500.0,
            "rope_scaling": {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"},
            "head_dim": None,
        },
    ),
    Case(
        "llama, linear positions",
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**CAUSAL, rope_parameters=LINEAR),
    ),
    Case(
        "llama, dynamic positions",
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**CAUSAL, rope_parameters=DYNAMIC),
    ),
    Case(
        "gpt2",
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(
            vocab_size=V, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
        ),
    ),
    Case(
        "gpt2, not tied",
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(
            vocab_size=V, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2,
            tie_word_embeddings=False, scale_attn_weights=False,
        ),
    ),
    Case(
        "phi3",
        transformers.Phi3ForCausalLM,
        transformers.Phi3Config(**CAUSAL, pad_token_id=0, sliding_window=5, tie_word_embeddings=False),
    ),
    Case(
        "mistral",
        transformers.MistralForCausalLM,
        transformers.MistralConfig(**CAUSAL, sliding_window=5, head_dim=12),
    ),
    Case(
        "qwen2, no window",
        transformers.Qwen2ForCausalLM,
        transformers.Qwen2Config(**CAUSAL, tie_word_embeddings=True, rope_parameters=YARN),
    ),
    *(
        Case(
            f"qwen2, window from layer {first}",
            transformers.Qwen2ForCausalLM,
            transformers.Qwen2Config(**CAUSAL, use_sliding_window=True, sliding_window=5, max_window_layers=first),
            older={"layer_types": None},
        )
        for first in (0, 2, 4)
    ),
    Case("qwen3", transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**CAUSAL, head_dim=16)),
    Case(
        "gemma", transformers.GemmaForCausalLM, transformers.GemmaConfig(**CAUSAL, head_dim=12, pad_token_id=0)
    ),
    Case(
        "gemma2",
        transformers.Gemma2ForCausalLM,
        transformers.Gemma2Config(
            **CAUSAL, head_dim=12, sliding_window=5, query_pre_attn_scalar=24, attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0, pad_token_id=0,
        ),
    ),
    Case(
        "gemma3_text",
        transformers.Gemma3ForCausalLM,
        transformers.Gemma3TextConfig(
            **CAUSAL, head_dim=12, sliding_window=5, query_pre_attn_scalar=24, pad_token_id=0,
            layer_types=["sliding_attention", "full_attention"] * 2,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        ),
    ),
    Case(
        "mixtral",
        transformers.MixtralForCausalLM,
        transformers.MixtralConfig(
            **CAUSAL, num_local_experts=5, num_experts_per_tok=2, router_aux_loss_coef=0.02
        ),
    ),
    *(
        Case(
            f"qwen3_moe, weights {'' if renormalised else 'not '}renormalised",
            transformers.Qwen3MoeForCausalLM,
            transformers.Qwen3MoeConfig(
                **{**CAUSAL, "head_dim": 12}, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16,
                router_aux_loss_coef=0.03,
                norm_topk_prob=renormalised, mlp_only_layers=[1], decoder_sparse_step=2 if renormalised else 1,
            ),
        )
        for renormalised in (True, False)
    ),
    Case("bert", transformers.BertForMaskedLM, transformers.BertConfig(**MASKED)),
    Case("bert, no head", transformers.BertModel, transformers.BertConfig(**MASKED, hidden_act="relu")),
    Case("roberta", transformers.RobertaForMaskedLM, transformers.RobertaConfig(**MASKED)),
    Case("bert, not tied", transformers.BertForMaskedLM, transformers.BertConfig(**MASKED, tie_word_embeddings=False)),
    Case("xlm-roberta", transformers.XLMRobertaForMaskedLM, transformers.XLMRobertaConfig(**MASKED)),
    Case("mpnet", transformers.MPNetForMaskedLM, transformers.MPNetConfig(**MASKED)),
    Case("roberta, no head", transformers.RobertaModel, transformers.RobertaConfig(**MASKED)),
    Case(
        "distilbert",
        transformers.DistilBertForMaskedLM,
        transformers.DistilBertConfig(
            vocab_size=V, dim=32, hidden_dim=48, n_layers=3, n_heads=4, max_position_embeddings=64
        ),
    ),
]  # fmt: skip


def make(case: Case) -> transformers.PreTrainedModel:
    """Their model with weights of std 0.15, so that nothing hides, showing its attention."""
    torch.manual_seed(0)
    model = case.model(case.config).eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.dtype.is_floating_point:
                tensor.normal_(0, 0.15)
    model.tie_weights()
    # the fixed sinusoid tables are state there; they must stay what they are
    for module in model.modules():
        if isinstance(module, MarianSinusoidalPositionalEmbedding):
            module.weight.data.copy_(module.create_weight())
        if isinstance(module, M2M100SinusoidalPositionalEmbedding):
            rows, width = module.weights.shape
            module.make_weights(rows, width, module.padding_idx)
    return model


def random_ids(rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(3, V, (rows, length), generator=torch.Generator().manual_seed(seed))


def padding(side: str, rows: int = 2, length: int = 11, real: int = 7) -> Tensor:
    """(rows, length), True at tokens: the last row is padded on the given side."""
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[-1, slice(real, None) if side == "right" else slice(None, length - real)] = False
    return mask


@torch.no_grad()
def their_output(model: transformers.PreTrainedModel, ids: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    """Logits, or the last hidden state of a model without a head."""
    pad = model.config.pad_token_id or 0
    filled = ids.masked_fill(~mask, pad)
    inputs: dict[str, Tensor] = {"input_ids": filled, "attention_mask": mask.long()}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = target
    if model.can_generate() and not model.config.is_encoder_decoder:
        # A caller's business there: without it, padding on the left shifts learned positions.
        inputs["position_ids"] = (mask.long().cumsum(dim=1) - 1).clamp(min=0)
    out = model(**inputs)
    return out.logits if "logits" in out else out.last_hidden_state


@torch.no_grad()
def our_output(loaded: folder.Loaded, ids: Tensor, mask: Tensor | None, target: Tensor) -> Tensor:
    model = loaded.model
    if isinstance(model, EncoderDecoder):
        return model(ids, target, mask)
    forward = model.hidden if loaded.config.head == "none" else model
    return forward(ids, mask=mask)


def save_and_open(case: Case, model: transformers.PreTrainedModel, where: Path) -> folder.Loaded:
    """The folder that they save, in the words of an older version where the case asks for it, opened by us."""
    model.save_pretrained(where)
    if case.older:
        values = json.loads((where / "config.json").read_text()) | case.older
        values = {key: value for key, value in values.items() if value is not None}
        (where / "config.json").write_text(json.dumps(values))
    return folder.load(where)


def parity(case: Case, where: Path) -> float:
    """The greatest difference of two rows' outputs, alone and padded on the right, from the reference's."""
    theirs = make(case)
    ours = save_and_open(case, theirs, where)
    ids, target, worst = random_ids(2, 11, 1), random_ids(2, 6, 2), 0.0
    for mask in (torch.ones(2, 11, dtype=torch.bool), padding("right")):
        expected, got = their_output(theirs, ids, mask, target), our_output(ours, ids, mask, target)
        counted = torch.ones(2, 6, dtype=torch.bool) if isinstance(ours.model, EncoderDecoder) else mask
        worst = max(worst, (expected - got)[counted].abs().max().item())
    return worst
