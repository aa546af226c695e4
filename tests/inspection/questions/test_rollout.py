"""Attention rollout is the sum over all ways down through the layers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese

from cutaway import CutawayError, load
from cutaway.inspection.patterns import patterns
from cutaway.inspection.questions.rollout import rollout
from cutaway.inspection.runs import Run, run
from cutaway.inspection.wiring import StackName
from cutaway.page.blocks import Atlas, Matrix

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("masked", "今天很好。", {"residual": 0.25, "heads": [1, 0]}),
]

RunOf = Callable[..., Run]


def paths(layers: list[list[list[float]]], residual: float, end: int, start: int) -> float:
    """The share of `start` in `end` after the last layer: the sum over all ways down, each step weighed."""
    if not layers:
        return float(end == start)
    *below, top = layers
    return sum(
        ((1 - residual) * weight + residual * (middle == end)) * paths(below, residual, middle, start)
        for middle, weight in enumerate(top[end])
    )


@pytest.mark.parametrize(
    ("structure", "side"), [("BERT", "encoder"), ("post-norm pair", "decoder"), ("GPT-2", "decoder")]
)
def test_it_is_the_sum_over_all_ways(run_of: RunOf, structure: str, side: StackName) -> None:
    asked = run_of(structure, length=4, n_layers=2)
    found = rollout(asked, side=side, residual=0.3, heads=(0, 2))
    means = patterns(asked, side, heads=[0, 2]).values.double().mean(dim=1).tolist()
    n = len(found.tokens)
    for depth in range(1, 3):
        expected = [[paths(means[:depth], 0.3, end, start) for start in range(n)] for end in range(n)]
        torch.testing.assert_close(
            found.weights[depth - 1].double(), torch.tensor(expected).double(), rtol=0, atol=1e-6
        )
    assert torch.equal(rollout(asked, side=side, residual=1).weights[-1], torch.eye(n))


def test_the_mean_of_all_heads_and_half_a_residual_unless_told(run_of: RunOf) -> None:
    asked = run_of("pre-norm pair")
    found = rollout(asked)
    halves = [
        (layer + torch.eye(len(layer))) / 2
        for layer in patterns(asked, "encoder").values.double().mean(dim=1)
    ]
    expected = torch.linalg.multi_dot(halves[::-1])
    torch.testing.assert_close(found.weights[-1].double(), expected, rtol=0, atol=1e-6)
    assert (found.side, found.heads, found.residual) == ("encoder", (0, 1, 2, 3), 0.5)


def test_what_is_not_there_is_refused(run_of: RunOf) -> None:
    pair = run_of("T5")
    with pytest.raises(CutawayError, match="side is 'cross', expected encoder or decoder"):
        rollout(pair, side=cast(Any, "cross"))
    with pytest.raises(CutawayError, match=r"residual is 1\.5, expected 0 to 1"):
        rollout(pair, residual=1.5)
    with pytest.raises(CutawayError, match="there is no head 9, expected 0 to 3"):
        rollout(pair, heads=(9,))


def test_the_page_has_the_last_layer_and_all_of_them(run_of: RunOf) -> None:
    found = rollout(run_of("BERT"))
    blocks = found.page().blocks
    (last,) = (block for block in blocks if isinstance(block, Matrix))
    (atlas,) = (block for block in blocks if isinstance(block, Atlas))
    np.testing.assert_allclose(last.values, found.weights[-1].numpy())
    assert [each.values.tolist() for each in atlas.maps] == found.weights.double().tolist()


def test_as_a_command_in_both_languages(cutaway: command.Run, masked: Path, translator: Path) -> None:
    asked = ("rollout", "我爱[MASK]。", "-m", masked)
    assert shown(cutaway, *asked).startswith("Rollout of encoder self-attention, all 2 layers\n")
    assert shown_in_chinese(cutaway, *asked).startswith("编码器自注意力的逐层展开（rollout），共 2 层\n")
    assert page_of(cutaway, *asked).count("data-place=") == 2
    given = result(cutaway, *asked, "--heads", "1", "--residual", "0.25")
    expected = rollout(run(load(masked), "我爱[MASK]。"), heads=(1,), residual=0.25)
    torch.testing.assert_close(torch.tensor(given["weights"]), expected.weights)
    assert "--side is cross, expected encoder or decoder" in refused(
        cutaway, "rollout", "好。", "-m", translator, "--side", "cross"
    )
    assert "--residual is 2, expected at most 1" in refused(cutaway, *asked, "--residual", "2")


def test_one_pass(passes: Callable[[], int], translator: Path) -> None:
    read = run(load(translator), "好久不见。")
    passes()
    rollout(read).page()
    assert passes() == 1
