"""What heads measure, query by query and key by key; and their patterns on a page."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.inspection.tokens import reading, repeating
from torch import Tensor

from cutaway import CutawayError, load
from cutaway.inspection.patterns import patterns
from cutaway.inspection.questions.attention import Measures, attention
from cutaway.inspection.runs import Run, run
from cutaway.inspection.wiring import Side, sides
from cutaway.page.blocks import Atlas, Matrix

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("translator", "好久不见。", {"side": "encoder", "layer": -1, "head": 0, "stage": "masked"}),
]

RunOf = Callable[..., Run]
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("post-norm pair", {}), ("T5", {}), ("GPT-2", {}), ("GPT-2", {"position": "alibi"}), ("Llama", {}),
    ("Gemma 2", {}), ("experts", {}), ("BERT", {}), ("no head", {}),
]  # fmt: skip


def measured(p: Tensor, visible: Tensor, asked: Run, side: Side) -> dict[str, float | None]:
    """The definitions of `Measures`, in plain loops. p, visible (T, S)."""
    tokenizer = asked.loaded.require_tokenizer()
    keys = asked.target if side == "decoder" else asked.source
    assert keys is not None
    ids = keys.ids
    rows: list[list[float]] = p.double().tolist()
    special = [id in tokenizer.controls for id in ids]
    marks = [piece.strip("▁") in ("，", "。", ",", ".") for piece in keys.pieces]
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
        if t < len(rows) - 1:
            sums["next"].append(row[t + 1])
        after = [j + 1 for j in range(t - 1) if ids[j] == ids[t] and not special[j]]
        if after:
            sums["induction"].append(sum(row[s] for s in after))
    return {name: sum(values) / len(values) if values else None for name, values in sums.items()}


@pytest.mark.parametrize(("structure", "changes"), KINDS)
def test_measures_are_those_of_their_definitions(
    run_of: RunOf, structure: str, changes: dict[str, Any]
) -> None:
    asked = repeating(run_of(structure, **changes))
    for side in sides(asked.model):
        found = attention(asked, side=side)
        assert found.scores is not None and found.uniform is not None
        shown_there, masks = patterns(asked, side), patterns(asked, side, heads=[0], stage="masked")
        assert torch.equal(found.patterns.values, shown_there.values)
        for i, layer in enumerate(found.patterns.layers):
            visible = masks.values[i, 0] > -math.inf
            uniform = visible / visible.sum(dim=-1, keepdim=True)
            cases: list[tuple[Measures, tuple[int, ...], Tensor]] = [(found.uniform, (i,), uniform)]
            cases += [(found.scores, (i, j), shown_there.of(layer, j)) for j in range(4)]
            for measures, at, pattern in cases:
                for name, expected in measured(pattern, visible, asked, side).items():
                    value = getattr(measures, name)
                    if expected is None:
                        assert value is None, (side, name)
                    else:
                        assert float(value[at]) == pytest.approx(expected, abs=1e-6), (side, layer, name)
        assert (found.scores.induction is None) == (side == "cross")


def test_what_has_no_meaning_is_none(run_of: RunOf) -> None:
    loaded = run_of("GPT-2").loaded
    once = attention(reading(loaded, [9])).scores
    assert once is not None
    assert once.entropy_share is once.previous is once.next is once.induction is None
    assert once.same is not None and once.same.eq(1).all() and once.entropy.abs().max() < 1e-6
    eos = loaded.require_tokenizer().require("eos")
    found = attention(reading(loaded, [eos, 9, 11, eos]), layer=1, head=2)
    assert found.scores is not None and found.uniform is not None
    assert found.scores.induction is None and found.repeated == () and found.special_keys == (0, 3)
    assert found.scores.entropy.shape == (1, 1) and found.uniform.entropy.shape == (1,)
    before = attention(reading(loaded, [9, 11]), stage="scaled")
    assert before.scores is before.uniform is None and before.patterns.stage == "scaled"


def test_what_is_not_there_is_refused(run_of: RunOf) -> None:
    read = run_of("GPT-2")
    for options, message in (
        ({"side": "cross"}, "attends on decoder only"),
        ({"layer": 7}, "there is no layer 7, expected 0 to 2"),
        ({"head": 4}, "there is no head 4, expected 0 to 3"),
        ({"stage": "softmax"}, "stage is 'softmax', expected scores or scaled or masked or pattern"),
    ):
        given: Any = options
        with pytest.raises(CutawayError, match=message):
            attention(read, **given)


def test_the_table_has_the_measures_of_every_head(cutaway: command.Run, translator: Path) -> None:
    found = result(cutaway, "attention", "今天天气很好。", "-m", translator, "--side", "encoder")["scores"]
    lines = shown(cutaway, "attention", "今天天气很好。", "-m", translator, "--side", "encoder").splitlines()
    fields = ("entropy", "first", "special", "punctuation", "distance", "previous", "same", "next")
    for layer in range(2):
        for head in range(2):
            row = next(line.split() for line in lines if line.startswith(f"{layer}.{head} "))
            assert row[1:9] == [f"{found[field][layer][head]:.2f}" for field in fields]
    assert any(line.startswith("1 uniform ") for line in lines)
    cross = shown(cutaway, "attention", "今天天气很好。", "-m", translator)
    # between two texts there is no token before
    assert "dist." not in cross and "(prev)" not in cross


def test_one_head_is_drawn_and_all_are_an_atlas(run_of: RunOf) -> None:
    read = repeating(run_of("post-norm pair"))
    one = attention(read, layer=1, head=2).page()
    (drawn,) = (block for block in one.blocks if isinstance(block, Matrix))
    np.testing.assert_allclose(drawn.values, patterns(read).of(1, 2).double().numpy(), rtol=1e-5)
    (atlas,) = (block for block in attention(read).page().blocks if isinstance(block, Atlas))
    assert list(atlas.names) == [f"{layer}.{head}" for layer in range(3) for head in range(4)]
    np.testing.assert_allclose(atlas.maps[6].values, drawn.values, rtol=1e-5)


def test_scores_before_the_softmax_show_what_the_mask_hides(cutaway: command.Run, poet: Path) -> None:
    asked = ("attention", "好久不见。", "-m", poet, "--layer", "0", "--head", "0", "--stage", "masked")
    hidden = result(cutaway, *asked)["patterns"]["values"][0][0][0]
    assert hidden[0] is not None and set(hidden[1:]) == {None}
    assert shown(cutaway, *asked).startswith(
        "decoder self-attention: scores after mask and position bias, layer 0"
    )
    assert "−∞" in page_of(cutaway, *asked)


def test_both_languages(cutaway: command.Run, masked: Path) -> None:
    asked = ("attention", "我爱[MASK]。", "-m", masked)
    assert shown(cutaway, *asked).startswith(
        "What the heads of encoder self-attention measure on this text\n"
    )
    assert shown_in_chinese(cutaway, *asked).startswith("编码器自注意力各头在这段文字上的统计\n")
    one = (*asked, "--layer", "1", "--head", "1")
    assert shown_in_chinese(cutaway, *one).startswith("编码器自注意力，第 1 层，头 1\n")
    assert page_of(cutaway, *asked, lang="zh").count("data-place=") == 4


def test_one_pass(passes: Callable[[], int], translator: Path) -> None:
    read = run(load(translator), "好久不见。")
    passes()
    for options in ({}, {"layer": 0, "head": 1}, {"stage": "scores"}):
        given: Any = options
        attention(read, **given).page()
        assert passes() == 1


def test_a_command_is_told_what_is_wrong(cutaway: command.Run, poet: Path) -> None:
    assert "--stage is softmax, expected scores, scaled, masked or pattern; see cutaway inspect" in refused(
        cutaway, "attention", "好", "-m", poet, "--stage", "softmax"
    )
    assert "there is no layer 9, expected 0 to 1" in refused(
        cutaway, "attention", "好", "-m", poet, "--layer", "9"
    )
