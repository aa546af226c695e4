"""Configs drawn across the whole space of each architecture, not only the shapes that tables of tests know: what
transformers makes of such a file is what is opened here, and a key that is dropped, varied or added gives equal numbers
or is refused by name, never other numbers in silence."""

import json
import logging
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.nearness import assert_near
from tests.parity.reference import Case, make, our_output, padding, their_output
from torch import Tensor

from cutaway.checkpoint import folder
from cutaway.checkpoint.published import ARCHITECTURES
from cutaway.config import ModelConfig
from cutaway.decode.generation import generate
from cutaway.decode.search import Limits, Search
from cutaway.errors import CutawayError
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder

Values = dict[str, Any]
Draw = random.Random
SUMMED = 8 * 64  # up to six layers and the output, none wider than 64
ACTIVATIONS = ("relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish", "gelu_python", "gelu_fast")
# What config.json files of these architectures have had beside what is written today.
FURTHER: Values = {
    "rope_theta": 700.0, "rope_scaling": {"type": "linear", "factor": 3.0}, "partial_rotary_factor": 0.5,
    "sliding_window_pattern": 3, "_sliding_window_pattern": 3, "rope_local_base_freq": 300.0, "head_dim": 6,
    "layer_types": None, "max_window_layers": 1, "use_sliding_window": True, "sliding_window": 3,
    "dense_act_fn": "silu", "is_gated_act": True, "is_decoder": True, "add_cross_attention": True,
    "position_embedding_type": "relative_key", "use_bidirectional_attention": True, "hidden_activation": "relu",
    "num_local_experts": 2, "scale_decoder_outputs": False, "attention_bias": True, "mlp_bias": True,
    "attn_logit_softcapping": 1.0, "final_logit_softcapping": 1.0, "query_pre_attn_scalar": 5, "scale_embedding": True,
    "normalize_before": True, "embedding_size": 16, "n_inner": 20, "n_ctx": 32, "tie_encoder_decoder": True,
    "tie_word_embeddings": False, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 40,
    "hidden_act": "quick_gelu", "activation_function": "tanh", "activation": "mish", "chunk_size_feed_forward": 2,
    "pruned_heads": {"0": [0]}, "attention_dropout": 0.5, "classifier_dropout": 0.5, "num_labels": 5,
    "quantization_config": {"quant_method": "gptq", "bits": 4}, "layer_norm_epsilon": 0.1, "layer_norm_eps": 0.1,
    "rms_norm_eps": 0.1, "norm_epsilon": 0.1, "attention_multiplier": 3.0, "logit_scale": 3.0, "logits_scaling": 3.0,
    "embedding_multiplier": 3.0, "residual_multiplier": 3.0, "clip_qkv": 0.1, "qk_layernorm": True,
}  # fmt: skip
# What says nothing of numbers: names, and the type of the weights, which every reader chooses itself.
NAMES = ("architectures", "model_type", "transformers_version", "dtype", "torch_dtype")


def sizes(draw: Draw) -> tuple[int, int, int, int]:
    """Vocabulary, width, feed-forward width, layers."""
    return draw.choice([53, 80, 97]), draw.choice([24, 36, 48]), draw.choice([20, 44, 60]), draw.randint(1, 4)


def heads(draw: Draw, width: int) -> int:
    return draw.choice([n for n in (1, 2, 3, 4, 6) if width % (2 * n) == 0])


def ids(draw: Draw) -> Values:
    pad, bos, eos = draw.sample(range(3), 3)
    return {"pad_token_id": pad, "bos_token_id": bos, "eos_token_id": draw.choice([eos, [eos, 7]])}


