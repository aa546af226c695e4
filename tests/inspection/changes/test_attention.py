"""Another scale, another mask or a head off is an attention that is made that way."""

import pytest
from tests.inspection.changes.altered import (
    RunOf,
    attention_of,
    changed,
    differ,
    other,
    rebuilt,
    same,
    sides,
    stack_of,
)  # fmt: skip
from torch import Tensor, nn

from cutaway.inspection.runs import Run
from cutaway.models.build import Model


@pytest.mark.parametrize("structure", ["post-norm pair", "Llama", "Gemma 2", "BERT"])
def test_without_scale_is_a_model_of_scale_one(structure: str, run_of: RunOf) -> None:
    run = run_of(structure)
    found = changed(run, {"op": "scale", "set": "none"})
    same(found, rebuilt(run, attn_scale=1.0))
    differ(found, run.forward()[0])


def test_an_open_mask_is_a_stack_that_is_not_causal_and_a_closed_one_is_causal(run: Run) -> None:
    def turn(model: Model, side: str, causal: bool) -> None:
        stack_of(model, side).causal = causal

    for side in sides(run, cross=False):
        opened = side == "decoder"
        found = changed(run, {"op": "mask", "set": "open" if opened else "closed"})
        same(found, other(run, lambda model, side=side, opened=opened: turn(model, side, not opened)))
        differ(found, run.forward()[0])


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
