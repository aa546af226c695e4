"""`--show attention`: one head's weights, or what all heads measure; and `--show rollout`."""

import numpy as np
import torch
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import patterns, rollout
from cutaway.inspection import run as prepare
from cutaway.page.blocks import Atlas
from cutaway.text.display import width
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

TEXT = "好久不见。"
GAP = "The cat sat on the [MASK]."
CASE = (MASKED, GAP, "--side", "encoder", "--layer", "1", "--head", "2")


def test_attention_of_one_head_and_of_all(cutaway: Run):
    out = shown(cutaway, View.ATTENTION, *CASE)
    assert out.startswith("encoder self-attention, layer 1, head 2\n")
    assert "query down, key across;  weight at least  ░ 0.10" in out
    found = result(cutaway, View.ATTENTION, *CASE)
    weights, scores = found["patterns"], found["scores"]
    values = torch.tensor(weights["values"])
    assert values.shape[:2] == (1, 1)
    torch.testing.assert_close(values.sum(dim=-1), torch.ones(values.shape[:3]))
    entropy = scores["scores"]["entropy"][0][0]
    assert next(line.split()[1] for line in out.splitlines() if line.startswith("1.2 ")) == f"{entropy:.2f}"
    everywhere = cutaway("inspect", TRANSLATOR, TEXT, "--show", "attention").out
    again = cutaway("inspect", POET, "明月明月明月", "--show", "attention").out
    assert " next   induct\n" in again and max(map(width, again.splitlines())) <= 80
    assert everywhere.startswith("What the heads of cross-attention measure on this text\n")
    assert all(f"\n{layer}.{head} " in everywhere for layer in range(4) for head in range(4))


def test_attention_in_chinese(cutaway: Run):
    out = shown_in_chinese(cutaway, View.ATTENTION, MASKED, "A [MASK].", *CASE[2:])
    assert out.startswith("编码器自注意力，第 1 层第 2 头\n") and "纵向为查询，横向为键；" in out
    assert "看一个头的权重：--layer N --head N。" in shown_in_chinese(
        cutaway, View.ATTENTION, TRANSLATOR, TEXT
    )


def test_a_drawing_has_an_atlas_of_all_heads(cutaway: Run):
    html, texts = drawn(cutaway, View.ATTENTION, TRANSLATOR, TEXT)
    assert html.count("data-place=") == 16 and "\n3.3\n" in texts
    found = patterns(prepare(load(find(TRANSLATOR)), TEXT), "cross")
    (atlas,) = (block for block in found.page().blocks if isinstance(block, Atlas))
    np.testing.assert_allclose(atlas.maps[6].values, found.of(1, 2).double().numpy())
    assert atlas.names[6] == "1.2"


def test_scores_before_the_softmax_draw_what_the_mask_hides():
    found = patterns(
        prepare(load(find(POET)), "床前明月光", max_new_tokens=1), "decoder", [0], [0], stage="masked"
    )
    assert "加掩码与位置偏置后的得分" in found.to_svg(locale="zh")
    assert "−∞" in found.to_html(locale="en")


def test_rollout(cutaway: Run):
    out = shown(cutaway, View.ROLLOUT, MASKED, GAP)
    assert out.startswith("Rollout of encoder self-attention, all 4 layers\n")
    found = rollout(prepare(load(find(MASKED)), GAP), "encoder")
    given = result(cutaway, View.ROLLOUT, MASKED, GAP)
    torch.testing.assert_close(torch.tensor(given["weights"]), found.weights)
    assert shown_in_chinese(cutaway, View.ROLLOUT, TRANSLATOR, TEXT).startswith("编码器自注意力的逐层展开")
    html, texts = drawn(cutaway, View.ROLLOUT, TRANSLATOR, TEXT)
    assert html.count("data-place=") == 4 and "after layer 3" in texts
    assert "cross-attention leads" in refused(
        cutaway, TRANSLATOR, TEXT, "--show", "rollout", "--side", "cross"
    )


def test_only_the_columns_that_are_there_are_explained(cutaway: Run) -> None:
    """Between two texts there is no distance and no token before."""
    cross = shown(cutaway, View.ATTENTION, TRANSLATOR, TEXT)
    assert (
        "entropy in nats, the rest" in " ".join(cross.split())
        and "dist." not in cross
        and "(prev)" not in cross
    )
    own = " ".join(shown(cutaway, View.ATTENTION, MASKED, GAP).split())
    assert "entropy in nats, dist. in tokens, the rest" in own and "the token before (prev)" in own
