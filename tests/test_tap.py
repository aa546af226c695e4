"""Looking inside changes nothing, edits change what they say, and the vocabulary of taps is what the models fire."""

import platform
import subprocess
import sys
import threading

import pytest
import torch
from tests.nearness import assert_near
from torch import Tensor

from cutaway.config import ModelConfig, parse
from cutaway.models.build import PRESETS, Model, build
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.tap import TAPS, Trace, tap, tapped

SMALL = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 40, "dropout": 0.0}
FAMILIES = {
    "post-norm, sinusoids": {**PRESETS["marian-tiny"], **SMALL},
    "pre-norm, sinusoids": {**PRESETS["m2m100-tiny"], **SMALL, "embed_scale": 24**0.5},
    "T5": {**PRESETS["m2m100-tiny"], **SMALL, "position": "relative", "position_offset": 0, "attn_scale": 1.0,
           "norm": "rmsnorm", "gated": True, "attn_bias": False, "mlp_bias": False},
    "Llama, grouped": {**PRESETS["llama-tiny"], **SMALL, "n_kv_heads": 2, "tied": False},
    "Qwen3, grouped": {**PRESETS["llama-tiny"], **SMALL, "n_kv_heads": 2, "d_head": 8, "qk_norm": True},
    "GPT-2": {**PRESETS["gpt2-small"], **SMALL},
    "ALiBi": {**PRESETS["gpt2-small"], **SMALL, "position": "alibi", "n_heads": 6, "n_kv_heads": 3},
    "no positions": {**PRESETS["gpt2-small"], **SMALL, "position": "none"},
    "Gemma 2": {**PRESETS["llama-tiny"], **SMALL, "norm": "rmsnorm1p", "norm_order": "sandwich", "window": 4,
                "window_layers": [0], "attn_softcap": 2.0, "logit_softcap": 3.0},
    "Mixtral": {**PRESETS["llama-tiny"], **SMALL, "n_experts": 5, "n_experts_per_token": 3, "dense_layers": [1]},
    "BERT": {**PRESETS["bert-tiny"], **SMALL},
}  # fmt: skip


