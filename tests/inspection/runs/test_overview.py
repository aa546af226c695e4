"""A run at a glance, checked against the model's own logits and the sweep."""

from collections.abc import Callable

import pytest
import torch

from cutaway import load
from cutaway.errors import CutawayError
from cutaway.inspection import overview, run, sweep
from cutaway.inspection.runs import Run
from cutaway.zoo import MASKED, POET, TRANSLATOR, find


@pytest.mark.parametrize("structure", ["post-norm pair", "Llama", "experts", "BERT"])
def test_log_probabilities_are_the_models_own(run_of: Callable[..., Run], structure: str) -> None:
    looked = run_of(structure)
    found = overview(looked, 3)
    logits, _ = looked.forward()
    scores = logits.double().log_softmax(dim=-1)
    expected = scores[range(len(found.outcome)), found.outcome.ids]
    torch.testing.assert_close(found.log_probs.double(), expected, atol=1e-5, rtol=0)
    assert found.heads == sweep(looked).ranking[:3] and found.vector is None
    for each in found.expected:
        order = scores[each.position].argsort(descending=True)[: len(each.words)].tolist()
        assert [word.id for word in each.words] == order
        assert each.words[0].value == pytest.approx(float(scores[each.position].max()), abs=1e-5)


def test_where_it_tells_what_else_could_have_been() -> None:
    translated = overview(run(load(find(TRANSLATOR)), "好久不见。"), 1)
    assert translated.text == "It's been a long time."
    assert [each.position for each in translated.expected] == [int(translated.log_probs.argmin())]
    verse = overview(run(load(find(POET)), "床前明月光", max_new_tokens=1), 1)
    assert [each.position for each in verse.expected] == [5] and verse.text == ""
    gaps = overview(run(load(find(MASKED)), "A [MASK] and a [MASK]."), 1)
    assert [each.position for each in gaps.expected] == [2, 5]
    assert gaps.outcome.ids[2] == gaps.expected[0].words[0].id
    assert overview(run(load(find(MASKED)), "no gap"), 1).expected == ()


def test_it_draws_itself_in_both_languages() -> None:
    found = overview(run(load(find(TRANSLATOR)), "好久不见。"))
    assert found.to_text(locale="zh").startswith("translate-zh-en 怎样处理这段文字\n原文 ")
    assert found.to_text(locale="en").startswith("What translate-zh-en makes of this text\nsource ")
    assert "▁long" in found._repr_html_() and "▁long" in found.to_svg()


def test_at_least_one_head(run_of: Callable[..., Run]) -> None:
    with pytest.raises(CutawayError, match="top is 0, expected at least 1"):
        overview(run_of("Llama"), 0)
