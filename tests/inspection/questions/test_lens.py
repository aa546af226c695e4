"""What the lens shows is what the model would say: recomputed by models that really lack the later blocks."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.command import Run as Command
from torch import nn

from cutaway import CutawayError, find, load
from cutaway.inspection.questions.lens import lens
from cutaway.inspection.runs import Run, run
from cutaway.models.build import Model
from cutaway.models.encoder_only import EncoderOnly
from cutaway.page.numbers import share

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("poet", "今天天气", {"at": 2, "pinned": ["好", 20], "layers": [0, -1], "max_new_tokens": 3}),
]

PRE_NORM = ["pre-norm pair", "T5", "Llama", "GPT-2", "Gemma 2", "experts", "masked, pre-norm"]
POST_NORM = ["post-norm pair", "BERT"]


def blocks_of(model: Model) -> nn.ModuleList:
    return model.encoder.layers if isinstance(model, EncoderOnly) else model.decoder.layers


@pytest.mark.parametrize("structure", PRE_NORM + POST_NORM)
def test_the_last_row_is_the_model_itself_to_the_bit(run_of: Callable[..., Run], structure: str) -> None:
    read = run_of(structure)
    logits, _ = read.forward()
    found = lens(read, top=logits.shape[1])
    assert torch.equal(found.log_probs[-1], logits.log_softmax(dim=-1).sort(dim=-1, descending=True).values)
    assert torch.equal(found.log_probs[-1], logits.log_softmax(dim=-1).gather(1, found.ids[-1]))


@pytest.mark.parametrize("structure", PRE_NORM + POST_NORM)
def test_an_earlier_row_is_what_a_model_without_the_later_blocks_says(
    run_of: Callable[..., Run], structure: str
) -> None:
    read = run_of(structure)
    found = lens(read, top=3, pinned=(5, "天"), layers=(0, 2, -1))
    assert found.layers == (0, 2, 3)
    assert (found.approximate is not None) == (structure in POST_NORM)
    for row, blocks in enumerate(found.layers):
        shorter = copy.deepcopy(read.model)
        del blocks_of(shorter)[blocks:]
        with torch.no_grad():
            scores = shorter(**read.inputs)[0].double().log_softmax(dim=-1)
        for t in range(len(found.tokens)):
            order = scores[t].argsort(descending=True).tolist()
            assert found.ids[row, t].tolist() == order[:3]
            assert found.log_probs[row, t].double() == pytest.approx(scores[t, order[:3]], abs=1e-5)
            assert found.outcome_ranks[row, t] == order.index(read.outcome.ids[t]) + 1
            assert float(found.outcome_log_probs[row, t]) == pytest.approx(
                float(scores[t, read.outcome.ids[t]]), abs=1e-4
            )
            for p, id in enumerate(found.pinned.ids):
                assert found.pinned_ranks[row, t, p] == order.index(id) + 1
                assert float(found.pinned_log_probs[row, t, p]) == pytest.approx(
                    float(scores[t, id]), abs=1e-4
                )
    assert found.pinned.ids[0] == 5 and found.pinned.pieces[1] == "天"
    readable = read.loaded.require_tokenizer().readable
    assert found.pieces[1][0][0] == readable(int(found.ids[1, 0, 0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top": 0}, "top is 0, expected at least 1"),
        ({"layers": (4,)}, "there is no number of blocks passed 4, expected 0 to 3"),
        ({"layers": ()}, "no number of blocks passed is named"),
        ({"at": 7}, "position 7 is not in the text"),
        ({"pinned": (400,)}, "token id 400 is not in the vocabulary, expected 0 to 393"),
        ({"pinned": ("今天天气",)}, "tokens in this vocabulary"),
    ],
)
def test_what_cannot_be_read_is_refused(
    run_of: Callable[..., Run], arguments: dict[str, Any], message: str
) -> None:
    read = run_of("GPT-2")
    with pytest.raises(CutawayError, match=message):
        lens(read, **arguments)


def test_a_model_without_head_has_no_words(run_of: Callable[..., Run]) -> None:
    with pytest.raises(CutawayError, match="no output head"):
        lens(run_of("no head"))


def test_a_bundled_model_settles_on_its_words_layer_by_layer() -> None:
    read = run(load(find("translate-zh-en")), "我们明天去北京。")
    found = lens(read, top=1)
    assert found.side == "decoder" and found.approximate is None
    logits, _ = read.forward()
    best = logits.log_softmax(dim=-1).max(dim=-1)
    assert torch.equal(found.log_probs[-1, :, 0], best.values)
    assert torch.equal(found.ids[-1, :, 0], best.indices)
    mean = found.outcome_log_probs.mean(dim=1)
    assert mean[-1] > mean[0] + 3


# As it is asked for.

VERSE = "今天天气"


def test_the_grid_ends_in_what_the_model_writes(cutaway: Command, poet: Path) -> None:
    lines = shown(cutaway, "lens", VERSE, "-m", poet).splitlines()
    assert lines[0] == "What each layer of the decoder would say, were it the last"
    found = lens(run(load(poet), VERSE))
    last = [found.tokens.pieces[-1], *(each[-1][0] for each in found.pieces), found.outcome.pieces[-1]]
    assert lines[2 + len(found.tokens)].split() == last
    one = shown(cutaway, "lens", VERSE, "-m", poet, "--layers", "1").splitlines()
    assert one[2 + len(found.tokens)].split() == [last[0], last[2], last[-1]]


def test_one_token(cutaway: Command, poet: Path) -> None:
    found = lens(run(load(poet), VERSE), top=2, at=-1)
    lines = shown(cutaway, "lens", VERSE, "-m", poet, "--at", "-1", "--top", "2").splitlines()
    assert lines[0].startswith(f"Token {len(VERSE)}, '{VERSE[-1]}': ")
    for line, pieces, log_probs in zip(lines[3:6], found.pieces, found.log_probs, strict=True):
        best = [f"{p} {share(float(x.exp()))}" for p, x in zip(pieces[-1], log_probs[-1], strict=True)]
        assert " ".join(line.split()).endswith(" ".join(best))
    wide = shown(cutaway, "lens", VERSE, "-m", poet, "--at", "0", "--top", "9").splitlines()
    # blocks of columns
    assert sum(line.split()[:1] == ["after"] for line in wide) > 1


def test_a_gap_is_read_by_what_the_model_puts_there(cutaway: Command, masked: Path) -> None:
    text = ["lens", "The [MASK] is fine today.", "-m", masked, "--at", "2"]
    read = run(load(masked), text[1])
    scores = read.forward()[0][2].softmax(dim=-1)
    filled = read.loaded.require_tokenizer().readable(int(scores.argmax()))
    out = shown(cutaway, *text)
    assert out.splitlines()[1].split()[:4] == ["after", "rank", "of", filled]
    assert out.splitlines()[5].split()[2:4] == ["1", share(float(scores.max()))]
    assert "\nApproximate: post-norm" in out


def test_in_chinese(cutaway: Command, poet: Path, masked: Path) -> None:
    out = shown_in_chinese(cutaway, "lens", VERSE, "-m", poet)
    assert out.startswith("假如解码器在某一层结束，它会说什么\n") and "第 1 层" in out
    assert "后置归一化" in shown_in_chinese(cutaway, "lens", "今天[MASK]", "-m", masked, "--at", "1")


def test_the_page_shades_every_reading_by_its_probability(cutaway: Command, poet: Path) -> None:
    found = lens(run(load(poet), VERSE))
    html = page_of(cutaway, "lens", VERSE, "-m", poet)
    assert html.count("background:rgba(26,112,224,") >= found.ids.shape[0] * found.ids.shape[1]
    best = f"{found.pieces[-1][-1][0]} {share(float(found.log_probs[-1, -1, 0].exp()))}"
    assert f'title="{best}  ' in html


def test_one_pass_json_and_arrays(
    cutaway: Command, passes: Callable[[], int], poet: Path, tmp_path: Path
) -> None:
    read = run(load(poet), VERSE)
    passes()
    found = lens(read)
    assert passes() == 1
    given = result(cutaway, "lens", VERSE, "-m", poet)
    assert given["outcome_ranks"] == found.outcome_ranks.tolist()
    path = tmp_path / "lens.safetensors"
    assert cutaway("inspect", "lens", VERSE, "-m", poet, "--save", path).code == 0
    assert torch.equal(load_file(path)["log_probs"], found.log_probs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--layers", "1,x"), "layers is '1,x', expected whole numbers"),
        (("--at", "9"), "position 9 is not in the text"),
        (("--top", "0"), "top"),
        (("--layers", "4"), "there is no number of blocks passed 4, expected 0 to 2"),
    ],
)
def test_what_is_refused(cutaway: Command, poet: Path, options: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, "lens", "好", "-m", poet, *options)


def test_a_model_without_words_is_refused(cutaway: Command, headless: Path) -> None:
    assert "lens needs an output head" in refused(cutaway, "lens", "今天", "-m", headless)