SUMMED = 3 * 40  # two layers and the output, none wider than 40
PADDED = ["post-norm, sinusoids", "pre-norm, sinusoids", "T5", "BERT"]  # what takes padding in a forward pass


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Model:
    torch.manual_seed(0)
    model = build(parse(ModelConfig, FAMILIES[request.param], request.param)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def inputs(model: Model) -> dict[str, Tensor]:
    ids = torch.randint(0, 61, (2, 9), generator=torch.Generator().manual_seed(1))
    return (
        {"source": ids, "target": ids[:, :7].flip(1)} if isinstance(model, EncoderDecoder) else {"ids": ids}
    )


def sizes(model: Model) -> dict[str, set[int]]:
    """What each letter of the table may be for these inputs."""
    c = model.config
    both = {9, 7} if isinstance(model, EncoderDecoder) else {9}
    assigned = set(range(1, 19)) if c.n_experts else set()  # tokens that one expert was given, as one row
    return {
        "B": {2, 1} if c.n_experts else {2}, "T": both | assigned, "X": {c.n_experts},
        "A": {c.n_experts_per_token}, "S": both, "D": {c.d_model}, "H": {c.n_heads}, "K": {c.kv_heads},
        "E": {c.head_width}, "F": {c.d_ff}, "V": {c.vocab_size},
    }  # fmt: skip


@pytest.mark.parametrize("model", PADDED, indirect=True)
@torch.no_grad()
def test_what_is_seen_of_a_padded_row_is_what_is_seen_of_it_alone(model: Model) -> None:
    """Captured layers, not logits alone: a row's padding must not leak into anything that is recorded of its tokens."""
    whole = inputs(model)
    name, length = ("source" if isinstance(model, EncoderDecoder) else "ids"), 5
    mask = torch.ones_like(whole[name], dtype=torch.bool)
    mask[1, length:] = False
    alone = {key: value[1:, :length] if key == name else value[1:] for key, value in whole.items()}
    with Trace(model, watch=["*"]) as padded:
        model(*whole.values(), mask)
    with Trace(model, watch=["*"]) as single:
        model(*alone.values())
    assert padded.calls.keys() == single.calls.keys()
    for full, (expected,) in single.calls.items():
        if not TAPS[full.rpartition(".")[2]][0].startswith("B"):
            continue
        (value,) = padded.calls[full]
        row = value[-1][tuple(slice(size) for size in expected.shape[1:])]
        assert_near(row, expected[0], SUMMED, name=full)


@torch.no_grad()
def test_every_tap_is_in_the_table_with_its_dimensions(model: Model) -> None:
    with Trace(model, watch=["*"]) as trace:
        model(**inputs(model))
    letters = sizes(model)
    for full, values in trace.calls.items():
        name = full.rpartition(".")[2]
        assert name in TAPS, f"{full} is not in the vocabulary"
        dimensions = TAPS[name][0].split()
        for value in values:
            assert value.ndim == len(dimensions), full
            for size, letter in zip(value.shape, dimensions, strict=True):
                # positions may be the same for every row
                assert size in letters[letter] or (name == "position" and size == 1), (full, letter)


@torch.no_grad()
def test_every_entry_of_the_table_fires_somewhere() -> None:
    fired: set[str] = set()
    for values in FAMILIES.values():
        model = build(parse(ModelConfig, values, "config")).eval()
        with Trace(model, watch=["*"]) as trace:
            model(**inputs(model))
        fired |= {full.rpartition(".")[2] for full in trace.calls}
    assert fired == set(TAPS)


@torch.no_grad()
def test_explicit_attention_equals_the_fused_kernel(model: Model) -> None:
    plain = model(**inputs(model))
    with Trace(model, watch=["*.pattern"]) as trace:
        looked = model(**inputs(model))
    assert_near(looked, plain, SUMMED)
    for full, (pattern,) in trace.calls.items():
        assert_near(pattern.sum(-1), torch.ones_like(pattern.sum(-1)), 2 * pattern.shape[-1])
        if "decoder" in full and "self_attn" in full:
            assert pattern.triu(1).abs().max() == 0, "a token sees a later one"


@torch.no_grad()
def test_traced_equals_untraced_to_the_bit_on_the_same_path(model: Model) -> None:
    plain = model(**inputs(model))
    with Trace(model, watch=["*.resid_post", "*.z", "*.out", "*embed*", "*.logits"]):
        looked = model(**inputs(model))
    assert torch.equal(plain, looked)
    with Trace(model, edit={"*.resid_post": lambda x: x}):
        unchanged = model(**inputs(model))
    assert torch.equal(plain, unchanged)


@torch.no_grad()
def test_an_edited_head_changes_the_output_and_leaves_no_residue(model: Model) -> None:
    plain = model(**inputs(model))

    def off(z: Tensor) -> Tensor:
        z = z.clone()
        z[:, 1] = 0
        return z

    with Trace(model, edit={"*.layers.1.self_attn.z": off}):
        changed = model(**inputs(model))
    assert (changed - plain).abs().max() > 1e-3
    assert torch.equal(model(**inputs(model)), plain)


@torch.no_grad()
def test_compiled_equals_eager_without_graph_breaks() -> None:
    model = build(parse(ModelConfig, FAMILIES["Llama, grouped"], "config")).eval()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_near(compiled(**inputs(model)), model(**inputs(model)), SUMMED)
    with Trace(model, watch=["*.pattern"]) as trace:
        model(**inputs(model))
    assert len(trace.calls) == 2


def test_a_pattern_that_matches_nothing_names_the_nearest() -> None:
    model = build(parse(ModelConfig, FAMILIES["GPT-2"], "config")).eval()
    with (
        pytest.raises(LookupError, match=r"decoder\.layers\.0\.self_attn\.patern.*self_attn\.(out|pattern)"),
        torch.no_grad(),
        Trace(model, watch=["decoder.layers.0.self_attn.patern"]),
    ):
        model(**inputs(model))


def test_a_name_recorded_not_once_is_an_error() -> None:
    model = build(parse(ModelConfig, FAMILIES["GPT-2"], "config")).eval()
    with torch.no_grad(), Trace(model, watch=["*.z"]) as trace:
        model(**inputs(model))
        model(**inputs(model))
    with pytest.raises(LookupError, match="recorded 2 times"):
        _ = trace["decoder.layers.0.self_attn.z"]
    with pytest.raises(LookupError, match="recorded 0 times"):
        _ = trace["decoder.layers.0.self_attn.zz"]


def test_a_trace_is_a_mapping_of_the_names_that_were_recorded() -> None:
    model = build(parse(ModelConfig, FAMILIES["GPT-2"], "config")).eval()
    with torch.no_grad(), Trace(model, watch=["*.z"]) as trace:
        model(**inputs(model))
    names = ["decoder.layers.0.self_attn.z", "decoder.layers.1.self_attn.z"]
    assert list(trace) == list(trace.keys()) == names
    assert len(trace) == 2
    assert names[0] in trace
    assert "decoder.layers.0.self_attn.q" not in trace
    assert 0 not in trace
    assert {name: value.shape for name, value in trace.items()} == dict.fromkeys(names, (2, 4, 9, 6))
    assert trace.get("nothing") is None
    assert trace not in (Trace(model), dict(trace))
    with pytest.raises(KeyError, match=r"^0 is no tap's name, expected a text such as 'decoder\.layers\.0"):
        getattr(trace, "__getitem__")(0)
    with pytest.raises(KeyError, match=r"^tap 'nothing' was recorded 0 times"):
        trace["nothing"]


def test_a_reducer_keeps_only_what_is_asked_for() -> None:
    model = build(parse(ModelConfig, FAMILIES["GPT-2"], "config")).eval()
    with torch.no_grad(), Trace(model, watch={"*.pattern": lambda p: p[:, 2, -1].half()}) as trace:
        model(**inputs(model))
    kept = trace["decoder.layers.1.self_attn.pattern"]
    assert kept.shape == (2, 9) and kept.dtype == torch.float16


def test_a_part_is_kept_without_its_whole() -> None:
    model = build(parse(ModelConfig, FAMILIES["GPT-2"], "config")).eval()
    watch = {"*.pattern": lambda x: x[:, 1], "*.z": lambda x: x, "*.q": lambda x: x.double()}
    with Trace(model, watch) as trace, Trace(model, ["*.pattern", "*.z"]) as whole:
        logits = model(**inputs(model))
    kept = trace["decoder.layers.0.self_attn.pattern"]
    assert torch.equal(kept, whole["decoder.layers.0.self_attn.pattern"][:, 1])
    assert kept.untyped_storage().nbytes() == kept.nbytes == 2 * 9 * 9 * 4
    name = "decoder.layers.0.self_attn.z"
    assert trace[name] is whole[name], "what is kept whole is not copied"
    logits.sum().backward()
    assert kept.requires_grad


def test_memory_that_a_trace_let_go_serves_the_next() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("page faults of repeated traces are counted for glibc's allocator alone")
    code = """
import resource, torch
from cutaway.models.build import build, preset
from cutaway.tap import Trace
model = build(preset("gpt2-small", {"vocab_size": 60, "d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024}))
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    before = faults()
    with torch.inference_mode(), Trace(model, ["*"]) as trace:
        model(torch.zeros(1, 256, dtype=torch.long))
    held = sum(x.nbytes for calls in trace.calls.values() for x in calls)
    del trace
    print(held, (faults() - before) * resource.getpagesize())
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    held, fetched = map(int, out.splitlines()[-1].split())
    assert held > 30e6 and fetched < held / 10


def test_another_thread_is_not_seen_and_may_not_leave() -> None:
    model = build(parse(ModelConfig, FAMILIES["GPT-2"], "config")).eval()
    assert isinstance(model, DecoderOnly)
    plain = model(**inputs(model))
    results: dict[str, Tensor | Exception] = {}
    trace = Trace(model, watch=["*.z"], edit={"*.layers.1.self_attn.z": torch.zeros_like})

    def elsewhere() -> None:
        results["logits"] = model(**inputs(model))
        try:
            trace.__exit__(None)
        except RuntimeError as error:
            results["error"] = error

    with trace:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        inside = model(**inputs(model))
    other = results["logits"]
    assert isinstance(other, Tensor) and torch.equal(other, plain)
    assert not torch.equal(inside, plain)
    assert "another thread" in str(results["error"])
    assert len(trace.calls["decoder.layers.0.self_attn.z"]) == 1


@torch.no_grad()
def test_an_inner_trace_sees_what_an_outer_one_changes_and_both_record() -> None:
    model = build(parse(ModelConfig, FAMILIES["GPT-2"], "config")).eval()
    with Trace(model, watch=["*.pattern"], edit={"*.layers.0.self_attn.z": torch.zeros_like}) as outer:
        with Trace(model, watch=["*.z"]) as inner:
            model(**inputs(model))
        with pytest.raises(RuntimeError, match="entered already"), outer:
            pass
    assert inner["decoder.layers.0.self_attn.z"].abs().max() == 0
    assert inner["decoder.layers.1.self_attn.z"].abs().max() > 0
    assert len(outer.calls) == 2
    with (
        pytest.raises(LookupError, match="different parts"),
        Trace(model, {"*.z": torch.clone, "*0*.z": torch.abs}),
    ):
        model(**inputs(model))


def test_gradients_reach_watched_values() -> None:
    model = build(parse(ModelConfig, FAMILIES["Llama, grouped"], "config")).eval()
    with Trace(model, watch=["*.pattern"]) as trace:
        logits = model(**inputs(model))
    for (value,) in trace.calls.values():
        value.retain_grad()
    logits[:, -1].max().backward()
    for (value,) in trace.calls.values():
        assert value.grad is not None and value.grad.abs().sum() > 0


def test_idle_a_tap_returns_its_argument() -> None:
    model = build(parse(ModelConfig, FAMILIES["GPT-2"], "config"))
    x = torch.ones(1)
    assert tap(model, "embed", x) is x
    assert not tapped(model, "embed")
