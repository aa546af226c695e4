"""What is skipped is not there, a norm off is no norm, neurons and experts changed are weights changed, and dropout is
what nn.Dropout does in training: at its places, at its rate and with its scale."""

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
)
from torch import Tensor, nn

from cutaway.inspection.changes.lists import edits
from cutaway.inspection.runs import Run, Tokens
from cutaway.models.build import Model, build
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.moe import MoE
from cutaway.nn.norm import PreNorm, SandwichNorm
from cutaway.tap import Trace


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


RATE = 0.3
SUBLAYERS = {  # of nn.Dropout's owner: what it drops, and the residual stream before and after
    "self_residual": ("self_attn.out", "resid_pre", "resid_mid"),
    "cross_residual": ("cross_attn.out", "resid_mid", "resid_cross"),
    "mlp_residual": ("mlp.out", "resid_mid", "resid_post"),
}


def traced(run: Run, *changes: Change) -> dict[str, Tensor]:
    _, trace = run.forward(["*.out", "*.resid_*"], edits(changes, run))
    return {name: values[0] for name, values in trace.calls.items()}


def kept(run: Run, module: str, values: dict[str, Tensor]) -> Tensor:
    """What the changed run let through where its training twin has an nn.Dropout: (1, T, D)."""
    owner = module.removesuffix(".dropout")
    block, _, residual = owner.rpartition(".")
    if not block:
        stack = "encoder" if owner == "source_embed" or "encoder" in sides(run)[-1:] else "decoder"
        return values[f"{stack}.layers.0.resid_pre"] != 0
    out, before, after = SUBLAYERS[residual]
    if residual == "mlp_residual" and f"{block}.resid_cross" in values:
        before = "resid_cross"
    if run.model.config.norm_order == "sandwich":
        return values[f"{block}.{after}"] != values[f"{block}.{before}"]
    return values[f"{block}.{out}"] != 0


class Kept(nn.Module):
    def __init__(self, kept: Tensor):
        super().__init__()
        self.kept = kept

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept / (1 - RATE)


def test_it_acts_where_a_model_in_training_has_it(run: Run) -> None:
    change: Change = {"op": "dropout", "seed": 1, "rate": RATE}
    values = traced(run, change)
    twin = build(replace(run.model.config, dropout=RATE))
    twin.load_state_dict(run.model.state_dict())
    n_places = 0
    for name, module in list(twin.named_modules()):
        if isinstance(module, nn.Dropout):
            owner, _, leaf = name.rpartition(".")
            setattr(twin.get_submodule(owner), leaf, Kept(kept(run, name, values)))
            n_places += 1
    n_stacks = len(sides(run, cross=False))
    assert n_places == n_stacks + sum(
        len(stack_of(run.model, side).layers) * (3 if side == "decoder" and n_stacks == 2 else 2)
        for side in sides(run, cross=False)
    )
    with torch.no_grad():
        expected = twin(**run.inputs)[0]
    found = changed(run, change)
    same(found, expected)
    differ(found, run.forward()[0])
    assert torch.equal(found, changed(run, change))


def test_each_value_is_dropped_at_the_rate_and_for_itself(run_of: RunOf) -> None:
    run = run_of("GPT-2", length=25, d_model=96)
    places = [f"decoder.layers.{layer}.{part}.out" for layer in range(3) for part in ("self_attn", "mlp")]

    def dropped(seed: int) -> Tensor:
        values = traced(run, {"op": "dropout", "seed": seed, "rate": RATE})
        # (places, T, D)
        return torch.stack([values[name][0] == 0 for name in places])

    first = dropped(1)
    tolerance = 5 * (RATE * (1 - RATE) / first.numel()) ** 0.5
    assert float(first.double().mean()) == pytest.approx(RATE, abs=tolerance)
    for another in (dropped(2), first.roll(1, 0), first.roll(1, 1), first.roll(1, 2)):
        both = float((first & another).double().mean())
        assert both == pytest.approx(
            RATE**2,
            abs=2 * tolerance,
            # independent of seed, place, token and value
        )


def test_the_models_own_rate_is_the_default_and_one_side_may_be_meant(run_of: RunOf) -> None:
    run = run_of("post-norm pair", dropout=RATE)
    assert torch.equal(
        changed(run, {"op": "dropout", "seed": 3}), changed(run, {"op": "dropout", "seed": 3, "rate": RATE})
    )
    values, base = traced(run, {"op": "dropout", "side": "decoder", "seed": 3}), traced(run)
    for name, value in values.items():
        assert torch.equal(value, base[name]) == name.startswith("encoder."), name


@pytest.mark.parametrize("structure", ["Gemma 2", "post-norm pair", "Llama"])
def test_it_meets_norms_and_skips_as_training_would(structure: str, run_of: RunOf) -> None:
    """What is skipped is not there to be dropped, and a norm off is off before what is dropped, in any order."""
    run = run_of(structure)
    side = sides(run)[0]
    dropout: Change = {"op": "dropout", "seed": 1, "rate": RATE}
    no_norm: Change = {"op": "norm", "side": side, "layer": 1, "part": "ffn"}
    skip: Change = {"op": "ffn", "side": side, "layer": 1}
    path = f"{side}.layers.1"
    values = traced(run, dropout, no_norm)
    out, before, after = (values[f"{path}.{name}"] for name in ("mlp.out", "resid_mid", "resid_post"))
    if structure == "Gemma 2":
        let_through = after != before
        torch.testing.assert_close(after, before + out * let_through / (1 - RATE), rtol=1e-4, atol=1e-4)
        assert not let_through.all()
    else:
        torch.testing.assert_close(after, before + out)
    assert torch.equal(changed(run, dropout, no_norm), changed(run, no_norm, dropout))
    values = traced(run, skip, dropout, no_norm)
    assert torch.equal(values[f"{path}.resid_post"], values[f"{path}.resid_mid"])


def test_rows_of_a_batch_are_dropped_alike(run_of: RunOf) -> None:
    run = run_of("Llama")
    with torch.no_grad(), Trace(run.model, edit=edits([{"op": "dropout", "seed": 1, "rate": RATE}], run)):
        logits = run.model(run.inputs["ids"].expand(3, -1))
    same(logits, changed(run, {"op": "dropout", "seed": 1, "rate": RATE}).expand(3, -1, -1))


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