def seq2seq(draw: Draw) -> Values:
    vocabulary, width, _, _ = sizes(draw)
    values: Values = {
        "vocab_size": vocabulary, "d_model": width, "encoder_layers": draw.randint(1, 3),
        "decoder_layers": draw.randint(1, 3), "encoder_attention_heads": heads(draw, width),
        "decoder_attention_heads": heads(draw, width), "encoder_ffn_dim": draw.choice([20, 44, 60]),
        "decoder_ffn_dim": draw.choice([20, 44, 60]), "max_position_embeddings": draw.choice([24, 40]),
        "activation_function": draw.choice(ACTIVATIONS), "scale_embedding": draw.random() < 0.5,
        "tie_word_embeddings": draw.random() < 0.6, "forced_eos_token_id": None, **ids(draw),
    }  # fmt: skip
    others = [id for id in (0, 1, 2) if id != values["pad_token_id"]]
    return {**values, "decoder_start_token_id": draw.choice(others)}


def marian(draw: Draw) -> Values:
    shared = draw.random() < 0.5
    target = None if shared else draw.choice([None, 53, 80])
    return {
        **seq2seq(draw), "share_encoder_decoder_embeddings": shared, "decoder_vocab_size": target,
        "decoder_start_token_id": draw.randint(0, 2),
    }  # fmt: skip


def t5(draw: Draw) -> Values:
    vocabulary, width, inner, layers = sizes(draw)
    gated = "gated-" if draw.random() < 0.5 else ""
    # the reference's own cache has no room for a decoder deeper than the encoder
    decoder = draw.choice([None, draw.randint(1, layers)])
    return {
        "vocab_size": vocabulary, "d_model": width, "d_kv": draw.choice([4, 6, 12]), "d_ff": inner,
        "num_layers": layers, "num_decoder_layers": decoder, "num_heads": draw.choice([1, 2, 4]),
        "relative_attention_num_buckets": draw.choice([8, 12, 32]),
        "relative_attention_max_distance": draw.choice([20, 128]),
        "layer_norm_epsilon": draw.choice([1e-6, 1e-3]), "feed_forward_proj": gated + draw.choice(ACTIVATIONS),
        "tie_word_embeddings": draw.random() < 0.5, **ids(draw), "decoder_start_token_id": draw.randint(0, 2),
    }  # fmt: skip


def rope(draw: Draw) -> Values | None:
    kind = draw.choice(["none", "default", "linear", "llama3", "yarn", "dynamic"])
    base = draw.choice([100.0, 1e4])
    length = {"original_max_position_embeddings": draw.choice([8, 16])}
    return {
        "none": None,
        "default": {"rope_type": "default", "rope_theta": base},
        "linear": {"rope_type": "linear", "rope_theta": base, "factor": 2.5},
        "dynamic": {"rope_type": "dynamic", "rope_theta": base, "factor": 2.0},
        "llama3": {"rope_type": "llama3", "rope_theta": base, "factor": 4.0, "low_freq_factor": 1.0,
                   "high_freq_factor": draw.choice([2.0, 4.0]), **length},
        "yarn": {"rope_type": "yarn", "rope_theta": base, "factor": 4.0, **length,
                 **draw.choice([{}, {"attention_factor": 0.8}, {"beta_fast": 8.0, "beta_slow": 2.0}])},
    }[kind]  # fmt: skip


def causal(draw: Draw, act: str = "hidden_act") -> Values:
    vocabulary, width, inner, layers = sizes(draw)
    groups, sharing = draw.choice([1, 2, 3]), draw.choice([1, 2])
    while width % (groups * sharing * 2):
        groups, sharing = draw.choice([1, 2, 3]), draw.choice([1, 2])
    return {
        "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": groups * sharing, "num_key_value_heads": groups,
        "max_position_embeddings": draw.choice([24, 40]), "rms_norm_eps": draw.choice([1e-6, 1e-3]),
        "tie_word_embeddings": draw.random() < 0.5, "rope_parameters": rope(draw), act: draw.choice(ACTIVATIONS),
        **ids(draw),
    }  # fmt: skip


def llama(draw: Draw) -> Values:
    values = causal(draw)
    return {
        **values, "head_dim": draw.choice([None, 4, 10]), "attention_bias": draw.random() < 0.5,
        "mlp_bias": draw.random() < 0.5,
    }  # fmt: skip


def mistral(draw: Draw) -> Values:
    return {
        **causal(draw),
        "head_dim": draw.choice([None, 8]),
        "sliding_window": draw.choice([None, 2, 4, 30]),
    }


