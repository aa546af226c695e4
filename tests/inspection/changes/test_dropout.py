"""Dropout switched on is what nn.Dropout does in training, at its places, at its rate and with its scale."""

from dataclasses import replace

import pytest
import torch
from tests.inspection.changes.altered import Change, RunOf, changed, differ, same, sides, stack_of
from torch import Tensor, nn

from cutaway.inspection.changes.making import edits
from cutaway.inspection.runs import Run
from cutaway.models.build import build
from cutaway.tap import Trace

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
        return torch.stack([values[name][0] == 0 for name in places])  # (places, T, D)

    first = dropped(1)
    tolerance = 5 * (RATE * (1 - RATE) / first.numel()) ** 0.5
    assert float(first.double().mean()) == pytest.approx(RATE, abs=tolerance)
    for other in (dropped(2), first.roll(1, 0), first.roll(1, 1), first.roll(1, 2)):
        both = float((first & other).double().mean())
        assert both == pytest.approx(
            RATE**2, abs=2 * tolerance
        )  # independent of seed, place, token and value


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
