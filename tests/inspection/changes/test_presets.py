"""Changes to try first: each is one that the model can be given, and does something."""

from collections.abc import Callable

import pytest

from cutaway import find, load
from cutaway.inspection.changes.presets import presets
from cutaway.inspection.questions.diff import diff
from cutaway.inspection.questions.sweep import sweep
from cutaway.inspection.runs import Run, run
from cutaway.zoo import MASKED, POET, TRANSLATOR

TEXTS = {TRANSLATOR: "她的妹妹在北京工作。", POET: "明月松间照", MASKED: "The [MASK] sat on the throne."}
NAMES = ["scale", "positions", "future", "strongest", "uniform", "first"]


@pytest.mark.parametrize("model", TEXTS)
def test_every_preset_runs_and_does_something(model: str) -> None:
    loaded = load(find(model))
    asked = run(loaded, TEXTS[model])
    found = presets(loaded.config)
    assert [each.name for each in found] == NAMES
    for preset in found:
        if preset.lacks is not None:
            assert (model, preset.name) == (MASKED, "future")
            continue
        changes = preset.changes
        if changes is None:
            best = sweep(asked).ranking[0]
            changes = [{"op": "head", "side": best.side, "layer": best.layer, "head": best.head}]
        effect = diff(asked, changes, writing=False)
        assert effect.difference.abs().max() > 0.01, preset.name
        if preset.name == "first":
            # nothing is added after the first layer
            assert all(each.first(1e-5) in (1, 2) for each in effect.departures)


@pytest.mark.parametrize(
    ("structure", "lacking"),
    [("T5", {"scale"}), ("BERT", {"future"}), ("GPT-2", set()), ("no head", {"future"})],
)
def test_what_a_model_lacks_is_said(structure: str, lacking: set[str], run_of: Callable[..., Run]) -> None:
    asked = run_of(structure)
    found = presets(asked.model.config)
    assert {each.name for each in found if each.lacks is not None} == lacking
    assert ("cosine" in str(found[0].look)) == (structure == "no head")
    for preset in found:
        if preset.lacks is None and preset.changes is not None:
            diff(asked, preset.changes, writing=False)


def test_one_layer_is_the_first_already(run_of: Callable[..., Run]) -> None:
    config = run_of("post-norm pair", n_layers=1, n_encoder_layers=2).model.config
    first = presets(config)[-1]
    assert first.changes == [{"op": "layer", "side": "encoder", "layer": 1}]
    assert first.lacks is None
    assert presets(run_of("GPT-2", n_layers=1).model.config)[-1].lacks is not None
