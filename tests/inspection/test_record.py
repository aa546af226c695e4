"""What a whole record takes is known before it is made."""

from collections.abc import Callable

import pytest

from cutaway.errors import TooLarge
from cutaway.inspection.arithmetic import record
from cutaway.inspection.arithmetic.record import Record, recorded_bytes
from cutaway.inspection.questions.explain import explain
from cutaway.inspection.runs import Run


@pytest.mark.parametrize(
    "structure", ["post-norm pair", "T5", "Llama", "GPT-2", "Gemma 2", "BERT", "no head", "pair with experts"]
)
def test_its_size_is_that_of_all_taps(structure: str, run_of: Callable[..., Run]) -> None:
    run = run_of(structure)
    held = sum(each.numel() * each.element_size() for each in Record(run).taps.values())
    # the numbers of experts are whole ones, of eight bytes
    assert recorded_bytes(run) == pytest.approx(held, rel=0 if "experts" not in structure else 0.005)


def test_too_large_a_record_is_refused_and_says_what_would_fit(
    run_of: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("Llama")
    assert run.target is not None
    tokens = len(run.target)
    monkeypatch.setattr(record, "MOST", recorded_bytes(run) // 2)
    with pytest.raises(TooLarge) as told:
        explain(run)
    fitting = told.value.message.values["fitting"]
    assert isinstance(fitting, int) and 0 < fitting < tokens
    assert recorded_bytes(run, fitting / tokens) <= record.MOST < recorded_bytes(run, (fitting + 1) / tokens)
