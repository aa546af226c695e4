"""One word through the layers of a model in two texts, against hooks of torch and plain loops."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.inspection.tokens import reading
from torch import Tensor

from cutaway import CutawayError, find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.inspection.questions.drift import drift, find_word
from cutaway.inspection.runs import Run, Tokens, run
from cutaway.inspection.vectors import table_of
from cutaway.inspection.wiring import StackName
from cutaway.nn.stack import Stack
from cutaway.page.blocks import Matrix, Points
from cutaway.zoo import MASKED, POET, TRANSLATOR

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("translator", "今天很好。", {"other": "天气今天", "word": "今天", "occurrences": [1, 1], "to": "en"}),
]

RunOf = Callable[..., Run]
FIRST, SECOND, WORD = "她是一位美女。", "街上的美女很多。", "美女"


@pytest.fixture(scope="module")
def masked_bundled() -> Loaded:
    return load(find(MASKED))


@pytest.fixture(scope="module")
def translator_bundled() -> Loaded:
    return load(find(TRANSLATOR))


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def streams(asked: Run, side: str) -> Tensor:
    """(P, T, D): what goes into and out of each block, seen by torch's own hooks and not by taps."""
    model, inputs = asked.model, asked.inputs
    stack = model.get_submodule(side)
    assert isinstance(stack, Stack)
    kept: list[Tensor] = []

    def keep(_: object, given: tuple[Tensor, ...], out: Tensor) -> None:
        kept.extend([out] if kept else [given[0], out])

    hooks = [layer.register_forward_hook(keep) for layer in stack.layers]
    with torch.no_grad():
        model.hidden(**inputs)
        for hook in hooks:
            hook.remove()
        ids = inputs[{"encoder": "source", "decoder": "target"}[side] if "source" in inputs else "ids"]
        static = table_of(asked.loaded).vectors[ids] * model.config.embed_scale
        final = [stack.norm(kept[-1])] if model.config.has_final_norm else []
    return torch.cat([static, *kept, *final])


@pytest.mark.parametrize(
    ("structure", "side"),
    [("post-norm pair", "encoder"), ("pre-norm pair", "decoder"), ("GPT-2", "decoder"), ("Gemma 2", "decoder"),
     ("BERT", "encoder"), ("no head", "encoder")],
)  # fmt: skip
def test_a_word_is_followed_through_every_layer(run_of: RunOf, structure: str, side: StackName) -> None:
    loaded = run_of(structure).loaded
    tokenizer = loaded.require_tokenizer()
    ids, before, after = (tokenizer.encode(text).ids for text in ("天气", "今", "很好"))
    texts = [[*before, *ids, *after], [*ids, *after, *before]]
    first, second = (reading(loaded, text, text) for text in texts)
    found = drift(first, second, "天气", side=side, top=3)
    at = [list(range(text.index(ids[0]), text.index(ids[0]) + len(ids))) for text in texts]
    assert [list(found.first.positions), list(found.second.positions)] == at
    means = [
        streams(each, side)[:, places].double().mean(dim=1)
        for each, places in zip((first, second), at, strict=True)
    ]
    n = len(means[0])
    assert len(found.stages) == n and found.same_pieces and found.side == side
    assert found.stages[0].endswith("embed.embed") and found.stages[1] == f"{side}.layers.0.resid_pre"
    last = "normed" if loaded.config.has_final_norm else f"layers.{n - 3}.resid_post"
    assert found.stages[-1] == f"{side}.{last}"
    pair = structure.endswith("pair")
    table = table_of(loaded, "unembedding" if pair and side == "decoder" else "embedding")
    assert found.table == table.name
    rows = table.vectors.detach().double().tolist()
    for mean, path in zip(means, (found.first, found.second), strict=True):
        torch.testing.assert_close(path.vectors.double(), mean, rtol=1e-4, atol=1e-5)
        points = mean.tolist()
        distances = [math.dist(point, points[0]) for point in points]
        torch.testing.assert_close(path.static_distances.tolist(), distances, rtol=1e-4, atol=1e-4)
        cosines = [cosine(point, points[0]) for point in points]
        torch.testing.assert_close(path.static_cosines.tolist(), cosines, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            path.lengths.tolist(), [math.hypot(*point) for point in points], rtol=1e-4, atol=0
        )
        for point, near in zip(points, path.neighbours, strict=True):
            assert [each.id for each in near] == sorted(
                range(len(rows)), key=lambda id: -cosine(rows[id], point)
            )[:3]
    expected = [cosine(a, b) for a, b in zip(*(mean.tolist() for mean in means), strict=True)]
    torch.testing.assert_close(found.cosines.tolist(), expected, rtol=1e-4, atol=1e-5)
    both = torch.cat(means).numpy()
    drawn = torch.cat([found.first.path, found.second.path]).numpy()
    np.testing.assert_allclose(drawn, (both - both.mean(axis=0)) @ found.axes.axes.numpy().T, atol=1e-3)


