"""Lists of changes as a whole."""

import torch
from tests.inspection.changes.altered import Change, RunOf, block_of, changed, sides

from cutaway.inspection.changes.making import edits
from cutaway.inspection.runs import Run
from cutaway.tap import Trace


def test_no_change_is_no_change_to_the_bit(run: Run) -> None:
    assert edits([], run) == {}
    assert torch.equal(changed(run), run.forward()[0])


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


def test_norms_are_off_before_a_sublayer_is_skipped(run: Run) -> None:
    side = sides(run, cross=False)[0]
    skip: Change = {"op": "ffn", "side": side, "layer": 1}
    no_norm: Change = {"op": "norm", "side": side, "layer": 1, "part": "ffn"}
    assert torch.equal(changed(run, skip, no_norm), changed(run, skip))
    assert torch.equal(changed(run, no_norm, skip), changed(run, skip))
