"""`--show values`: attention times the length of what it weighs."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import run, value_weights
from cutaway.zoo import POET, TRANSLATOR, find

PAIR = (TRANSLATOR, "好久不见。", "--target", "Long time no see.")


def test_every_head_and_one(cutaway: Run) -> None:
    out = shown(cutaway, View.VALUES, *PAIR)
    assert out.startswith("cross-attention: weight times length of the value\n")
    read = run(load(find(TRANSLATOR)), "好久不见。", target="Long time no see.")
    found = value_weights(read, "cross")
    norms = found.norms[2, 1]
    row = next(line.split() for line in out.splitlines() if line.startswith("2.1 "))
    assert row[3:] == [
        found.keys.pieces[int(norms.argmax())],
        f"{float(norms.max()):.3g}",
        found.keys.pieces[int(norms.argmin())],
        f"{float(norms.min()):.3g}",
    ]
    assert row[2] == found.keys.pieces[int(found.weights[2, 1].sum(dim=0).argmax())]
    one = shown(cutaway, View.VALUES, *PAIR, "--layer", "2", "--head", "1")
    assert one.startswith("cross-attention: weight times length of the value, layer 2, head 1\n")
    chinese = shown_in_chinese(cutaway, View.VALUES, *PAIR, "--side", "encoder")
    assert chinese.startswith("编码器自注意力：权重乘以值向量的长度\n")


def test_drawings_are_an_atlas_of_all_heads(cutaway: Run) -> None:
    html, texts = drawn(cutaway, View.VALUES, *PAIR)
    assert html.count("data-place=") == 16 and "\n3.3\n" in texts


def test_arrays_are_saved(cutaway: Run, tmp_path: Path) -> None:
    saved = tmp_path / "values.safetensors"
    assert cutaway("inspect", POET, "床前明月光", "--show", "values", "--save", saved).code == 0
    expected = value_weights(run(load(find(POET)), "床前明月光", max_new_tokens=1), "decoder")
    torch.testing.assert_close(load_file(saved)["weights"], expected.weights)


def test_what_is_refused(cutaway: Run) -> None:
    assert "attends on decoder only" in refused(cutaway, POET, "床", "--show", "values", "--side", "cross")


def test_a_model_without_words_has_values(cutaway: Run, headless: Path) -> None:
    out = shown(cutaway, View.VALUES, headless, "今天天气很好。")
    assert out.startswith("encoder self-attention: weight times length of the value\n")