def mixtral(draw: Draw) -> Values:
    experts = draw.randint(2, 5)
    # without a head_dim the reference's YaRN fails there
    return {
        **mistral(draw),
        "head_dim": draw.choice([4, 8]),
        "num_local_experts": experts,
        "num_experts_per_tok": draw.randint(1, experts),
    }


def kinds(draw: Draw, values: Values) -> list[str]:
    return [draw.choice(["sliding_attention", "full_attention"]) for _ in range(values["num_hidden_layers"])]


def qwen2(draw: Draw) -> Values:
    values = causal(draw)
    windowed: Values = {
        "use_sliding_window": draw.random() < 0.7, "sliding_window": draw.choice([2, 5]),
        "max_window_layers": draw.randint(0, 3),
    }  # fmt: skip
    if windowed["use_sliding_window"] and draw.random() < 0.5:
        windowed["layer_types"] = kinds(draw, values)
    return {**values, **windowed}


def qwen3(draw: Draw) -> Values:
    return {**qwen2(draw), "head_dim": draw.choice([4, 12]), "attention_bias": draw.random() < 0.5}


def qwen3_moe(draw: Draw) -> Values:
    values, experts = causal(draw), draw.randint(2, 5)
    dense = [i for i in range(values["num_hidden_layers"]) if draw.random() < 0.3]
    return {
        **values, "head_dim": draw.choice([4, 12]), "attention_bias": draw.random() < 0.5,
        "use_sliding_window": draw.random() < 0.5, "sliding_window": draw.choice([2, 5]),
        "num_experts": experts, "num_experts_per_tok": draw.randint(1, experts), "moe_intermediate_size": 16,
        "norm_topk_prob": draw.random() < 0.5, "mlp_only_layers": dense,
        "decoder_sparse_step": 1 if len(dense) < values["num_hidden_layers"] else 2,
    }  # fmt: skip


def gemma(draw: Draw) -> Values:
    return {**causal(draw), "head_dim": draw.choice([4, 12]), "attention_bias": draw.random() < 0.5}


def gemma2(draw: Draw) -> Values:
    values = {**causal(draw, "hidden_activation"), "head_dim": draw.choice([4, 12])}
    return {
        **values, "attention_bias": draw.random() < 0.5, "query_pre_attn_scalar": draw.choice([7, 24]),
        "sliding_window": draw.choice([3, 6]), "layer_types": draw.choice([None, kinds(draw, values)]),
        "attn_logit_softcapping": draw.choice([None, 2.0, 50.0]),
        "final_logit_softcapping": draw.choice([None, 3.0, 30.0]),
    }  # fmt: skip


def gemma3(draw: Draw) -> Values:
    local = {"rope_type": "default", "rope_theta": draw.choice([50.0, 1e4])}
    full = rope(draw) or {"rope_type": "default", "rope_theta": 1e6}
    both = {"full_attention": full, "sliding_attention": local}
    return {**gemma2(draw), "rope_parameters": draw.choice([None, both])}


def gpt2(draw: Draw) -> Values:
    vocabulary, width, inner, layers = sizes(draw)
    return {
        "vocab_size": vocabulary, "n_embd": width, "n_layer": layers, "n_head": heads(draw, width),
        "n_positions": draw.choice([24, 40]), "n_inner": draw.choice([None, inner]),
        "activation_function": draw.choice(ACTIVATIONS), "layer_norm_epsilon": draw.choice([1e-5, 1e-3]),
        "scale_attn_weights": draw.random() < 0.7, "tie_word_embeddings": draw.random() < 0.5, **ids(draw),
    }  # fmt: skip


def masked(draw: Draw) -> Values:
    vocabulary, width, inner, layers = sizes(draw)
    return {
        "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads(draw, width), "max_position_embeddings": draw.choice([24, 40]),
        "type_vocab_size": draw.choice([1, 2, 3]), "hidden_act": draw.choice(ACTIVATIONS),
        "layer_norm_eps": draw.choice([1e-12, 1e-3]), "tie_word_embeddings": draw.random() < 0.5, **ids(draw),
    }  # fmt: skip


