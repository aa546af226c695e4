"""The matrices of a model as they are asked for: what is shown is what was computed."""

from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.command import Case, Run, page_of, refused, result, shown, shown_in_chinese

from cutaway import CutawayError, load
from cutaway.inspection.questions.svd import svd
from cutaway.inspection.spectra import directions, spectrum
from cutaway.inspection.weight_matrices import w_ov, w_qk
from cutaway.page.blocks import Bars, Matrix, Table

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("headless", None, {"side": "encoder", "layer": -1, "head": 0, "top": 2}),
]

NAME = "decoder.layers.0.mlp.down.weight"


def test_a_head_has_two_matrices(poet: Path) -> None:
    loaded = load(poet)
    found = svd(loaded, layer=-1, head=1, top=2, words=3)
    matrices = (w_qk(loaded, "decoder", 1, 1), w_ov(loaded, "decoder", 1, 1))
    for each, matrix in zip(found.matrices, matrices, strict=True):
        assert torch.equal(each.spectrum.singular_values, spectrum(matrix).singular_values)
        expected = directions(loaded, matrix, count=2, top=3)
        assert [way.rows for way in each.directions] == [way.rows for way in expected]
        assert [way.columns for way in each.directions] == [way.columns for way in expected]
    blocks = found.page().blocks
    bars = [block.values for block in blocks if isinstance(block, Bars)]
    assert bars == [each.spectrum.singular_values.tolist() for each in found.matrices]
    tables = [block for block in blocks if isinstance(block, Table)]
    # two sides of two directions
    assert [len(table.rows) for table in tables] == [4, 4]


def test_every_matrix_in_a_line_and_the_layers_side_by_side(masked: Path) -> None:
    loaded, heard = load(masked), list[tuple[int, int]]()
    found = svd(loaded, progress=lambda what, done, count: heard.append((done, count)))
    names = [name for name, weight in loaded.model.named_parameters() if weight.ndim == 2]
    assert [each.spectrum.name for each in found.matrices] == names
    assert heard == [(done, len(names)) for done in range(1, len(names) + 1)]
    table, grid = (block for block in found.page().blocks if isinstance(block, Table | Matrix))
    assert isinstance(table, Table) and [row[-1] for row in table.rows] == names
    assert isinstance(grid, Matrix) and grid.values.shape == (2, 6)
    each = found.matrices[names.index("encoder.layers.1.mlp.down.weight")].spectrum
    share = grid.values[1, list(grid.columns).index("mlp.down")]
    assert share == pytest.approx(each.effective_rank / len(each.singular_values))
    assert np.isfinite(grid.values).all()


def test_a_head_in_a_terminal(cutaway: Run, poet: Path) -> None:
    asked = ("svd", "-m", poet, "--layer", "1", "--head", "1")
    out, matrix = shown(cutaway, *asked), w_qk(load(poet), "decoder", 1, 1)
    found = spectrum(matrix)
    assert out.startswith("W_QK of decoder.layers.1.self_attn, head 1 (16 × 16)\n")
    assert "\nW_OV of decoder.layers.1.self_attn, head 1 (16 × 16)\n" in out
    assert f"\nσ            {float(found.singular_values[0]):.4g} " in out
    assert f"effective {found.effective_rank:.1f}, stable {found.stable_rank:.1f} of 8\n" in out
    chinese = shown_in_chinese(cutaway, *asked)
    assert chinese.startswith("decoder.layers.1.self_attn 第 1 头的 W_QK（16 × 16）\n")
    assert "查询与键按位置旋转" in chinese and "对称性" in chinese
    (first,) = directions(load(poet), matrix, count=1, top=4)
    assert first.rows is not None
    pieces = " ".join(each.piece for each in first.rows.positive)
    assert pieces in unescape(page_of(cutaway, *asked)).replace("\xa0", " ")


def test_a_parameter_and_all_of_them(cutaway: Run, poet: Path, tmp_path: Path) -> None:
    loaded = load(poet)
    (given,) = result(cutaway, "svd", "-m", poet, "--parameter", NAME)["matrices"]
    matrix = loaded.model.get_parameter(NAME).detach().double()
    assert given["spectrum"]["singular_values"][0] == pytest.approx(
        float(torch.linalg.matrix_norm(matrix, 2))
    )
    assert f"   {NAME}\n" in shown(cutaway, "svd", "-m", poet)
    path = tmp_path / "all.safetensors"
    assert cutaway("inspect", "svd", "-m", poet, "--save", path).code == 0
    count = sum(weight.ndim == 2 for weight in loaded.model.parameters())
    assert load_file(path)["matrices.spectrum.effective_rank"].shape == (count,)
    assert "有效秩（解码器）" in page_of(cutaway, "svd", "-m", poet, lang="zh")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 1}, "a head is named by both `layer` and `head`"),
        ({"side": "decoder"}, "a head is named by both `layer` and `head`"),
        ({"layer": 1, "head": 1, "parameter": NAME}, "give one of the two"),
        ({"layer": 9, "head": 0}, "there is no layer 9, expected 0 to 1"),
        ({"parameter": NAME, "top": 0}, "top is 0, expected at least 1"),
        ({"parameter": NAME, "words": 0}, "words is 0, expected at least 1"),
    ],
)
def test_what_is_not_there_is_refused(poet: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CutawayError, match=message):
        svd(load(poet), **options)


def test_a_text_is_not_asked_for(cutaway: Run, poet: Path) -> None:
    assert "好" in refused(cutaway, "svd", "好", "-m", poet)
    assert "did you mean" in refused(cutaway, "svd", "-m", poet, "--parameter", NAME.replace("down", "dwn"))
