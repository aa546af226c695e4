"""What a run is judged by: which tokens, at which positions, how probable; and divergence, against plain sums."""

import math
from collections.abc import Callable

import pytest
import torch
from tests.inspection.tokens import reading

from cutaway import find, load
from cutaway.inspection.outcome import (
    divergence,
    forced_tokens,
    log_probs_of,
    masked_positions,
    never_written,
    output_of,
    usual_position,
    written_token,
)
from cutaway.inspection.runs import Run, run
from cutaway.zoo import MASKED, POET, TRANSLATOR

RunOf = Callable[..., Run]


def test_it_is_the_sum_over_what_has_probability() -> None:
    p, q = [0.5, 0.25, 0.25, 0.0], [0.25, 0.5, 0.25, 0.0]
    expected = math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a)
    rows = torch.tensor([p, q, [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64).log()
    found = divergence(rows, torch.tensor([q, q, [0.0, 1.0, 0.0, 0.0]], dtype=torch.float64).log())
    torch.testing.assert_close(found, torch.tensor([expected, 0.0, math.inf], dtype=torch.float64))


@pytest.mark.parametrize(
    ("model", "text", "said", "usual"),
    [
        (POET, "床前明月光", "every token after the first", -1),
        (MASKED, "She was [MASK] happy.", "what the model puts in the gaps", 3),
        (MASKED, "She was happy.", "every token of the text", -1),
        (TRANSLATOR, "好久不见。", "the translation", 0),
    ],
)
def test_the_output_that_a_run_is_judged_by_is_named(model: str, text: str, said: str, usual: int) -> None:
    asked = run(load(find(model)), text)
    logits, _ = asked.forward()
    judged = forced_tokens(asked, logits)
    assert output_of(asked).said("en").startswith(said) and usual_position(asked) == usual
    assert judged.positions == ([3] if "gaps" in said else list(range(len(asked.outcome))))
    others = [id for place, id in enumerate(asked.outcome.ids) if place not in masked_positions(asked)]
    assert [id for place, id in enumerate(judged.ids) if place not in masked_positions(asked)] == others


def test_a_gap_is_filled_with_what_may_be_written(run_of: RunOf) -> None:
    """The most probable token is made a control token: the next one is taken."""
    loaded = run_of("BERT").loaded
    mask = loaded.require_tokenizer().require("mask")
    asked = reading(loaded, [9, mask, 11])
    scores = torch.zeros(loaded.config.vocab_size)
    scores[mask], scores[7] = 9.0, 5.0
    assert mask in never_written(asked)
    assert (written_token(asked, scores, 1), written_token(asked, scores, 0)) == (7, 9)


def test_log_probabilities_are_those_of_the_counted_tokens(
    run_of: RunOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = run_of("Gemma 2")
    monkeypatch.setattr(
        "cutaway.inspection.outcome._ROWS",
        3,
        # several rows of logits at a time, the last ones few
    )
    states, logits = asked.hidden()[0], asked.forward()[0]
    forced = forced_tokens(asked, logits)
    found = log_probs_of(asked.model, torch.stack([states, states * 2]), forced)
    assert found.shape == (2, len(asked.outcome))
    expected = logits.double().log_softmax(dim=-1)[range(len(asked.outcome)), asked.outcome.ids]
    torch.testing.assert_close(found[0].double(), expected, rtol=1e-4, atol=1e-4)
    assert not torch.equal(found[0], found[1])
