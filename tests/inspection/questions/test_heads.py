"""The sheet of all heads: its maps are the patterns or their maxima, its measures those of `attention`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import command
from tests.command import Case, result, shown, shown_in_chinese
from tests.inspection.tokens import repeating

from cutaway import CutawayError, load
from cutaway.inspection.patterns import patterns
from cutaway.inspection.questions.attention import attention
from cutaway.inspection.questions.heads import heads
from cutaway.inspection.runs import Run, run
from cutaway.inspection.wiring import sides
from cutaway.page.blocks import Atlas

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [("translator", "好久不见。", {"side": "encoder", "most": 2})]

RunOf = Callable[..., Run]


@pytest.mark.parametrize(
    ("structure", "changes"),
    [("post-norm pair", {}), ("T5", {}), ("GPT-2", {}), ("Llama", {}), ("Gemma 2", {}), ("BERT", {})],
)
def test_maps_are_the_patterns_and_measures_those_of_each_head(
    run_of: RunOf, structure: str, changes: dict[str, Any]
) -> None:
    asked = repeating(run_of(structure, **changes))
    for side in sides(asked.model):
        found, expected = heads(asked, side=side), attention(asked, side=side)
        assert found.cell == 1 and found.sides == sides(asked.model) and found.side == side
        assert torch.equal(found.maps, expected.patterns.values)
        assert found.rows == expected.patterns.rows and found.keys == expected.patterns.keys
        assert expected.scores is not None and expected.uniform is not None
        for each in found.measures:
            assert torch.equal(each.values, getattr(expected.scores, each.name)), (side, each.name)
            assert torch.equal(each.uniform, getattr(expected.uniform, each.name)), (side, each.name)
        missing = [name for name, value in vars(expected.scores).items() if value is None]
        named = {each.name for each in found.measures}
        assert named | {*missing, "entropy_share"} == set(vars(expected.scores))


@pytest.mark.parametrize("most", [1, 2, 3, 5, 64])
def test_a_cell_is_the_greatest_weight_of_its_neighbours(run_of: RunOf, most: int) -> None:
    asked = repeating(run_of("post-norm pair"))
    for side in sides(asked.model):
        found, whole = heads(asked, side=side, most=most), patterns(asked, side).values
        assert max(found.maps.shape[2:]) <= most
        for r in range(found.maps.shape[2]):
            for c in range(found.maps.shape[3]):
                rows, columns = (slice(n * found.cell, (n + 1) * found.cell) for n in (r, c))
                part = whole[:, :, rows, columns]
                assert part.numel()
                assert torch.equal(found.maps[:, :, r, c], part.amax(dim=(2, 3)))


def test_what_heads_share_and_how_far_they_see(run_of: RunOf) -> None:
    plain, grouped = heads(run_of("GPT-2")), heads(run_of("Llama"))
    config = run_of("Llama").model.config
    assert (plain.shared, grouped.shared) == (1, config.n_heads // (config.n_kv_heads or 1))
    assert grouped.shared > 1 and set(plain.windows) == {None}
    windowed = run_of("Gemma 2")
    window = windowed.model.config.window
    assert window is not None and window in heads(windowed).windows


def test_one_pass_and_no_pattern_kept(passes: Callable[[], int], translator: Path) -> None:
    read = run(load(translator), "好久不见。")
    passes()
    found = heads(read, most=1)
    assert passes() == 1 and found.maps.untyped_storage().nbytes() == found.maps.nbytes
    with pytest.raises(CutawayError, match="most is 0, expected at least 1"):
        heads(read, most=0)


def test_its_page(cutaway: command.Run, translator: Path) -> None:
    asked = ("heads", "好久不见。", "-m", translator, "--side", "encoder")
    scores = result(cutaway, *asked)["measures"]
    assert [each["name"] for each in scores][:2] == ["entropy", "first"]
    text = shown(cutaway, *asked)
    assert text.startswith("Every head of encoder self-attention\n") and "queries and" not in text
    greatest = max(max(row) for row in scores[0]["values"])
    assert f"{greatest:.2f}" in next(line for line in text.splitlines() if line.startswith("entropy"))
    pooled = shown(cutaway, *asked, "--most", "2")
    assert "queries and" in pooled
    assert shown_in_chinese(cutaway, *asked).startswith("编码器自注意力的全部头\n")
    (atlas,) = (
        block
        for block in heads(run(load(translator), "好久不见。")).page().blocks
        if isinstance(block, Atlas)
    )
    assert len(atlas.maps) == 4 and atlas.per_row == 2
