"""A change does to the model what its name says: the same is done to the weights, the modules or the inputs instead."""

import math
from dataclasses import replace

import pytest
import torch
from tests.inspection.changes.altered import (
    ALL,
    Change,
    RunOf,
    attention_of,
    block_of,
    changed,
    differ,
    other,
    same,
    sides,
    stack_of,
)
from torch import Tensor, nn

from cutaway.inspection.changes.making import edits
from cutaway.inspection.runs.run import Run, Tokens
from cutaway.models.build import Model
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.moe import MoE
from cutaway.nn.norm import PreNorm, SandwichNorm
from cutaway.tap import Trace


@pytest.fixture(params=ALL, ids=lambda case: f"{case[0]} {case[1] or ''}")
def run(request: pytest.FixtureRequest, run_of: RunOf) -> Run:
    structure, settings = request.param
    return run_of(structure, **settings)


def test_no_change_is_no_change_to_the_bit(run: Run) -> None:
    assert edits([], run) == {}
    assert torch.equal(changed(run), run.forward()[0])


def test_a_head_off_is_its_part_of_the_output_matrix_at_zero(run: Run) -> None:
    for side in sides(run):
        for layer, head in ((0, 1), (1, 3)):

            def cut(model: Model, side: str = side, layer: int = layer, head: int = head) -> None:
                attn = attention_of(model, side, layer)
                attn.o_proj.weight[:, head * attn.d_head : (head + 1) * attn.d_head] = 0

            found = changed(run, {"op": "head", "side": side, "layer": layer, "head": head, "set": "zero"})
            same(found, other(run, cut))
            differ(found, run.forward()[0])
    (first, *_) = sides(run)

    def cut_all(model: Model) -> None:
        for layer in range(len(stack_of(model, first).layers)):
            attention_of(model, first, layer).o_proj.weight.zero_()

    same(changed(run, {"op": "head", "side": first, "layer": "*", "head": "*"}), other(run, cut_all))


def test_a_head_at_its_mean_is_a_constant_added_to_the_output(run: Run) -> None:
    for side in sides(run):
        path = f"{'encoder' if side == 'encoder' else 'decoder'}.layers.1.{'cross' if side == 'cross' else 'self'}_attn"
        z = run.forward([f"{path}.z"])[1][f"{path}.z"][0, 2]  # (T, E)
        mean = z.double().mean(dim=0).float()

        def fix(model: Model, side: str = side, mean: Tensor = mean) -> None:
            attn = attention_of(model, side, 1)
            columns = slice(2 * attn.d_head, 3 * attn.d_head)
            constant = attn.o_proj.weight[:, columns] @ mean
            bias = constant if attn.o_proj.bias is None else attn.o_proj.bias + constant
            attn.o_proj.bias = nn.Parameter(bias)
            attn.o_proj.weight[:, columns] = 0

        same(
            changed(run, {"op": "head", "side": side, "layer": 1, "head": 2, "set": "mean"}), other(run, fix)
        )


class Pass(nn.Module):
    def forward(self, x: Tensor, *_: object, **__: object) -> Tensor:
        return x


def test_what_is_skipped_is_not_there(run: Run) -> None:
    for side in sides(run, cross=False):

        def without(model: Model, side: str = side) -> None:
            setattr(stack_of(model, side).layers, "1", Pass())

        same(changed(run, {"op": "layer", "side": side, "layer": 1, "set": "skip"}), other(run, without))
    parts = [
        ("attention", side, "cross_residual" if side == "cross" else "self_residual") for side in sides(run)
    ]
    parts += [("ffn", side, "mlp_residual") for side in sides(run, cross=False)]
    for op, side, residual in parts:

        def skip(model: Model, side: str = side, residual: str = residual) -> None:
            setattr(block_of(model, side, 1), residual, Pass())

        found = changed(run, {"op": op, "side": side, "layer": 1})
        assert torch.equal(found, other(run, skip))
        differ(found, run.forward()[0])


def test_a_norm_off_is_no_norm(run: Run) -> None:
    def strip(residual: nn.Module) -> None:
        assert isinstance(residual, PreNorm)
        residual.norm = nn.Identity()
        if isinstance(residual, SandwichNorm):
            residual.out_norm = nn.Identity()

    for side in sides(run, cross=False):
        parts = {"attention": "self_residual", "ffn": "mlp_residual"}
        if side == "decoder" and isinstance(run.model, EncoderDecoder):
            parts["cross"] = "cross_residual"
        for part, residual in parts.items():

            def off(model: Model, side: str = side, residual: str = residual) -> None:
                strip(block_of(model, side, 1).get_submodule(residual))

            found = changed(run, {"op": "norm", "side": side, "layer": 1, "part": part, "set": "off"})
            same(found, other(run, off))
            differ(found, run.forward()[0])

        def all_off(model: Model, side: str = side, parts: tuple[str, ...] = tuple(parts.values())) -> None:
            stack = stack_of(model, side)
            stack.norm = nn.Identity()
            for layer in range(len(stack.layers)):
                for residual in parts:
                    strip(block_of(model, side, layer).get_submodule(residual))

        same(changed(run, {"op": "norm", "side": side}), other(run, all_off), 1e-4)

        def final_off(model: Model, side: str = side) -> None:
            stack_of(model, side).norm = nn.Identity()

        if run.model.config.has_final_norm:
            same(changed(run, {"op": "norm", "side": side, "part": "final"}), other(run, final_off))


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


def test_banned_and_forced_outputs(run: Run) -> None:
    base = run.forward()[0]
    found = changed(run, {"op": "token", "ban": [3, 5]}, {"op": "token", "at": 2, "ban": [9]})
    expected = base.clone()
    expected[:, [3, 5]] = -math.inf
    expected[2, 9] = -math.inf
    assert torch.equal(found, expected)
    found = changed(run, {"op": "token", "at": 2, "force": 17})
    assert found[2].isfinite().nonzero().flatten().tolist() == [17] and torch.equal(found[3:], base[3:])


def test_gradients_pass_through_changes(run_of: RunOf) -> None:
    run = run_of("Llama")
    changes: list[Change] = [
        {"op": "attn", "layer": 0, "head": 0, "q": 3, "k": 1, "value": 0.5},
        {"op": "pos", "set": "shuffle", "seed": 1},
        {"op": "neuron", "layer": 1, "n": 3, "scale": 2},
    ]
    with torch.enable_grad(), Trace(run.model, edit=edits(changes, run)):
        run.model(**run.inputs)[0, -1].max().backward()
    gradient = block_of(run.model, "decoder", 0).self_attn.v_proj.weight.grad
    assert gradient is not None and gradient.abs().max() > 0
    run.model.zero_grad()
