"""Patterns, measured scores, value norms and rollout against calculations from weights and by plain loops."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import torch
from tests.decode.conftest import TEXTS, tiny_model
from torch import Tensor, nn

from cutaway.checkpoint import folder
from cutaway.checkpoint.folder import Loaded
from cutaway.errors import CutawayError
from cutaway.inspection.attention.head_scores import Measures, head_scores
from cutaway.inspection.attention.patterns import Stage, patterns
from cutaway.inspection.attention.rollout import rollout
from cutaway.inspection.attention.value_weights import value_weights
from cutaway.inspection.runs import Run, Tokens, run
from cutaway.inspection.wiring import Side, sides
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.attention import Attention
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "marian": ("marian", {}),
    "T5": ("t5", {}),
    "GPT-2": ("gpt2", {}),
    "Llama, grouped": ("llama", {}),
    "Qwen3": ("llama", {"qk_norm": True, "d_head": 8}),
    "ALiBi": ("alibi", {}),
    "Gemma 2": ("llama", {"norm_order": "sandwich", "window": 4, "window_layers": [0], "attn_softcap": 2.0}),
    "Mixtral": ("llama", {"n_experts": 4}),
    "BERT": ("bert", {}),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    roles = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>", "bos": "<s>", "mask": "<mask>"}
    return Tokenizer.train(TEXTS * 3, "bpe", 360, alphabet=60, roles=roles)


@pytest.fixture(scope="module")
def runs(tokenizer: Tokenizer) -> Callable[[str], Run]:
    """A run of each kind with tokens that repeat, a control token and punctuation among them."""

    def make(name: str) -> Run:
        kind, changes = KINDS[name]
        model = tiny_model(kind, tokenizer.vocab_size, **changes)
        loaded = Loaded(model, model.config, tokenizer, {}, Path(f"tiny-{kind}"))
        text = tokenizer.encode("我爱你，我爱机器，我爱").ids
        source = tokens(loaded, [*text, tokenizer.require("eos")])
        written = tokens(loaded, [tokenizer.require("bos"), *tokenizer.encode("the book, the book!").ids])
        if isinstance(model, EncoderDecoder):
            return Run(loaded, source, written, written)
        return Run(loaded, source, None, source) if kind == "bert" else Run(loaded, None, source, source)

    return make


def tokens(loaded: Loaded, ids: list[int]) -> Tokens:
    return Tokens(ids, [loaded.require_tokenizer().readable(id) for id in ids])


def bundled(name: str, text: str) -> Run:
    return run(folder.load(find(name)), text)


def attention_inputs(asked: Run, module: Attention) -> tuple[Tensor, Tensor]:
    """What an attention module read, by a hook of torch: x (T, D) and what keys are made of (S, D), in float64."""
    seen: list[tuple[Tensor, Tensor]] = []

    def look(_: nn.Module, arguments: tuple[Tensor, ...], named: dict[str, Tensor | None]) -> None:
        x, memory = arguments[0], named.get("memory")
        seen.append((x[0].double(), (x if memory is None else memory)[0].double()))

    handle = module.register_forward_pre_hook(look, with_kwargs=True)
    with torch.no_grad():
        asked.model(**asked.inputs)
    handle.remove()
    return seen[0]


def projected(x: Tensor, layer: nn.Linear, head: int, width: int) -> Tensor:
    """x (T, D) through the rows of one head, in float64."""
    rows = slice(head * width, (head + 1) * width)
    found = x @ layer.weight[rows].double().T
    return found if layer.bias is None else found + layer.bias[rows].double()


@pytest.mark.parametrize(
    ("name", "side", "path"),
    [
        ("marian", "encoder", "encoder.layers.1.self_attn"),
        ("marian", "decoder", "decoder.layers.1.self_attn"),
        ("marian", "cross", "decoder.layers.1.cross_attn"),
        ("GPT-2", "decoder", "decoder.layers.1.self_attn"),
        ("BERT", "encoder", "encoder.layers.1.self_attn"),
    ],
)
@torch.no_grad()
def test_patterns_are_the_softmax_of_queries_and_keys(
    runs: Callable[[str], Run], name: str, side: Side, path: str
) -> None:
    asked = runs(name)
    module = asked.model.get_submodule(path)
    assert isinstance(module, Attention)
    x, memory = attention_inputs(asked, module)
    found = {stage: patterns(asked, side, [1], [3, 0], stage) for stage in get_args(Stage)}
    for head in (3, 0):
        q = projected(x, module.q_proj, head, module.d_head)
        k = projected(memory, module.k_proj, head, module.d_head)
        scores = q @ k.T
        masked = scores / math.sqrt(module.d_head)
        if side == "decoder":
            masked = masked.masked_fill(torch.ones_like(masked).triu(1).bool(), -math.inf)
        expected = {
            "scores": scores,
            "scaled": scores / math.sqrt(module.d_head),
            "masked": masked,
            "pattern": masked.softmax(dim=-1),
        }
        for stage, values in expected.items():
            shown = found[stage].of(1, head)
            torch.testing.assert_close(shown.double(), values, rtol=1e-4, atol=1e-5)
    assert found["pattern"].layers == (1,) and found["pattern"].heads == (3, 0)
    assert found["pattern"].values.shape == (1, 2, len(x), len(memory))
    assert (len(found["pattern"].queries), len(found["pattern"].keys)) == (len(x), len(memory))


@pytest.mark.parametrize("name", KINDS)
def test_every_side_has_rows_that_sum_to_one(runs: Callable[[str], Run], name: str) -> None:
    asked = runs(name)
    expected = {"encoder-decoder": 3, "decoder-only": 1, "encoder-only": 1}[asked.loaded.config.family]
    assert len(sides(asked.model)) == expected
    plain = asked.forward()[0]
    for side in sides(asked.model):
        found = patterns(asked, side)
        assert found.values.shape == (2, 4, len(found.queries), len(found.keys))
        sums = found.values.sum(dim=-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)
        assert bool(found.values.isfinite().all())
    torch.testing.assert_close(asked.forward()[0], plain, rtol=0, atol=0)


def measured(p: Tensor, visible: Tensor, asked: Run, side: Side) -> dict[str, float | None]:
    """The definitions of `Measures`, query by query and key by key. p, visible (T, S)."""
    tokenizer = asked.loaded.require_tokenizer()
    keys = asked.target if side == "decoder" else asked.source
    assert keys is not None
    ids, (n, m) = keys.ids, p.shape
    rows: list[list[float]] = p.double().tolist()
    special = [id in tokenizer.controls for id in ids]
    marks = [piece.strip("▁") in ("，", "。", ",", "!", ".", "！") for piece in keys.pieces]
    sums: dict[str, list[float]] = {name: [] for name in Measures.__dataclass_fields__}
    for t, row in enumerate(rows):
        entropy = -sum(value * math.log(value) for value in row if value > 0)
        sums["entropy"].append(entropy)
        if int(visible[t].sum()) >= 2:
            sums["entropy_share"].append(entropy / math.log(int(visible[t].sum())))
        sums["special"].append(sum(value for s, value in enumerate(row) if special[s]))
        sums["first"].append(row[0])
        sums["punctuation"].append(sum(value for s, value in enumerate(row) if marks[s]))
        if side == "cross":
            continue
        sums["distance"].append(sum(value * abs(t - s) for s, value in enumerate(row)))
        sums["same"].append(row[t])
        if t > 0:
            sums["previous"].append(row[t - 1])
        if t < n - 1:
            sums["next"].append(row[t + 1])
        after = [j + 1 for j in range(t - 1) if ids[j] == ids[t] and not special[j]]
        if after:
            sums["induction"].append(sum(row[s] for s in after))
    assert len(rows[0]) == m
    return {name: sum(values) / len(values) if values else None for name, values in sums.items()}


def check_scores(asked: Run, side: Side) -> None:
    found = head_scores(asked, side)
    shown, masks = patterns(asked, side), patterns(asked, side, heads=[0], stage="masked")
    for i, layer in enumerate(found.layers):
        visible = masks.values[i, 0] > -math.inf
        uniform = visible / visible.sum(dim=-1, keepdim=True)
        cases: list[tuple[Measures, tuple[int, ...], Tensor]] = [(found.uniform, (i,), uniform)]
        cases += [(found.scores, (i, j), shown.of(layer, head)) for j, head in enumerate(found.heads)]
        for measures, at, pattern in cases:
            for name, expected in measured(pattern, visible, asked, side).items():
                value = getattr(measures, name)
                if expected is None:
                    assert value is None, (side, name)
                else:
                    assert float(value[at]) == pytest.approx(expected, abs=1e-6), (side, layer, name)


@pytest.mark.parametrize("name", KINDS)
def test_scores_are_those_of_their_definitions(runs: Callable[[str], Run], name: str) -> None:
    asked = runs(name)
    for side in sides(asked.model):
        check_scores(asked, side)
        scores = head_scores(asked, side).scores
        assert (scores.induction is None) == (side == "cross")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (TRANSLATOR, "好久不见，好久不见。"),
        (POET, "床前明月光，床前明月光"),
        (MASKED, "He is [MASK], he is here."),
    ],
)
def test_scores_of_the_bundled_models(name: str, text: str) -> None:
    asked = bundled(name, text)
    for side in sides(asked.model):
        check_scores(asked, side)


def test_what_has_no_meaning_is_none(runs: Callable[[str], Run]) -> None:
    asked = runs("GPT-2")
    assert asked.target is not None
    once = tokens(asked.loaded, asked.target.ids[:1])
    scores = head_scores(Run(asked.loaded, None, once, once), "decoder").scores
    assert scores.entropy_share is scores.previous is scores.next is scores.induction is None
    assert scores.same is not None and scores.same.eq(1).all() and scores.entropy.abs().max() < 1e-6
    eos = asked.loaded.require_tokenizer().require("eos")
    plain = tokens(asked.loaded, [eos, *asked.target.ids[:2], eos])
    found = head_scores(Run(asked.loaded, None, plain, plain), "decoder", layers=[1], heads=[2])
    assert found.scores.induction is None and found.repeated == () and found.special_keys == (0, 3)
    assert found.scores.entropy.shape == (1, 1) and found.uniform.entropy.shape == (1,)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_value_norms_are_those_of_what_each_token_adds(runs: Callable[[str], Run], name: str) -> None:
    asked = runs(name)
    for side in sides(asked.model):
        path = f"{'encoder' if side == 'encoder' else 'decoder'}.layers.0.{'cross' if side == 'cross' else 'self'}_attn"
        module = asked.model.get_submodule(path)
        assert isinstance(module, Attention)
        _, memory = attention_inputs(asked, module)
        pattern = patterns(asked, side, [0]).values[0].double()
        found, values = (value_weights(asked, side, [0], through_output=out) for out in (True, False))
        total = torch.zeros(len(found.queries), asked.loaded.config.d_model, dtype=torch.float64)
        for head in range(4):
            v = projected(memory, module.v_proj, head // module.groups, module.d_head)
            alone = torch.zeros(len(memory), 4 * module.d_head, dtype=torch.float64)
            alone[:, head * module.d_head : (head + 1) * module.d_head] = v
            written = alone @ module.o_proj.weight.double().T  # (S, D)
            summands = pattern[head][..., None] * written  # (T, S, D)
            torch.testing.assert_close(
                found.weights[0, head].double(), summands.norm(dim=-1), rtol=1e-4, atol=1e-5
            )
            torch.testing.assert_close(values.norms[0, head].double(), v.norm(dim=-1), rtol=1e-4, atol=1e-5)
            total += summands.sum(dim=1)
        _, trace = asked.forward([f"{path}.out"])
        bias = 0 if module.o_proj.bias is None else module.o_proj.bias.double()
        torch.testing.assert_close(total + bias, trace[f"{path}.out"][0].double(), rtol=1e-4, atol=1e-4)


def paths(layers: list[list[list[float]]], residual: float, end: int, start: int) -> float:
    """The share of `start` in `end` after the last layer: the sum over all ways down, each step weighed."""
    if not layers:
        return float(end == start)
    *below, top = layers
    return sum(
        ((1 - residual) * weight + residual * (middle == end)) * paths(below, residual, middle, start)
        for middle, weight in enumerate(top[end])
    )


@pytest.mark.parametrize(("name", "side"), [("BERT", "encoder"), ("marian", "decoder"), ("ALiBi", "decoder")])
def test_rollout_is_the_sum_over_all_ways(runs: Callable[[str], Run], name: str, side: Side) -> None:
    asked = runs(name)
    found = rollout(asked, side, residual=0.3, heads=[0, 2])
    means = patterns(asked, side, heads=[0, 2]).values.double().mean(dim=1).tolist()
    n = len(found.tokens)
    for depth in (1, 2):
        expected = [[paths(means[:depth], 0.3, end, start) for start in range(n)] for end in range(n)]
        torch.testing.assert_close(
            found.weights[depth - 1].double(), torch.tensor(expected).double(), rtol=0, atol=1e-6
        )
    assert torch.equal(rollout(asked, side, residual=1).weights[-1], torch.eye(n))


def test_rollout_of_a_bundled_model() -> None:
    asked = bundled(MASKED, "She was [MASK] happy.")
    found = rollout(asked, "encoder")
    means = patterns(asked, "encoder").values.double().mean(dim=1)
    halves = [(layer + torch.eye(len(layer))) / 2 for layer in means]
    expected = torch.linalg.multi_dot(halves[::-1])
    torch.testing.assert_close(found.weights[-1].double(), expected, rtol=0, atol=1e-6)
    assert found.residual == 0.5 and len(found.weights) == 4


def test_what_is_not_there_is_named_with_the_nearest(runs: Callable[[str], Run]) -> None:
    gpt, marian = runs("GPT-2"), runs("marian")
    with pytest.raises(CutawayError, match=r"side is 'cross'.*a decoder-only model attends on decoder only"):
        patterns(gpt, "cross")
    with pytest.raises(CutawayError, match=r"layer 7 is not there: expected one of 0 to 1 \(nearest: 1\)"):
        head_scores(gpt, "decoder", layers=[7])
    with pytest.raises(CutawayError, match=r"head -9 is not there: expected one of 0 to 3 \(nearest: 0\)"):
        value_weights(gpt, "decoder", heads=[-9])
    assert (patterns(gpt, layers=[-1], heads=[-1]).layers, value_weights(gpt, heads=[-1]).heads) == (
        (1,),
        (3,),
    )
    assert (head_scores(marian).side, rollout(marian).side) == ("cross", "encoder")
    with pytest.raises(CutawayError, match="no head was asked for"):
        patterns(gpt, "decoder", heads=[])
    with pytest.raises(CutawayError, match="expected each once"):
        patterns(gpt, "decoder", heads=[1, 1])
    with pytest.raises(CutawayError, match="head 1 is not there: expected one of 2"):
        patterns(gpt, "decoder", heads=[2]).of(0, 1)
    with pytest.raises(CutawayError, match="leads from one stack to another"):
        rollout(marian, "cross")
    with pytest.raises(CutawayError, match=r"residual is 1\.5, expected a share from 0 to 1"):
        rollout(gpt, "decoder", residual=1.5)
