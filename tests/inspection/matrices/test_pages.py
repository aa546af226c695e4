"""What matrices draw of themselves is what was computed."""

import numpy as np
import pytest

from cutaway import CutawayError, load
from cutaway.checkpoint.folder import Loaded
from cutaway.inspection import directions, low_rank, parameter_matrix, run, spectrum, w_ov
from cutaway.inspection.pages.matrices import all_matrices_page
from cutaway.page.blocks import Bars, Matrix, Table
from cutaway.zoo import POET, find

DOWN = "decoder.layers.3.mlp.down.weight"


@pytest.fixture(scope="module")
def poet() -> Loaded:
    return load(find(POET))


def test_a_spectrum_draws_every_singular_value(poet: Loaded) -> None:
    found = spectrum(w_ov(poet.model, "decoder", 1, 2))
    (bars,) = (block for block in found.page().blocks if isinstance(block, Bars))
    assert bars.values == found.singular_values.tolist()
    text = found.to_text(locale="zh")
    assert text.startswith("decoder.layers.1.self_attn 第 2 头的 W_OV（192 × 192）\n")
    assert "注意         x 是归一化之后的残差流" in text and "█" in text
    assert "<path" in found.to_html("en") and found.to_svg("zh").startswith("<svg ")


def test_a_direction_lists_both_ends_of_both_sides(poet: Loaded) -> None:
    found = directions(poet, w_ov(poet.model, "decoder", 1, 2), count=1, top=3)[0]
    (table,) = (block for block in found.page().blocks if isinstance(block, Table))
    assert [row[1] for row in table.rows] == ["+", "−", "+", "−"]
    assert found.rows is not None and found.columns is not None
    ends = [found.rows.positive, found.rows.negative, found.columns.positive, found.columns.negative]
    expected = ["  ".join(f"{each.piece} {each.value:+.2f}" for each in end) for end in ends]
    assert [row[2] for row in table.rows] == expected
    nothing = directions(poet, parameter_matrix(poet.model, "decoder.layers.0.mlp.up.weight"), count=1)[0]
    assert nothing.rows is not None and nothing.columns is None and "neurons" not in nothing.to_text()


def test_low_ranks_draw_where_the_output_moves(poet: Loaded) -> None:
    read = run(poet, "床前明月光", max_new_tokens=1)
    found = low_rank(read, parameter_matrix(poet.model, DOWN), (0, 8, 192))
    (grid,) = (block for block in found.page().blocks if isinstance(block, Matrix))
    np.testing.assert_array_equal(grid.values, np.stack([each.kl.numpy() for each in found]))
    assert (grid.rows, grid.columns) == (["0", "8", "192"], ["<s>", *"床前明月光"])
    assert len(found) == 3 and f"{DOWN}，降秩之后（满秩 192）" in found.to_html("zh")
    one = found.results[0]
    change = one.changed[0]
    assert poet.require_tokenizer().readable(change.after) == change.after_piece
    assert f"{change.before_piece} → {change.after_piece}" in one.to_text()
    assert one.to_text(locale="zh").startswith(f"{DOWN}，秩 192 降为 0\n")
    with pytest.raises(CutawayError, match="no rank is given: expected numbers from 0 to 192"):
        low_rank(read, parameter_matrix(poet.model, DOWN), ())


def test_the_matrices_of_all_layers_stand_side_by_side(poet: Loaded) -> None:
    names = [name for name, weight in poet.model.named_parameters() if weight.ndim == 2]
    found = [spectrum(parameter_matrix(poet.model, name)) for name in names if ".layers." in name]
    (grid,) = (block for block in all_matrices_page(found).blocks if isinstance(block, Matrix))
    each = next(each for each in found if each.name == DOWN)
    share = grid.values[grid.rows.index("3"), list(grid.columns).index("mlp.down")]
    assert share == pytest.approx(each.effective_rank / len(each.singular_values))
    assert np.isfinite(grid.values).all() and grid.values.shape[0] == 4