def distilbert(draw: Draw) -> Values:
    vocabulary, width, inner, layers = sizes(draw)
    return {
        "vocab_size": vocabulary, "dim": width, "hidden_dim": inner, "n_layers": layers,
        "n_heads": heads(draw, width), "max_position_embeddings": draw.choice([24, 40]),
        "activation": draw.choice(["relu", "gelu"]), "sinusoidal_pos_embds": draw.random() < 0.5,
        "tie_word_embeddings": draw.random() < 0.5, **ids(draw),
    }  # fmt: skip


def phi3(draw: Draw) -> Values:
    values = causal(draw)
    if values["rope_parameters"]:
        values["rope_parameters"] = {
            "rope_type": "default",
            "rope_theta": values["rope_parameters"]["rope_theta"],
        }
    return {**values, "sliding_window": draw.choice([None, 2, 4])}


def mpnet(draw: Draw) -> Values:
    values = masked(draw)
    del values["type_vocab_size"]
    return {**values, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


SPACES: dict[str, Callable[[Draw], Values]] = {
    "marian": marian, "m2m_100": seq2seq, "bart": seq2seq, "mbart": seq2seq, "t5": t5, "llama": llama,
    "gpt2": gpt2, "mistral": mistral, "qwen2": qwen2, "qwen3": qwen3, "gemma2": gemma2, "gemma3_text": gemma3,
    "mixtral": mixtral, "qwen3_moe": qwen3_moe, "bert": masked, "roberta": masked, "distilbert": distilbert,
    "mt5": t5, "gemma": gemma, "phi3": phi3, "xlm-roberta": masked, "mpnet": mpnet,
}  # fmt: skip


def drawn(kind: str, seed: int) -> Case:
    """A config of an architecture, its head or, now and then for those that have one, its base class."""
    draw = random.Random(f"{kind} {seed}")
    values = SPACES[kind](draw)
    config = transformers.AutoConfig.for_model(kind, **values)
    named = next(each for each in ARCHITECTURES if each.model_type == kind)
    base = named.base_class if draw.random() < 0.15 else None
    return Case(kind, getattr(transformers, base or named.class_name), config)


def random_ids(size: int, rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(3, size, (rows, length), generator=torch.Generator().manual_seed(seed))


Output = Callable[[Tensor, Tensor, Tensor], Tensor]  # of source, mask and target


def outputs(config: ModelConfig, output: Output) -> list[Tensor]:
    """Two rows' outputs, alone and padded on the right, without those at padding."""
    mask, found = padding("right"), []
    source = random_ids(config.encoder_side.vocab_size, 2, 11, 1)
    # RoBERTa's code takes the id for padding wherever it stands
    source = source.masked_fill(source == (config.pad_id or 0), 4 if config.pad_id != 4 else 5)
    target = random_ids(config.vocab_size, 2, 6, 2)
    for each in (torch.ones_like(mask), mask):
        counted = torch.ones(2, 6, dtype=torch.bool) if config.family == "encoder-decoder" else each
        found.append(output(source.masked_fill(~each, 0), each, target)[counted])
    return found


def compared(ours: folder.Loaded, expected: list[Tensor]) -> None:
    for got, right in zip(outputs(ours.config, partial(our_output, ours)), expected, strict=True):
        assert_near(got, right, SUMMED)


def stepped(theirs: Any, ours: folder.Loaded) -> None:
    """Logits step by step, and greedy search's ids."""
    model, config = ours.model, ours.config
    if config.head == "none" or not isinstance(model, EncoderDecoder | DecoderOnly):
        return
    source = random_ids(config.encoder_side.vocab_size, 2, 11, 3)
    target, whole = random_ids(config.vocab_size, 2, 6, 4), torch.ones(2, 11, dtype=torch.bool)
    # which the reference gives no position where M2M100 has written it
    pad = config.pad_id or 0
    inputs: dict[str, Tensor] = {"input_ids": source, "attention_mask": torch.ones_like(source)}
    with torch.inference_mode():
        expected = their_output(theirs, source, whole, target)
        decoding = isinstance(model, EncoderDecoder)
        cache, fed = (model.begin(source), target) if decoding else (model.begin(2), source)
        for t in range(fed.shape[1]):
            assert_near(model.step(fed[:, t : t + 1], cache), expected[:, t], SUMMED)
        prompts = [[config.decoder_start_id or 0]] * 2 if decoding else source.tolist()
        cache = model.begin(source) if decoding else model.begin(2)
        found = generate(
            model,
            cache,
            prompts,
            search=Search(),
            limits=Limits(max_new_tokens=8),
            eos_id=config.eos_id,
            forbidden=[pad],
        )
        new = theirs.generate(
            **inputs, max_new_tokens=8, do_sample=False, num_beams=1, pad_token_id=pad, suppress_tokens=[pad],
            eos_token_id=config.eos_id, forced_eos_token_id=None,
        )  # fmt: skip
    for row, [result] in enumerate(found):
        written = new[row, len(prompts[row]) :].tolist()
        written = written[: written.index(config.eos_id)] if config.eos_id in written else written
        assert [id for id in result.ids if id != config.eos_id] == written


def check(kind: str, seed: int, where: Path) -> None:
    case = drawn(kind, seed)
    theirs = make(case)
    theirs.save_pretrained(where)
    ours = folder.load(where)
    compared(ours, outputs(ours.config, partial(their_output, theirs)))
    stepped(theirs, ours)


def test_every_architecture_is_drawn() -> None:
    assert {each.model_type for each in ARCHITECTURES} == set(SPACES)


@pytest.mark.parametrize("kind", SPACES)
def test_a_drawn_config_gives_the_references_numbers(kind: str, tmp_path: Path) -> None:
    check(kind, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPACES)
def test_many_drawn_configs_give_the_references_numbers(kind: str, tmp_path: Path) -> None:
    for seed in range(1, 1 + -(-200 // len(SPACES))):
        try:
            check(kind, seed, tmp_path / str(seed))
        except Exception as error:
            error.add_note(f"{kind} {seed}: {(tmp_path / str(seed) / 'config.json').read_text()}")
            raise


# One key at a time.


def other(value: object) -> Iterator[object]:
    """Other values that a key may have."""
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, None)
        case float():
            yield value * 1.5 + 0.1
        case str():
            yield from (name for name in ("relu", "gelu", "quick_gelu") if name != value)
        case None:
            yield from (True, 3)
        case list():
            yield from (value[::-1], value[:-1], None)
        case dict():
            for name, inner in value.items():
                yield {key: each for key, each in value.items() if key != name}
                yield from ({**value, name: each} for each in other(inner))


def changed(values: Values) -> Iterator[tuple[str, Values]]:
    """The config with each key dropped, varied and, of those that it lacks, added, and what was done."""
    for key, value in values.items():
        if key not in NAMES:
            yield f"without {key}", {name: each for name, each in values.items() if name != key}
            for each in other(value):
                yield f"{key} = {each!r}", {**values, key: each}
    for key, value in FURTHER.items():
        if key not in values:
            yield f"added {key} = {value!r}", {**values, key: value}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPACES)
def test_a_changed_key_gives_equal_numbers_or_is_refused(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = drawn(kind, 100)
    make(case).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    wrong, opened = [], 0
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    for change, config in changed(values):
        file.write_text(json.dumps(config))
        try:
            ours = folder.load(tmp_path)
        except CutawayError:
            continue
        # a config that the reference refuses, or opens without some of the weights
        try:
            both: Any = case.model.from_pretrained(
                tmp_path, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
            )
            theirs, told = both
            expected = outputs(ours.config, partial(their_output, theirs.eval()))
        except Exception:
            continue
        if told["missing_keys"] - {"pooler.dense.weight", "pooler.dense.bias"} or told["mismatched_keys"]:
            continue
        opened += 1
        try:
            compared(ours, expected)
        except AssertionError:
            wrong.append(change)
    assert not wrong, "\n".join(wrong)
    # most keys say nothing of the numbers
    assert opened > len(values) // 2
