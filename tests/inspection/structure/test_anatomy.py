"""What is said of a model is what the model is: counted, run and measured here another way."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cutaway import Tokenizer, save
from cutaway.checkpoint.folder import open_contents
from cutaway.config import ModelConfig, parse, to_dict
from cutaway.inspection.questions.anatomy import anatomy
from cutaway.inspection.structure.operations import operations
from cutaway.inspection.structure.parts import parts
from cutaway.inspection.wiring import tap_names
from cutaway.models.build import PRESETS, Model, build
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.block import Block
from cutaway.tap import Trace

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


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    torch.manual_seed(0)
    return build(config(request.param)).eval()


def ids(n_tokens: int, rows: int = 1) -> Tensor:
    return torch.randint(0, 61, (rows, n_tokens), generator=torch.Generator().manual_seed(1))


def run(model: Model, tokens: Tensor) -> None:
    if isinstance(model, EncoderDecoder):
        model(tokens, tokens)
    elif model.config.head == "none":
        model.hidden(tokens)
    else:
        model(tokens)


def flops(model: Model, work: Callable[[], object]) -> int:
    """What torch counts while `work` runs with explicit attention, whose products it knows on every device."""
    with Trace(model, watch=["*.pattern"]), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


# Parameters.


def test_every_parameter_is_counted_once(model: Model) -> None:
    total = sum(parameter.numel() for parameter in model.parameters())
    found = anatomy(model.config)
    assert found.parameters == sum(part.parameters for part in parts(model)) == total
    assert found.memory == {"fp32": 4 * total, "fp16": 2 * total, "bf16": 2 * total, "int8": total}
    for part in found.parts:
        if part.per_layer is not None:
            assert part.parameters == part.per_layer * (part.layers or 0)


def test_parts_are_the_modules_they_are_called_after(model: Model) -> None:
    """Each part against the modules themselves, norms inside of attention apart."""
    sizes = {(part.place, part.name): part.parameters for part in parts(model)}
    for place in ("encoder", "decoder"):
        for name, owner in (("self-attention", "self_attn"), ("cross-attention", "cross_attn")):
            expected = sum(
                parameter.numel()
                for full, parameter in model.named_parameters()
                if full.startswith(f"{place}.layers.") and f".{owner}." in full and "_norm." not in full
            )
            assert sizes.get((place, name), 0) == expected
        norms = sum(
            parameter.numel()
            for full, parameter in model.named_parameters()
            if full.startswith(f"{place}.") and full.split(".")[-2].endswith("norm")
        )
        assert sizes.get((place, "norms"), 0) + sizes.get((place, "final norm"), 0) == norms
        work = ("feed-forward", "router", "experts")
        networks = sum(
            parameter.numel() for full, parameter in model.named_parameters()
            if full.startswith(f"{place}.") and ".mlp." in full
        )  # fmt: skip
        assert sum(sizes.get((place, name), 0) for name in work) == networks


def test_tied_matrices_are_named() -> None:
    assert anatomy(config("pre-norm, sinusoids")).tied == (
        ("source_embed.tokens.weight", "target_embed.tokens.weight", "head.unembed.weight"),
    )
    assert anatomy(config("Llama, grouped")).tied == ()


def test_only_the_chosen_experts_are_at_work_on_a_token() -> None:
    sparse = config("mixture of experts")
    found = anatomy(sparse)
    one = replace(sparse, n_experts=2)  # a model that has no more experts than a token is given
    router = 24 * 3 * 3  # the rows of the router for the three others, in three layers
    assert found.active_parameters == anatomy(one).parameters + router
    dense = anatomy(config("Llama, grouped"))
    assert dense.active_parameters == dense.parameters
    mixed = {part.name: part.layers for part in anatomy(config("experts but in one layer")).parts}
    assert (mixed["experts"], mixed["feed-forward"], mixed["self-attention"]) == (2, 1, 3)


# Taps.


@torch.no_grad()
def test_taps_are_those_that_a_trace_meets(model: Model) -> None:
    with Trace(model, watch=["*"]) as trace:
        run(model, ids(32, rows=8))  # enough tokens for every expert to be given one
    names = tap_names(model)
    assert len(names) == len(set(names))
    assert set(names) == set(trace.calls)
    assert anatomy(model.config).taps == names


# Operations.


@torch.no_grad()
@pytest.mark.parametrize("context", [1, 7, 32])
def test_operations_are_what_torch_counts(model: Model, context: int) -> None:
    counted = operations(model, context)
    per_token, per_source = counted.per_token, counted.per_source_token
    for each in (per_token, per_source):
        if each is not None:
            assert each.total == each.projections + each.attention + each.feed_forward + each.head
    if isinstance(model, EncoderDecoder):
        assert per_source is not None
        source = ids(context)
        assert (
            flops(model, lambda: model.encode(source)) + memory(model, context) == context * per_source.total
        )
        cache = model.begin(source)
        if context > 1:
            model.step(ids(context)[:, 1:], cache)
    elif isinstance(model, DecoderOnly):
        cache = model.begin(1)
        if context > 1:
            model.step(ids(context)[:, 1:], cache)
    else:
        assert flops(model, lambda: run(model, ids(context))) == context * per_token.total
        return
    assert flops(model, lambda: model.step(ids(1), cache)) == per_token.total


def memory(model: EncoderDecoder, n_tokens: int) -> int:
    """The keys and values of the memory, which `begin` makes after `encode`; no pattern is met there to force."""
    with FlopCounterMode(display=False) as counter:
        for layer in model.decoder.layers:
            assert isinstance(layer, Block)
            layer.cross_attn.keys_values(torch.zeros(1, n_tokens, model.config.d_model))
    return counter.get_total_flops()


def test_operations_by_hand() -> None:
    """GPT-2, N = 3, D = HE = 24, F = 40, V = 61 at T = 10, by the formula of the docstring."""
    (counted,) = anatomy(config("GPT-2"), contexts=[10]).operations
    assert counted.per_token.projections == 3 * 2 * 24 * 4 * 24
    assert counted.per_token.attention == 3 * 4 * 24 * 10
    assert counted.per_token.feed_forward == 3 * 2 * 2 * 24 * 40
    assert counted.per_token.head == 2 * 24 * 61
    assert (counted.context, counted.per_source_token) == (10, None)


# Cache, vocabulary, the whole.


@torch.no_grad()
def test_the_cache_holds_what_is_said(model: Model) -> None:
    said = anatomy(model.config).cache
    if isinstance(model, EncoderOnly):
        assert said is None
        return
    assert said is not None
    cache = model.begin(ids(9)) if isinstance(model, EncoderDecoder) else model.begin(1)
    model.step(ids(5), cache)
    own = sum(kept.keys.numel() + kept.values.numel() for kept in cache.self_attn)
    fixed = sum(kept.keys.numel() + kept.values.numel() for kept in cache.cross_attn or [])
    assert (said.per_token * 5, said.per_source_token * 9) == (own, fixed)
    assert said.bytes_per_token == {"fp32": 4 * own // 5, "fp16": 2 * own // 5, "bf16": 2 * own // 5}


def test_control_tokens_have_the_roles_of_tokenizer_and_config(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["ab ba"] * 4, "characters", None, min_count=1)
    eos = tokenizer.require("eos")
    sizes = {**MODELS["GPT-2"], "eos_id": eos, "decoder_start_id": eos}
    save(tmp_path, build(parse(ModelConfig, sizes, "test")), tokenizer)
    found = anatomy(parse(ModelConfig, sizes, "test"), contents=open_contents(tmp_path)).tokenizer
    assert found is not None
    assert found.size == tokenizer.vocab_size
    assert {control.id: control.piece for control in found.controls} == tokenizer.controls
    assert {control.id: control.roles for control in found.controls}[eos] == ("eos", "decoder_start")


def test_a_model_of_billions_is_described_in_seconds_and_without_its_weights() -> None:
    """Llama 3 70B; its published size is 70,553,706,496 parameters."""
    large = parse(
        ModelConfig,
        {**PRESETS["llama-tiny"], "vocab_size": 128256, "d_model": 8192, "n_layers": 80, "n_heads": 64,
         "n_kv_heads": 8, "d_ff": 28672, "rope_base": 5e5, "tied": False, "max_len": 8192},
        "test",
    )  # fmt: skip
    before = time.process_time()
    found = anatomy(large)
    assert time.process_time() - before < 10
    assert found.parameters == 70_553_706_496
    assert found.cache is not None
    assert found.cache.bytes_per_token["fp16"] == 80 * 2 * 8 * 128 * 2


def test_everything_is_plain_values(model: Model) -> None:
    values = to_dict(anatomy(model.config))
    assert values["family"] == model.config.family
    assert isinstance(values["taps"], list)