def test_a_word_of_several_pieces_is_found_as_often_as_it_is_there(
    translator_bundled: Loaded, masked_bundled: Loaded
) -> None:
    tokenizer = translator_bundled.require_tokenizer()

    def tokens(text: str) -> Tokens:
        encoding = tokenizer.encode(text)
        return Tokens([3, *encoding.ids], ["</s>", *encoding.pieces])

    text = tokens("美女与野兽，美女和女人")
    assert text.pieces[1:3] == ["美", "女"]
    assert find_word(text, "美女", tokenizer) == (1, 2)
    second = find_word(text, "美女", tokenizer, 2)
    assert [text.pieces[position] for position in second] == ["美", "女"] and second != (1, 2)
    with pytest.raises(CutawayError, match="occurrence is 3, expected 1 to 2"):
        find_word(text, "美女", tokenizer, 3)
    with pytest.raises(CutawayError, match=r"'猫' is not in the text.*pieces: .*美 女"):
        find_word(text, "猫", tokenizer)
    with pytest.raises(CutawayError, match="is not in the text"):
        find_word(text, "", tokenizer)
    english = tokens("The king saw a cat.")
    assert find_word(english, "king", tokenizer) == (english.pieces.index("▁king"),)
    rare = tokens("鱻在这里")  # spelled in bytes
    assert find_word(rare, "鱻", tokenizer) == tuple(range(1, len(tokenizer.encode("鱻").ids) + 1))
    folded = run(masked_bundled, "She went to the bank.")
    assert folded.source is not None
    assert find_word(folded.source, "Bank", masked_bundled.require_tokenizer()) == (
        folded.source.pieces.index("bank"),
    )


def test_words_in_context_in_the_bundled_models(translator_bundled: Loaded, masked_bundled: Loaded) -> None:
    first, second = (run(translator_bundled, text, target="Yes.") for text in (FIRST, SECOND))
    found = drift(first, second, WORD)
    assert found.same_pieces and found.first.pieces == ("美", "女") and found.side == "encoder"
    assert float(found.cosines[0]) == pytest.approx(1, abs=1e-6) and 0 < float(found.cosines[-1]) < 1
    # its own, before any context
    assert found.first.neighbours[0][0].piece in ("美", "女")
    river = run(masked_bundled, "She sat on the bank of the river.")
    money = run(masked_bundled, "The bank lent him money.")
    parted = drift(river, money, "bank", table="unembedding", measure="dot")
    assert parted.table == "unembedding" and len(parted.stages) == 2 + 4
    assert float(parted.cosines[-1]) < float(parted.cosines[0]) == pytest.approx(1)
    poem = run(load(find(POET)), "明月几时有，明月夜")
    same = drift(poem, replace(poem), "明月")
    torch.testing.assert_close(same.cosines, torch.ones(len(same.stages), dtype=torch.float64))
    moved = drift(poem, poem, "月", occurrences=(1, 2))
    assert moved.first.positions != moved.second.positions and float(moved.cosines[-1]) < 1


