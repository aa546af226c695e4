"""Forced decoding: every counted token once, padding never, the end token always."""

import pytest
import torch
from tests.nearness import tolerance

from cutaway.decode.score import score, score_continuations, score_targets
from cutaway.text.batches.batch import IGNORED

EOS = 2
SUMMED = 5 * 40  # two layers on each side and the output, none wider than 40


@pytest.mark.parametrize("kind", ["marian", "t5"])
def test_targets_are_scored_alike_alone_and_together(tiny, kind: str):
    model = tiny(kind)
    sources = [[5, 6, 7, 8, EOS], [9, EOS], [10, 11, 12, EOS]]
    targets = [[3, EOS], [4, 5, 6, 7, 8, EOS], [EOS]]
    together = score_targets(model, sources, targets)
    for source, target, log_probs in zip(sources, targets, together, strict=True):
        with torch.no_grad():
            logits = model(source=torch.tensor([source]), target=torch.tensor([[0, *target[:-1]]]))[0]
        near = tolerance(float(logits.abs().max()), SUMMED)
        assert score_targets(model, [source], [target])[0] == pytest.approx(log_probs, abs=near)
        expected = logits.log_softmax(dim=-1)[range(len(target)), target]
        assert log_probs == pytest.approx(expected.tolist(), abs=near)


def test_an_empty_target_is_the_end_tokens_probability(tiny):
    model = tiny("marian")
    ((log_prob,),) = score_targets(model, [[5, 6, EOS]], [[EOS]])
    with torch.no_grad():
        logits = model(source=torch.tensor([[5, 6, EOS]]), target=torch.tensor([[0]]))
    near = tolerance(float(logits.abs().max()), SUMMED)
    assert log_prob == pytest.approx(float(logits[0, 0].log_softmax(dim=-1)[EOS]), abs=near)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "alibi"])
def test_continuations_are_scored_alike_alone_and_together(tiny, kind: str):
    model = tiny(kind)
    prompts, targets = [[5], [6, 7, 8, 9]], [[3, 4, 5, EOS], [EOS]]
    together = score_continuations(model, prompts, targets)
    for prompt, target, log_probs in zip(prompts, targets, together, strict=True):
        with torch.no_grad():
            logits = model(ids=torch.tensor([[*prompt, *target]]))[0]
        near = tolerance(float(logits.abs().max()), SUMMED)
        assert score_continuations(model, [prompt], [target])[0] == pytest.approx(log_probs, abs=near)
        expected = logits.log_softmax(dim=-1)[range(len(prompt) - 1, len(prompt) + len(target) - 1), target]
        assert log_probs == pytest.approx(expected.tolist(), abs=near)


def test_only_counted_labels_are_scored_and_each_once(tiny):
    model = tiny("gpt2")
    ids = torch.randint(3, 29, (20, 40))
    labels = ids.roll(-1, dims=1).masked_fill(torch.rand(20, 40) < 0.3, IGNORED)
    labels[4] = IGNORED
    found = score(model, {"ids": ids}, labels)
    with torch.no_grad():
        logits = model(ids=ids)
    log_probs, near = logits.log_softmax(dim=-1), tolerance(float(logits.abs().max()), SUMMED)
    for row, values in enumerate(found):
        counted = labels[row] != IGNORED
        expected = log_probs[row][counted].gather(1, labels[row][counted][:, None])[:, 0]
        assert values == pytest.approx(expected.tolist(), abs=near)
    assert found[4] == []


def test_nothing_counted_gives_empty_rows(tiny):
    assert score(tiny("gpt2"), {"ids": torch.tensor([[3, 4]])}, torch.full((1, 2), IGNORED)) == [[]]
