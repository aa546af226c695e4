"""Single neurons, experts, vectors and words changed are weights, hooks, ids or logits changed."""

import math
from dataclasses import replace

import pytest
import torch
from tests.inspection.changes.altered import (
    Change,
    RunOf,
    block_of,
    changed,
    differ,
    other,
    same,
    sides,
    stack_of,
)  # fmt: skip
from torch import Tensor, nn

from cutaway.inspection.changes.making import edits
from cutaway.inspection.runs import Run, Tokens
from cutaway.models.build import Model
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.moe import MoE


def test_a_neuron_is_a_column_of_the_second_matrix(run: Run) -> None:
    for side in sides(run, cross=False):
        if isinstance(block_of(run.model, side, 1).mlp, MoE):
            continue

        def scaled(model: Model, side: str = side) -> None:
            block_of(model, side, 1).mlp.get_submodule("down").get_parameter("weight")[:, 7] *= -3

        def fixed(model: Model, side: str = side) -> None:
            down = block_of(model, side, 1).mlp.get_submodule("down")
            assert isinstance(down, nn.Linear)
            constant = 2.5 * down.weight[:, 7]
            down.bias = nn.Parameter(constant if down.bias is None else down.bias + constant)
            down.weight[:, 7] = 0

        at: Change = {"op": "neuron", "side": side, "layer": 1, "n": 7}
        same(changed(run, {**at, "scale": -3}), other(run, scaled))
        same(changed(run, {**at, "value": 2.5}), other(run, fixed))


def test_one_token_of_a_neuron_leaves_the_others(run_of: RunOf) -> None:
    run = run_of("GPT-2")
    name = "decoder.layers.0.mlp.hidden"
    base = run.forward([name])[1][name][0]
    change = edits([{"op": "neuron", "layer": 0, "n": 4, "token": 3, "value": 9}], run)
    logits, trace = run.forward([name], change)
    expected = base.clone()
    expected[3, 4] = 9
    assert torch.equal(trace[name][0], expected)
    moved = (logits - run.forward()[0]).abs().amax(dim=1)
    assert not moved[:3].any() and moved[3:].all()


@pytest.mark.parametrize(("structure", "side"), [("experts", "decoder"), ("pair with experts", "encoder")])
def test_a_banned_expert_is_one_with_no_score(structure: str, side: str, run_of: RunOf) -> None:
    run = run_of(structure)

    def ban(model: Model) -> None:
        for layer in range(len(stack_of(model, side).layers)):
            network = block_of(model, side, layer).mlp
            if isinstance(network, MoE):
                network.router.bias = nn.Parameter(torch.tensor([0.0, -math.inf, 0.0, -math.inf, 0.0]))

    found = changed(run, {"op": "expert", "side": side, "layer": "*", "ban": [1, 3]})
    same(found, other(run, ban))
    differ(found, run.forward()[0])


def test_a_forced_expert_takes_the_last_place_with_its_own_weight(run_of: RunOf) -> None:
    run = run_of("experts")
    path = "decoder.layers.0.mlp"
    names = [f"{path}.{name}" for name in ("router", "expert_index", "expert_weight", "out")]
    _, base = run.forward(names)
    _, trace = run.forward(names, edits([{"op": "expert", "layer": 0, "force": [4]}], run))
    _, at_two = run.forward(names, edits([{"op": "expert", "layer": 0, "force": [4], "token": 2}], run))
    probabilities = base[names[0]][0].softmax(dim=-1)
    differing = 0
    for t, before in enumerate(base[names[1]][0].tolist()):
        expected = [4, next(expert for expert in before if expert != 4)]
        differing += 4 not in before
        assert trace[names[1]][0, t].tolist() == expected
        assert at_two[names[1]][0, t].tolist() == (expected if t == 2 else before)
        weights = probabilities[t, expected]
        torch.testing.assert_close(trace[names[2]][0, t], weights / weights.sum())
    assert differing


def test_a_patched_residual_stream_is_the_other_runs(run: Run, run_of: RunOf) -> None:
    side = sides(run)[-2 if isinstance(run.model, EncoderDecoder) else -1]
    tokens = run.source if side == "encoder" else run.target
    assert tokens is not None
    turned = Tokens(tokens.ids[::-1], tokens.pieces[::-1])
    second = replace(run, **{"source" if side == "encoder" else "target": turned})
    seen: list[Tensor] = []
    block = block_of(run.model, side, 1)
    with torch.no_grad():
        handle = block.register_forward_hook(lambda *called: seen.append(called[-1]))
        second.model(**second.inputs)
        handle.remove()

        def put(_module: nn.Module, _inputs: object, out: Tensor) -> Tensor:
            out = out.clone()
            out[0, 2] = seen[0][0, 4]
            return out

        handle = block.register_forward_hook(put)
        expected = run.model(**run.inputs)[0]
        handle.remove()
    change: Change = {"op": "resid", "side": side, "layer": 1, "token": 2, "from": "b", "from_token": 4}
    found = changed(run, change, runs={"b": second})
    assert torch.equal(found, expected)
    differ(found, run.forward()[0])


def test_another_embedding_is_another_token(run: Run) -> None:
    for side in sides(run, cross=False):
        tokens = run.source if side == "encoder" else run.target
        assert tokens is not None
        swapped = Tokens([*tokens.ids[:2], 11, *tokens.ids[3:]], tokens.pieces)
        expected = replace(run, **{"source" if side == "encoder" else "target": swapped}).forward()[0]
        assert torch.equal(changed(run, {"op": "embedding", "side": side, "token": 2, "id": 11}), expected)
        steps: Change = {"op": "embedding", "side": side, "token": 2, "along": [tokens.ids[2], 11]}
        same(changed(run, steps), expected)
        half = changed(run, {**steps, "amount": 0.5}, {**steps, "amount": 0.5})
        same(half, expected)


def test_a_temperature_divides_the_logits(run: Run) -> None:
    base = run.forward()[0]
    for value in (0.25, 3.0):
        found = changed(run, {"op": "temperature", "value": value})
        probabilities = base.double().softmax(dim=-1) ** (
            1 / value
        )  # the definition by probabilities, renormalised
        expected = (probabilities / probabilities.sum(dim=-1, keepdim=True)).float()
        torch.testing.assert_close(found.softmax(dim=-1), expected, rtol=1e-4, atol=1e-7)
    assert torch.equal(changed(run, {"op": "temperature", "value": 1}), base)


def test_banned_and_forced_outputs(run: Run) -> None:
    base = run.forward()[0]
    found = changed(run, {"op": "token", "ban": [3, 5]}, {"op": "token", "at": 2, "ban": [9]})
    expected = base.clone()
    expected[:, [3, 5]] = -math.inf
    expected[2, 9] = -math.inf
    assert torch.equal(found, expected)
    found = changed(run, {"op": "token", "at": 2, "force": 17})
    assert found[2].isfinite().nonzero().flatten().tolist() == [17] and torch.equal(found[3:], base[3:])
