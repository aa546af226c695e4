"""Routing is recomputed from what the routers read, by loops and by the published implementation's own loss."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.command import LINES, Case, page_of, refused, result, saved, shown, shown_in_chinese
from tests.command import Run as Command
from torch import Tensor

from cutaway import CutawayError, Tokenizer, load
from cutaway.inspection.questions.experts import DETAILED, experts
from cutaway.inspection.runs import Run, run
from cutaway.page.blocks import Bar, Matrix, Table
from cutaway.page.numbers import share

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("mixture", "今天很好。", {"layer": 1}),
]


def router_scores(read: Run) -> dict[str, Tensor]:
    """(T, X) of every router by its name, by hooks of PyTorch."""
    seen: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out[0]))
        for name, module in read.model.named_modules()
        if name.endswith(".router")
    ]
    with torch.no_grad():
        read.model(**read.inputs)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize(
    ("structure", "changes"),
    [
        ("experts", {}),
        ("pair with experts", {"n_encoder_layers": 2}),
        ("experts", {"n_experts_per_token": 1}),
        ("experts", {"n_experts_per_token": 5}),
    ],
)
def test_every_number_is_what_a_loop_over_tokens_counts(
    run_of: Callable[..., Run], structure: str, changes: dict[str, object]
) -> None:
    read = run_of(structure, length=19, **changes)
    config, found, scores = read.model.config, experts(read), router_scores(read)
    most = config.n_experts_per_token
    assert (found.n_experts, found.n_per_token, found.renormalised) == (5, most, config.experts_renormalised)
    assert [f"{each.side}.layers.{each.layer}.mlp.router" for each in found.layers] == list(scores)
    for each, logits in zip(found.layers, scores.values(), strict=True):
        side = read.source if each.side == "encoder" else read.target
        assert each.tokens == side
        counts: Counter[int] = Counter()
        sums = [0.0] * 5
        for t, row in enumerate(logits.double().tolist()):
            total = sum(map(math.exp, row))
            probabilities = [math.exp(score) / total for score in row]
            order = sorted(range(5), key=lambda expert: -probabilities[expert])
            assert each.chosen[t].tolist() == order[:most]
            kept = sum(probabilities[e] for e in order[:most]) if config.experts_renormalised else 1.0
            assert each.weights[t].tolist() == pytest.approx(
                [probabilities[e] / kept for e in order[:most]], rel=1e-5
            )
            assert each.probabilities[t].tolist() == pytest.approx(probabilities, rel=1e-5)
            assert float(each.cut[t]) == pytest.approx(probabilities[order[most - 1]], rel=1e-5)
            rest = probabilities[order[most]] if most < 5 else 0.0
            assert float(each.runner_up[t]) == pytest.approx(rest, rel=1e-5)
            counts.update(order[:most])
            sums = [a + b for a, b in zip(sums, probabilities, strict=True)]
        n = len(each.tokens)
        shares = [counts[e] / (n * most) for e in range(5)]
        assert each.counts.tolist() == [counts[e] for e in range(5)]
        assert each.load.tolist() == pytest.approx(shares)
        assert each.mean_probability.tolist() == pytest.approx([s / n for s in sums], rel=1e-5)
        assert each.balance == pytest.approx(
            5 * sum(f * s / n for f, s in zip(shares, sums, strict=True)), rel=1e-5
        )
        entropy = -sum(f * math.log(f) for f in shares if f)
        assert each.entropy == pytest.approx(entropy, rel=1e-6)
        assert each.evenness == pytest.approx(entropy / math.log(5), rel=1e-6)


def test_the_balance_is_the_published_one(run_of: Callable[..., Run]) -> None:
    """Of one choice a token: Switch Transformers' own code. Of several: Mixtral's, which counts A times as much."""
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
    from transformers.models.switch_transformers.modeling_switch_transformers import (
        load_balancing_loss_func as switch,
    )

    read = run_of("experts", length=19, n_experts_per_token=1)
    for each in experts(read).layers:
        theirs = switch(each.probabilities[None], each.chosen[None, :, 0])
        assert each.balance == pytest.approx(float(theirs), rel=1e-5)
    read = run_of("experts", length=19)
    for each in experts(read).layers:
        theirs = load_balancing_loss_func((each.scores,), 5, 2)
        assert each.balance * 2 == pytest.approx(float(theirs), rel=1e-5)


def test_even_routing_has_balance_one_and_full_evenness(run_of: Callable[..., Run]) -> None:
    read = run_of("experts", n_experts_per_token=5)
    for each in experts(read).layers:
        assert each.balance == pytest.approx(1.0, rel=1e-5)
        assert each.evenness == pytest.approx(1.0)


def test_dense_layers_are_named(run_of: Callable[..., Run]) -> None:
    assert experts(run_of("experts")).dense == ("decoder.layers.1",)
    found = experts(run_of("pair with experts", dense_layers=[0, 2]))
    assert [(each.side, each.layer) for each in found.layers] == [("encoder", 1), ("decoder", 1)]
    assert found.dense == ("encoder.layers.0", "encoder.layers.2", "decoder.layers.0", "decoder.layers.2")


def test_one_layer(run_of: Callable[..., Run]) -> None:
    read = run_of("pair with experts", n_encoder_layers=2)
    whole = experts(read)
    for layer, there in ((1, [("encoder", 1), ("decoder", 1)]), (-1, [("encoder", 1), ("decoder", 2)])):
        found = experts(read, layer=layer)
        assert [(each.side, each.layer) for each in found.layers] == there
        for each in found.layers:
            (same,) = (one for one in whole.layers if (one.side, one.layer) == (each.side, each.layer))
            assert torch.equal(each.probabilities, same.probabilities)
    with pytest.raises(CutawayError, match="layer is 1, expected one with experts: 0, 2"):
        experts(run_of("experts"), layer=1)


def test_a_model_without_experts_is_refused(run_of: Callable[..., Run]) -> None:
    with pytest.raises(CutawayError, match="tiny GPT-2: this model has no experts"):
        experts(run_of("GPT-2"))


# Its page.


def test_every_token_and_load_is_listed(run_of: Callable[..., Run]) -> None:
    found = experts(run_of("experts", length=20))
    tables = [block for block in found.page().blocks if isinstance(block, Table)]
    assert len(tables) == 2 * len(found.layers)
    assert len(tables[2].rows) == 20
    assert [row[3] for row in tables[3].rows] == [Bar(load) for load in found.layers[1].load.tolist()]
    last = found.page().blocks[-1]
    assert isinstance(last, Matrix)
    assert last.values.tolist() == [each.load.double().tolist() for each in found.layers]


def test_of_many_layers_the_first_ones_are_told_token_by_token(run_of: Callable[..., Run]) -> None:
    found = experts(run_of("experts", length=20))
    many = replace(found, layers=found.layers * 30)
    blocks = many.page().blocks
    assert len([block for block in blocks if isinstance(block, Table)]) == 2 * (DETAILED // 20)
    assert f"Token by token: the first {DETAILED // 20} of 60 layers" in many.to_text(columns=200)
    last = blocks[-1]
    assert isinstance(last, Matrix) and len(last.rows) == 60


# As it is asked for.

TEXT = "我爱机器"


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _mixture(tmp_path_factory.mktemp("mixture"), n_experts=4)


def _mixture(folder: Path, n_experts: int) -> Path:
    tokenizer = Tokenizer.train(LINES, "characters", None, min_count=1, template="<s> $A")
    return saved(
        folder,
        tokenizer,
        {"family": "decoder-only", "norm": "rmsnorm", "position": "rotary", "activation": "silu", "gated": True,
         "attn_bias": False, "mlp_bias": False, "eos_id": tokenizer.require("eos"),
         "bos_id": tokenizer.require("bos"), "max_len": 32, "n_experts": n_experts, "n_experts_per_token": 2},
    )  # fmt: skip


def test_each_tokens_experts_and_their_loads(cutaway: Command, mixture: Path) -> None:
    asked = ("experts", TEXT, "-m", mixture)
    out = shown(cutaway, *asked, "--layer", "-1")
    assert out.startswith("decoder layer 1: 2 of 4 experts for each token\n")
    layers = result(cutaway, *asked)["layers"]
    assert len(layers) == 2
    for piece, chosen, weights in zip(TEXT, layers[1]["chosen"][1:], layers[1]["weights"][1:], strict=True):
        pairs = [f"{expert} {share(weight)}" for expert, weight in zip(chosen, weights, strict=True)]
        assert any(line.split()[0] == piece and "  ".join(pairs) in line for line in out.splitlines())
    loads = out[out.index("expert   tokens") :].splitlines()[2:6]
    assert [line.split()[1] for line in loads] == [str(count) for count in layers[1]["counts"]]
    assert f"\nbalance      {layers[1]['balance']:.3f}\n" in out
    both = shown(cutaway, *asked)
    assert both.startswith("decoder layer 0: ") and "\n\ndecoder layer 1: " in both
    chinese = shown_in_chinese(cutaway, *asked, "--layer", "0")
    assert chinese.startswith("解码器第 0 层：每个词元选用 4 个专家中的 2 个\n")
    html = page_of(cutaway, *asked)
    for each in layers:
        assert "".join(f'<td class="right">{value:.3f}</td>' for value in each["probabilities"][1]) in html


def test_idle_experts_of_a_wide_mixture_are_only_counted(cutaway: Command, tmp_path: Path) -> None:
    folder = _mixture(tmp_path / "wide", n_experts=20)
    out = shown(cutaway, "experts", TEXT, "-m", folder, "--layer", "0")
    counts = experts(run(load(folder), TEXT), layer=0).layers[0].counts
    idle = int((counts == 0).sum())
    loads = out[out.index("expert   tokens") :].splitlines()[2:]
    assert idle > 0 and loads[20 - idle] == f"Experts that were given no token: {idle}."


def test_one_pass_and_arrays(
    cutaway: Command, passes: Callable[[], int], mixture: Path, tmp_path: Path
) -> None:
    read = run(load(mixture), TEXT)
    passes()
    found = experts(read)
    assert passes() == 1
    path = tmp_path / "experts.safetensors"
    assert cutaway("inspect", "experts", TEXT, "-m", mixture, "--save", path).code == 0
    assert torch.equal(
        load_file(path)["layers.probabilities"], torch.stack([each.probabilities for each in found.layers])
    )


def test_what_is_refused(cutaway: Command, poet: Path, mixture: Path) -> None:
    assert "experts needs a mixture of experts" in refused(cutaway, "experts", "我", "-m", poet)
    refusal = refused(cutaway, "experts", "我", "-m", mixture, "--layer", "7")
    assert "layer is 7, expected one with experts: 0, 1" in refusal
