"""What the lens shows is what the model would say: recomputed by models that really lack the later blocks."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from cutaway import CutawayError, find, load
from cutaway.inspection.questions.lens import lens
from cutaway.inspection.runs import Run, run
from cutaway.models.build import Model
from cutaway.models.encoder_only import EncoderOnly

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
    found = lens(read, top=3, pinned=[5, "天"], layers=[0, 2, -1])
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
        ({"layers": [4]}, "no layer 4: expected 0 to 3"),
        ({"layers": []}, "layers is empty"),
        ({"pinned": [400]}, "token id 400 is not in the vocabulary, expected 0 to 393"),
        ({"pinned": ["今天天气"]}, "tokens in this vocabulary"),
        ({"pinned": "天"}, r"expected a list of tokens: \['天'\]"),
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
