"""Pages of neurons and experts, as a notebook shows them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cutaway.inspection import firing, memory, routing
from cutaway.inspection.pages.routing import DETAILED
from cutaway.inspection.runs import Run
from cutaway.page.blocks import Bar, Matrix, Shaded, Table


def test_a_neuron_over_the_text(run_of: Callable[..., Run]) -> None:
    found = firing(run_of("GPT-2"), 1, 17)
    (shaded,) = found.page().blocks
    assert isinstance(shaded, Shaded)
    assert list(shaded.values) == pytest.approx(found.activations.tolist())
    assert list(shaded.tokens) == found.tokens.pieces
    assert found.to_text().startswith("Where neuron 17 of decoder layer 1 fires\n")
    assert found.to_text(locale="zh").startswith("解码器第 1 层神经元 17 在何处激活\n")


def test_an_experts_neuron_has_no_value_where_it_was_not_at_work(run_of: Callable[..., Run]) -> None:
    found = firing(run_of("experts", length=20), 2, 4, expert=1)
    worked = [value for value in found.activations.tolist() if value == value]
    assert 0 < len(worked) < 20
    shaded = found.page().blocks[0]
    assert isinstance(shaded, Shaded) and list(shaded.values) == pytest.approx(worked)
    assert f"分到 20 个词块中的 {len(worked)} 个" in found.to_text(locale="zh")
    assert "nan" not in found.to_html().lower()


@pytest.mark.parametrize("structure", ["GPT-2", "experts"])
def test_the_heat_maps_of_neurons_are_their_numbers(run_of: Callable[..., Run], structure: str) -> None:
    found = memory(run_of(structure), 2, 3, top=4, words=2)
    of_text = found.page().blocks[-1]
    assert isinstance(of_text, Matrix) and of_text.drawn
    for row, neuron in zip(of_text.values.tolist(), found.neurons, strict=True):
        assert row[3] == pytest.approx(neuron.activation)
    assert list(of_text.columns) == list(found.pieces)
    assert "NaN" not in found.to_svg() and len(found.to_html()) < 200_000


def test_routing_lists_every_token_and_load(run_of: Callable[..., Run]) -> None:
    found = routing(run_of("experts", length=20))
    page = found.layers[1].page()
    tokens, loads = [block for block in page.blocks if isinstance(block, Table)]
    assert len(tokens.rows) == 20
    assert [row[3] for row in loads.rows] == [Bar(load) for load in found.layers[1].load.tolist()]
    whole = found.page()
    assert len([block for block in whole.blocks if isinstance(block, Table)]) == 2 * len(found.layers)
    last = whole.blocks[-1]
    assert isinstance(last, Matrix)
    assert last.values.tolist() == [each.load.double().tolist() for each in found.layers]


def test_routing_of_many_layers_is_told_token_by_token_for_the_first_ones(
    run_of: Callable[..., Run],
) -> None:
    found = routing(run_of("experts", length=20))
    many = replace(found, layers=found.layers * 30)
    blocks = many.page().blocks
    assert len([block for block in blocks if isinstance(block, Table)]) == 2 * (DETAILED // 20)
    assert f"Token by token: the first {DETAILED // 20} of 60 layers" in many.to_text(columns=200)
    last = blocks[-1]
    assert isinstance(last, Matrix) and len(last.rows) == 60