def test_what_is_not_there_is_refused(
    run_of: RunOf, translator_bundled: Loaded, masked_bundled: Loaded
) -> None:
    river, first = run(masked_bundled, "the bank"), run(translator_bundled, FIRST, target="Yes.")
    with pytest.raises(CutawayError, match="different models"):
        drift(river, first, "bank")
    with pytest.raises(CutawayError, match="side is 'cross', expected encoder or decoder"):
        drift(first, first, WORD, side=cast(Any, "cross"))
    with pytest.raises(CutawayError, match="'猫' is not in the text"):
        drift(first, first, "猫")
    with pytest.raises(CutawayError, match="occurrence is 2, expected 1 to 1"):
        drift(first, first, WORD, occurrences=(1, 2))
    with pytest.raises(CutawayError, match="occurrences has 1 numbers, expected one for each text"):
        drift(first, first, WORD, occurrences=(1,))
    with pytest.raises(CutawayError, match="top is 0, expected at least 1"):
        drift(first, first, WORD, top=0)


def test_the_page_has_a_row_for_every_stage(cutaway: command.Run) -> None:
    asked = ("drift", FIRST, "--other", SECOND, "--word", WORD)
    lines, found = shown(cutaway, *asked).splitlines(), result(cutaway, *asked)
    assert lines[0] == "'美女' in two sentences (encoder)"
    assert lines[2].split() == ["second", *found["second"]["text"]]
    last = next(line for line in lines if line.startswith("final norm ")).split()
    assert last[2] == f"{found['cosines'][-1]:.3f}"
    near = [*found["first"]["neighbours"][-1][:3], *found["second"]["neighbours"][-1][:3]]
    assert last[3:] == [each["piece"] for each in near]
    assert sum(line.startswith("layer ") for line in lines) == 4
    chinese = shown_in_chinese(cutaway, *asked)
    assert chinese.startswith("两段文字中的“美女”（编码器）\n第一段       >>eng<< 她 ")
    assert page_of(cutaway, *asked).count("<polyline") == 2


def test_the_drawing_is_of_both_paths(masked_bundled: Loaded) -> None:
    texts = ("She sat on the bank.", "The bank lent him money.")
    first, second = (run(masked_bundled, text) for text in texts)
    found = drift(first, second, "bank")
    (plane,) = (block for block in found.page().blocks if isinstance(block, Points))
    n = len(found.stages)
    assert [list(path) for path in plane.paths] == [list(range(n)), list(range(n, 2 * n))]
    drawn = torch.tensor([(point.x, point.y) for point in plane.points], dtype=torch.float64)
    torch.testing.assert_close(drawn, torch.cat([found.first.path, found.second.path]))
    (parted,) = (block for block in found.page().blocks if isinstance(block, Matrix))
    assert parted.values[2].tolist() == found.cosines.tolist()


def test_as_a_command(cutaway: command.Run, poet: Path) -> None:
    asked = ("drift", "今天很好", "-m", poet, "--other", "天气很好", "--word", "天")
    assert cutaway("inspect", *asked, "--save", "drift.safetensors").code == 0
    found = result(cutaway, *asked)
    torch.testing.assert_close(load_file("drift.safetensors")["cosines"].tolist(), found["cosines"])
    assert found["side"] == "decoder"
    twice = result(
        cutaway, "drift", "天天", "-m", poet, "--other", "天天", "--word", "天", "--occurrences", "1,2"
    )
    assert (twice["first"]["positions"], twice["second"]["positions"]) == ([1], [2])
    whole = ("drift", "今天", "-m", poet)
    assert "cutaway inspect drift needs --word; see" in refused(cutaway, *whole, "--other", "天")
    assert "cutaway inspect drift needs --other; see" in refused(cutaway, *whole, "--word", "天")
    assert "occurrences is 0, expected at least 1" in refused(cutaway, *asked, "--occurrences", "0,1")
    assert "occurrences is 'x', expected whole numbers" in refused(cutaway, *asked, "--occurrences", "x")
    assert "--side is cross, expected encoder or decoder" in refused(cutaway, *asked, "--side", "cross")


def test_one_pass_of_each_text(passes: Callable[[], int], translator: Path) -> None:
    loaded = load(translator)
    first, second = run(loaded, "今天很好。", target="a"), run(loaded, "天气今天很好。", target="a")
    passes()
    drift(first, second, "今天").page()
    assert passes() == 2
