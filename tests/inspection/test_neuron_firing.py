"""One neuron fires as the network's own modules say, at every token of a text."""

from collections.abc import Callable

import pytest
import torch
from tests.inspection.networks import activations, recorded, stack_of

from cutaway import CutawayError
from cutaway.inspection.neuron_firing import firing
from cutaway.inspection.runs import Run
from cutaway.page.blocks import Shaded


@pytest.mark.parametrize("structure", ["GPT-2", "T5", "BERT"])
def test_where_a_neuron_fires(run_of: Callable[..., Run], structure: str) -> None:
    read = run_of(structure)
    _, layers = stack_of(read)
    entered, _ = recorded(read, layers[1].get_submodule("mlp.down"))
    assert torch.allclose(firing(read, 1, 17).activations, entered[0, :, 17], atol=1e-6)


def test_where_a_neuron_of_an_expert_fires(run_of: Callable[..., Run]) -> None:
    read = run_of("experts", length=20)
    _, layers = stack_of(read)
    network = layers[2].get_submodule("mlp")
    entered, _ = recorded(read, network)
    chosen = network.get_submodule("router")(entered[0]).topk(2).indices
    for expert in range(5):
        found = firing(read, 2, 4, expert=expert).activations
        for t in range(20):
            if expert in chosen[t]:
                value = activations(network.get_submodule(f"experts.{expert}"), entered[0, t])[4]
                assert float(found[t]) == pytest.approx(float(value), rel=1e-4, abs=1e-6)
            else:
                assert found[t].isnan()


def test_the_page_leaves_out_tokens_that_an_expert_was_not_given(run_of: Callable[..., Run]) -> None:
    found = firing(run_of("experts", length=20), 2, 4, expert=1)
    worked = [value for value in found.activations.tolist() if value == value]
    assert 0 < len(worked) < 20
    shaded = found.page().blocks[0]
    assert isinstance(shaded, Shaded) and list(shaded.values) == pytest.approx(worked)
    assert f"分到 20 个词元中的 {len(worked)} 个" in found.to_text(locale="zh")
    whole = firing(run_of("GPT-2"), 1, 17)
    (shaded,) = whole.page().blocks
    assert isinstance(shaded, Shaded) and list(shaded.tokens) == whole.tokens.pieces


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: firing(r, 1, 40), "the network of layer 1 has no neuron 40: expected 0 to 39"),
        (lambda r: firing(r, 1, 4, expert=0), "layer 1 has one plain network"),
        (lambda r: firing(r, 0, 4), "layer 0 is a mixture: expected an expert from 0 to 4"),
        (lambda r: firing(r, 0, 16, expert=1), "expert 1 of layer 0 has no neuron 16: expected 0 to 15"),
        (lambda r: firing(r, 3, 0), "there is no layer 3, expected 0 to 2"),
    ],
)
def test_what_is_not_there_is_refused(
    run_of: Callable[..., Run], ask: Callable[[Run], object], message: str
) -> None:
    with pytest.raises(CutawayError, match=message):
        ask(run_of("experts"))
