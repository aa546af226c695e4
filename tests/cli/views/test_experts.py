"""`--show experts`: which expert of a mixture was given which token."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import LINES, Run, saved

from cutaway import Tokenizer, load
from cutaway.cli.views.request import View
from cutaway.inspection import routing, run
from cutaway.page.numbers import share
from cutaway.zoo import POET

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


def test_each_tokens_experts_and_their_loads(cutaway: Run, mixture: Path) -> None:
    out = shown(cutaway, View.EXPERTS, mixture, TEXT, "--layer", "1")
    assert out.startswith("decoder layer 1: 2 of 4 experts for each token\n")
    layers = result(cutaway, View.EXPERTS, mixture, TEXT)["layers"]
    assert len(layers) == 2
    for piece, chosen, weights in zip(TEXT, layers[1]["chosen"][1:], layers[1]["weights"][1:], strict=True):
        pairs = [f"{expert} {share(weight)}" for expert, weight in zip(chosen, weights, strict=True)]
        assert f"\n{piece}      {'  '.join(pairs)} " in out
    loads = out[out.index("expert   tokens") :].splitlines()[2:6]
    assert [line.split()[1] for line in loads] == [str(count) for count in layers[1]["counts"]]
    assert f"balance      {layers[1]['balance']:.3f} (1 even)" in out
    both = shown(cutaway, View.EXPERTS, mixture, TEXT)
    assert both.startswith("decoder layer 0: ") and "\n\ndecoder layer 1: " in both


def test_in_chinese(cutaway: Run, mixture: Path) -> None:
    out = shown_in_chinese(cutaway, View.EXPERTS, mixture, TEXT, "--layer", "0")
    assert out.startswith("解码器第 0 层：每个词块选用 4 个专家中的 2 个\n")


def test_a_drawing_shows_what_the_router_gave_each_expert(cutaway: Run, mixture: Path) -> None:
    html, texts = drawn(cutaway, View.EXPERTS, mixture, TEXT, lang="zh")
    found = routing(run(load(mixture), TEXT, max_new_tokens=1))
    assert html.count("<figure data-values=") == 3  # of two layers, and the loads of both
    for each in found.layers:
        row = "".join(f'<td class="right">{value:.3f}</td>' for value in each.probabilities[1].tolist())
        assert row in html
    assert {"我", "路由器给出的概率"} <= set(texts.split("\n"))


def test_idle_experts_of_a_wide_mixture_are_only_counted(cutaway: Run, tmp_path: Path) -> None:
    folder = _mixture(tmp_path / "wide", n_experts=20)
    out = shown(cutaway, View.EXPERTS, folder, TEXT, "--layer", "0")
    counts = routing(run(load(folder), TEXT, max_new_tokens=1)).layers[0].counts
    idle = int((counts == 0).sum())
    loads = out[out.index("expert   tokens") :].splitlines()[2:]
    assert idle > 0 and loads[20 - idle] == f"{idle} experts were given no token."


def test_arrays_are_saved(cutaway: Run, mixture: Path, tmp_path: Path) -> None:
    out = tmp_path / "experts.safetensors"
    assert cutaway("inspect", mixture, TEXT, "--show", "experts", "--save", out).code == 0
    found = routing(run(load(mixture), TEXT, max_new_tokens=1))
    arrays = load_file(out)
    torch.testing.assert_close(
        arrays["layers.probabilities"], torch.stack([each.probabilities for each in found.layers])
    )


def test_what_is_refused(cutaway: Run, mixture: Path) -> None:
    refusal = refused(cutaway, POET, "床前", "--show", "experts")
    assert "this model has no experts" in refusal
    refusal = refused(cutaway, str(mixture), "我", "--show", "experts", "--layer", "7")
    assert "--layer is 7, expected one with experts: 0, 1" in refusal
