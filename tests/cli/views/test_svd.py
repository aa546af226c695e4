"""`--show svd`: matrices, their singular values, and their directions read as tokens."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import directions, spectrum, w_ov, w_qk
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

HEAD = (POET, "--layer", "1", "--head", "2")
NAME = "decoder.layers.0.mlp.down.weight"


def test_a_head_in_both_languages(cutaway: Run) -> None:
    out = shown(cutaway, View.SVD, *HEAD)
    assert out.startswith("W_QK of decoder.layers.1.self_attn, head 2 (192 × 192)\n")
    assert "\nW_OV of decoder.layers.1.self_attn, head 2 (192 × 192)\n" in out
    assert "\nformula      score = x_q · M · x_kᵀ, M = scale · W_Q · W_Kᵀ\n" in out
    found = spectrum(w_qk(load(find(POET)).model, "decoder", 1, 2))
    assert f"\nσ            {float(found.singular_values[0]):.4g} " in out
    assert (
        f"\nranks        effective {found.effective_rank:.1f}, stable {found.stable_rank:.1f} of 48\n" in out
    )
    assert "\nbut          " in out and "\n             queries and keys are rotated by position" in out
    chinese = shown_in_chinese(cutaway, View.SVD, *HEAD)
    assert chinese.startswith("decoder.layers.1.self_attn 第 2 头的 W_QK（192 × 192）\n")
    assert "查询与键按位置旋转" in chinese and "对称性" in chinese


def test_a_drawing_has_a_bar_for_every_singular_value(cutaway: Run) -> None:
    found = w_ov(load(find(POET)).model, "decoder", 1, 2)
    sigma = spectrum(found).singular_values
    html, texts = drawn(cutaway, View.SVD, *HEAD)
    assert f"singular value 0 to 47 across, σ up to {float(sigma[0]):.4g}" in texts
    heights = f"v{-110.0 * float(sigma[20] / sigma[0]):.2f}h"
    assert heights in html
    (first,) = directions(load(find(POET)), found, count=1, top=4)
    assert first.rows is not None
    assert " ".join(each.piece for each in first.rows.positive) in html


def test_a_parameter(cutaway: Run) -> None:
    out = shown(cutaway, View.SVD, POET, "--name", NAME)
    matrix = dict(load(find(POET)).model.named_parameters())[NAME].detach().double()
    largest = float(torch.linalg.matrix_norm(matrix, 2))
    assert f"{largest:.4g} " in out.splitlines()[2]
    given = result(cutaway, View.SVD, POET, "--name", NAME)
    assert given[0]["spectrum"]["singular_values"][0] == pytest.approx(largest)


def test_all_parameters_and_in_a_drawing_the_layers_side_by_side(cutaway: Run, tmp_path: Path) -> None:
    out = shown(cutaway, View.SVD, MASKED)
    assert out.startswith("The matrices of this model\n")
    assert "   encoder.layers.0.mlp.down.weight\n" in out
    html, _ = drawn(cutaway, View.SVD, MASKED, lang="zh")
    assert "<h3>有效秩（encoder）</h3>" in html and "self_attn.q" in html
    saved = tmp_path / "all.safetensors"
    assert cutaway("inspect", MASKED, "--show", "svd", "--save", saved).code == 0
    assert load_file(saved)["effective_rank"].shape == (28,)


def test_json_speaks_the_readers_language(cutaway: Run) -> None:
    found = cutaway("inspect", *HEAD, "--show", "svd", "--json", "--lang", "zh")
    assert "查询与键按位置旋转" in found.out and "rotated" not in found.out


def test_what_is_refused(cutaway: Run) -> None:
    assert "a head is named by both --layer and --head" in refused(
        cutaway, POET, "--show", "svd", "--layer", "1"
    )
    assert "give one of the two" in refused(cutaway, *HEAD, "--show", "svd", "--name", NAME)
    assert "--show svd is about the model alone" in refused(cutaway, TRANSLATOR, "好", "--show", "svd")
    assert "the decoder has no layer 9: expected 0 to 3" in refused(
        cutaway, POET, "--show", "svd", "--layer", "9", "--head", "0"
    )
