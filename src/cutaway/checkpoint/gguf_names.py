"""How each architecture of GGUF is said in Hugging Face's words: keys of config.json, names of model.safetensors.

Sources: gguf-py's constants and tensor_mapping, and the converter of ggml-org/llama.cpp, which write these files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GgufArchitecture:
    """`keys` are of metadata, after "NAME.", with the config's; `tensors` are of tensors, without "blk.N." and
    ".weight", with theirs. A tensor whose name there has {expert} holds all experts, or one whose number follows.
    `marked_by` is a key that has to be set; the first architecture of a file's name that fits is taken."""

    name: str  # general.architecture
    model_type: str  # of config.json
    keys: Mapping[str, str]
    tensors: Mapping[str, str]
    constants: Mapping[str, object]
    marked_by: str | None = None
    interleaved: bool = False  # rows of q and k lie in pairs that rotate together, theirs in halves
    norm_offset: float = 0.0  # what the file's norm weights have more than theirs
    rotary: bool = True  # positions, with heads and widths that files leave out; else learned ones
    transposed: frozenset[str] = frozenset()  # tensors whose rows are their columns
    tokenizer: str | None = None  # the only kind that its texts are read by
    neutral: Mapping[str, tuple[object, ...]] = field(default_factory=dict)  # instead of NEUTRAL's
    # Config keys that follow from config keys.
    derive: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda _: {}


# Metadata that changes the result, with the values that leave it alone; others are refused where `keys` lacks them.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys((
        "attention.clamp_kqv", "attention.max_alibi_bias", "attention.scale", "attention.sliding_window",
        "attention.sliding_window_pattern", "attention.temperature_scale", "attn_logit_softcapping", "expert_count",
        "expert_shared_count", "final_logit_softcapping", "leading_dense_block_count", "nextn_predict_layers",
        "rope.scaling.yarn_log_multiplier",
    ), (0,)),
    **dict.fromkeys((
        "attention.output_scale", "embedding_scale", "expert_gating_func", "expert_weights_scale", "logit_scale",
        "residual_scale", "rope.scaling.attn_factor",
    ), (0, 1)),
    "attention.causal": (True,),
    "rope.scaling.yarn_attn_factor": (-1, 0, 1),
    "rope.scaling.yarn_ext_factor": (-1, 1),
    "use_parallel_residual": (False,),
}  # fmt: skip

KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
EXPERT_KEYS = {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}

LAYER = "model.layers.{layer}."
STEM = {
    "token_embd": "model.embed_tokens",
    "output": "lm_head",
    "output_norm": "model.norm",
    "attn_norm": LAYER + "input_layernorm",
    "attn_q": LAYER + "self_attn.q_proj",
    "attn_k": LAYER + "self_attn.k_proj",
    "attn_v": LAYER + "self_attn.v_proj",
    "attn_output": LAYER + "self_attn.o_proj",
}
ONE_MLP = {
    "ffn_gate": LAYER + "mlp.gate_proj",
    "ffn_up": LAYER + "mlp.up_proj",
    "ffn_down": LAYER + "mlp.down_proj",
}
DENSE = {**STEM, **ONE_MLP, "ffn_norm": LAYER + "post_attention_layernorm"}
QK_NORM = {"attn_q_norm": LAYER + "self_attn.q_norm", "attn_k_norm": LAYER + "self_attn.k_norm"}
GEMMA = {
    **DENSE,
    "post_attention_norm": LAYER + "post_attention_layernorm",
    "ffn_norm": LAYER + "pre_feedforward_layernorm",
    "post_ffw_norm": LAYER + "post_feedforward_layernorm",
}
MIXTRAL_EXPERT = LAYER + "block_sparse_moe.experts.{expert}."
MIXTRAL = {
    **STEM,
    "ffn_norm": LAYER + "post_attention_layernorm",
    "ffn_gate_inp": LAYER + "block_sparse_moe.gate",
    "ffn_gate": MIXTRAL_EXPERT + "w1",  # one expert a tensor, as files of 2023 have it
    "ffn_down": MIXTRAL_EXPERT + "w2",
    "ffn_up": MIXTRAL_EXPERT + "w3",
    "ffn_gate_exps": MIXTRAL_EXPERT + "w1",
    "ffn_down_exps": MIXTRAL_EXPERT + "w2",
    "ffn_up_exps": MIXTRAL_EXPERT + "w3",
}
QWEN3_MOE = {
    **STEM,
    **QK_NORM,
    "ffn_norm": LAYER + "post_attention_layernorm",
    "ffn_gate_inp": LAYER + "mlp.gate",
    "ffn_gate_exps": LAYER + "mlp.experts.{expert}.gate_proj",
    "ffn_up_exps": LAYER + "mlp.experts.{expert}.up_proj",
    "ffn_down_exps": LAYER + "mlp.experts.{expert}.down_proj",
}
GPT2_LAYER = "transformer.h.{layer}."
GPT2 = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "attn_norm": GPT2_LAYER + "ln_1",
    "attn_qkv": GPT2_LAYER + "attn.c_attn",
    "attn_output": GPT2_LAYER + "attn.c_proj",
    "ffn_norm": GPT2_LAYER + "ln_2",
    "ffn_up": GPT2_LAYER + "mlp.c_fc",
    "ffn_down": GPT2_LAYER + "mlp.c_proj",
}
BERT_LAYER = "encoder.layer.{layer}."
BERT = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "attn_q": BERT_LAYER + "attention.self.query",
    "attn_k": BERT_LAYER + "attention.self.key",
    "attn_v": BERT_LAYER + "attention.self.value",
    "attn_output": BERT_LAYER + "attention.output.dense",
    "attn_output_norm": BERT_LAYER + "attention.output.LayerNorm",
    "ffn_up": BERT_LAYER + "intermediate.dense",
    "ffn_down": BERT_LAYER + "output.dense",
    "layer_output_norm": BERT_LAYER + "output.LayerNorm",
}
SILU = {"hidden_act": "silu"}
GEMMA_ALL = {"hidden_activation": "gelu_pytorch_tanh", "sliding_window": None}


