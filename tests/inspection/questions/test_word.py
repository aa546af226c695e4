"""Where all heads looked from one query: the rows of their patterns, sharpness and ranking by plain loops."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.inspection.tokens import reading, repeating

from cutaway import CutawayError, load
from cutaway.inspection.patterns import patterns
from cutaway.inspection.questions.word import word
from cutaway.inspection.runs import Run, run
from cutaway.inspection.wiring import sides
from cutaway.page.blocks import Matrix

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("translator", "好久不见。", {"at": 1, "side": "decoder", "target": "time no see"}),
]

RunOf = Callable[..., Run]


@pytest.mark.parametrize("structure", ["post-norm pair", "T5", "GPT-2", "Gemma 2", "BERT", "no head"])
def test_weights_sharpness_and_ranking(run_of: RunOf, structure: str) -> None:
    asked = repeating(run_of(structure))
    tokenizer = asked.loaded.require_tokenizer()
    at = 5  # beyond the window of a layer, where there is one
    for side in sides(asked.model):
        found, whole = word(asked, side=side, at=at), patterns(asked, side)
        masked = patterns(asked, side, stage="masked", heads=0).values[:, 0, at]
        assert torch.equal(found.weights, whole.values[:, :, at])
        special = [s for s, id in enumerate(found.keys.ids) if tokenizer.is_control(id)]
        assert list(found.special_keys) == special
        greatest: dict[tuple[int, int], float] = {}
        for layer in range(found.weights.shape[0]):
            seen = sum(value > -math.inf for value in masked[layer].tolist())
            for head in range(found.weights.shape[1]):
                row = found.weights[layer, head].double().tolist()
                entropy = -sum(p * math.log(p) for p in row if p > 0)
                expected = 1 - entropy / math.log(seen)
                assert float(found.sharpness[layer, head]) == pytest.approx(expected, abs=1e-6)
                greatest[layer, head] = max(p for s, p in enumerate(row) if s not in special)
        assert list(found.ranking) == sorted(greatest, key=lambda at: -greatest[at])


def test_where_one_key_is_seen_nothing_is_sharp(run_of: RunOf) -> None:
    found = word(run_of("GPT-2"), at=0)
    assert found.sharpness.isnan().all() and found.weights[..., 0].eq(1).all()


def test_the_position_that_a_reader_asks_about_first(run_of: RunOf) -> None:
    pair, writer, gaps = run_of("T5"), run_of("Llama"), run_of("BERT")
    assert pair.target is not None
    first = word(pair)
    assert (first.side, first.position, first.read, first.written) == (
        "cross", 0, pair.target.pieces[0], pair.outcome.pieces[0],
    )  # fmt: skip
    last = word(writer)
    assert (last.position, last.written) == (len(writer.outcome) - 1, writer.outcome.pieces[-1])
    mask = gaps.loaded.require_tokenizer().require("mask")
    hidden = reading(gaps.loaded, [9, mask, 11])
    assert (word(hidden).position, word(hidden).written) == (1, None)
    assert word(pair, side="encoder").written is None


def test_what_is_not_there_is_refused(run_of: RunOf) -> None:
    with pytest.raises(CutawayError, match="position 7 is not in the text, which has 7 tokens"):
        word(run_of("GPT-2"), at=7)
    with pytest.raises(CutawayError, match="side is 'encoder'"):
        word(run_of("GPT-2"), side="encoder")


def test_the_table_ranks_the_heads(cutaway: command.Run, translator: Path) -> None:
    asked = ("word", "好久不见。", "-m", translator, "--at", "1")
    found = result(cutaway, *asked)
    lines = shown(cutaway, *asked).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("head ")) + 2
    for (layer, head), line in zip(found["ranking"], lines[start:], strict=False):
        weights = found["weights"][layer][head]
        best = max(range(len(weights)), key=lambda s: weights[s])
        name, piece, weight, *_ = line.split()
        assert (name, piece) == (f"{layer}.{head}", found["keys"]["pieces"][best])
        assert float(weight) == pytest.approx(weights[best], abs=5e-4)
    assert f"when '{found['written']}' was written" in lines[0]


def test_every_head_is_a_row_of_the_drawing(run_of: RunOf) -> None:
    found = word(run_of("post-norm pair"), at=2)
    every, mean = (block for block in found.page().blocks if isinstance(block, Matrix))
    assert list(every.rows) == [f"{layer}.{head}" for layer in range(3) for head in range(4)]
    np.testing.assert_allclose(every.values, found.weights.flatten(0, 1).double().numpy())
    np.testing.assert_allclose(mean.values[0], every.values.mean(axis=0), rtol=1e-5)


def test_as_a_command_in_both_languages(cutaway: command.Run, masked: Path, poet: Path) -> None:
    asked = ("word", "我爱[MASK]。", "-m", masked)
    assert shown(cutaway, *asked).startswith("encoder self-attention: where every head looks from token ")
    assert shown_in_chinese(cutaway, *asked).startswith("编码器自注意力：在词元 3“[MASK]”处")
    assert shown_in_chinese(cutaway, "word", "好久不见", "-m", poet).startswith("解码器自注意力：写出")
    assert page_of(cutaway, *asked).count("<figure") == 2
    assert "position 99 is not in the text" in refused(cutaway, *asked, "--at", "99")


def test_one_pass(passes: Callable[[], int], translator: Path) -> None:
    read = run(load(translator), "好久不见。")
    passes()
    word(read).page()
    assert passes() == 1