def _query_scalar(layers_of_27b: int) -> Callable[[Mapping[str, object]], Mapping[str, object]]:
    """Gemma's scores are divided by √query_pre_attn_scalar, which GGUF does not hold: llama.cpp knows the 27B model, by
    its number of layers, as the one where this is hidden_size / num_attention_heads, not head_dim."""

    def derive(config: Mapping[str, object]) -> Mapping[str, object]:
        width, heads = config["hidden_size"], config["num_attention_heads"]
        assert isinstance(width, int) and isinstance(heads, int)
        is_27b = config["num_hidden_layers"] == layers_of_27b
        return {"query_pre_attn_scalar": width // heads if is_27b else config["head_dim"]}

    return derive


ARCHITECTURES = (
    GgufArchitecture(
        "llama", "mixtral", KEYS | EXPERT_KEYS, MIXTRAL, SILU, marked_by="expert_count", interleaved=True
    ),
    GgufArchitecture(
        "llama", "mistral", KEYS | {"attention.sliding_window": "sliding_window"}, DENSE, SILU,
        marked_by="attention.sliding_window", interleaved=True,
    ),
    GgufArchitecture("llama", "llama", KEYS, DENSE, SILU, interleaved=True),
    GgufArchitecture("qwen2", "qwen2", KEYS, DENSE, {**SILU, "use_sliding_window": False}),
    GgufArchitecture("qwen3", "qwen3", KEYS, {**DENSE, **QK_NORM}, {**SILU, "use_sliding_window": False}),
    GgufArchitecture(
        "qwen3moe", "qwen3_moe",
        KEYS | {
            "expert_count": "num_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "moe_intermediate_size",
        },
        QWEN3_MOE,
        {
            **SILU, "use_sliding_window": False, "norm_topk_prob": True, "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
    ),
    GgufArchitecture(
        "gemma2", "gemma2",
        KEYS | {
            "attention.sliding_window": "sliding_window",
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        # without a key llama.cpp takes the published models' window
        GEMMA, {**GEMMA_ALL, "sliding_window": 4096}, norm_offset=1.0, derive=_query_scalar(layers_of_27b=46),
    ),
    GgufArchitecture(
        "gemma3", "gemma3_text",
        KEYS | {
            "attention.sliding_window": "sliding_window",
            "attention.sliding_window_pattern": "sliding_window_pattern",
            "final_logit_softcapping": "final_logit_softcapping",
            "rope.freq_base_swa": "rope_local_base_freq",
        },
        {**GEMMA, **QK_NORM},
        {**GEMMA_ALL, "sliding_window_pattern": 6, "rope_local_base_freq": 10_000.0},
        norm_offset=1.0, derive=_query_scalar(layers_of_27b=62),
    ),
    GgufArchitecture(
        "gpt2", "gpt2",
        {
            "context_length": "n_positions", "embedding_length": "n_embd", "block_count": "n_layer",
            "feed_forward_length": "n_inner", "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        GPT2, {"activation_function": "gelu_new"}, rotary=False,
        transposed=frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"}),
    ),
    # A BERT without its head: such files are made for vectors of sentences.
    GgufArchitecture(
        "bert", "bert",
        {
            "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
            "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
            "attention.head_count": "num_attention_heads", "attention.layer_norm_epsilon": "layer_norm_eps",
        },
        BERT, {"hidden_act": "gelu"}, rotary=False, tokenizer="bert", neutral={"attention.causal": (False,)},
    ),
)  # fmt: skip
