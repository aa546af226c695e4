"""Another scale, another mask, a head off are an attention that is made that way; patterns are those of other queries,
of other modules, or as they are written down."""

import pytest
import torch
from tests.inspection.changes.altered import (
    Change,
    RunOf,
    attention_of,
    block_of,
    changed,
    differ,
    other,
    rebuilt,
    same,
    sides,
    stack_of,
)  # fmt: skip  # fmt: skip
from torch import Tensor, nn

from cutaway.inspection.changes.lists import edits
from cutaway.inspection.runs import Run
from cutaway.models.build import Model
from cutaway.nn.attention import Attention


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


@pytest.mark.parametrize("structure", ["post-norm pair", "Llama", "GPT-2", "Gemma 2", "experts", "BERT"])
def test_a_uniform_pattern_is_that_of_queries_that_ask_nothing(structure: str, run_of: RunOf) -> None:
    run = run_of(structure)

    def silence(model: Model, side: str) -> None:
        for layer in range(len(stack_of(model, side).layers)):
            for parameter in attention_of(model, side, layer).q_proj.parameters():
                parameter.zero_()

    for side in sides(run):
        found = changed(run, {"op": "pattern", "side": side, "layer": "*", "head": "*", "kind": "uniform"})
        same(found, other(run, lambda model, side=side: silence(model, side)))
        differ(found, run.forward()[0])


class LookingBack(nn.Module):
    """Attention that reads the value of the token so many places before, the first one's where there is none."""

    def __init__(self, attn: Attention, distance: int):
        super().__init__()
        self.attn, self.distance = attn, distance

    def forward(self, x: Tensor, **_: object) -> Tensor:
        v = self.attn.v_proj(x).unflatten(-1, (-1, self.attn.d_head))  # (B, T, K, E)
        v = v.repeat_interleave(self.attn.groups, dim=2).flatten(2)
        back = torch.cat([v[:, :1]] * self.distance + [v[:, : v.shape[1] - self.distance]], dim=1)
        return self.attn.o_proj(back)


def test_identity_and_previous_read_one_value(run: Run) -> None:
    def put(model: Model, side: str, distance: int) -> None:
        for layer in range(len(stack_of(model, side).layers)):
            block = block_of(model, side, layer)
            setattr(block, "self_attn", LookingBack(block.self_attn, distance))

    for side in sides(run, cross=False):
        for kind, distance in (("identity", 0), ("previous", 1)):
            found = changed(run, {"op": "pattern", "side": side, "layer": "*", "head": "*", "kind": kind})
            same(found, other(run, lambda model, s=side, d=distance: put(model, s, d)))


def pattern_of(run: Run, path: str, *changes: Change) -> tuple[Tensor, Tensor]:
    """Pattern (H, T, S) and z (H, T, E) at one place."""
    names = [f"{path}.pattern", f"{path}.z"]
    _, trace = run.forward(names, edits(changes, run))
    return trace[names[0]][0], trace[names[1]][0]


@pytest.mark.parametrize(
    ("structure", "side"),
    [("GPT-2", "decoder"), ("post-norm pair", "cross"), ("T5", "encoder"), ("Llama", "decoder")],
)
def test_cells_rows_and_whole_patterns_are_set_as_written(structure: str, side: str, run_of: RunOf) -> None:
    run = run_of(structure)
    path = f"{'encoder' if side == 'encoder' else 'decoder'}.layers.0.{'cross' if side == 'cross' else 'self'}_attn"
    base, _ = pattern_of(run, path)
    at = {"side": side, "layer": 0, "head": 1}

    def check(expected: Tensor, *changes: Change) -> None:
        found, z = pattern_of(run, path, *changes)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        _, trace = run.forward([f"{path}.v"])
        v = trace[f"{path}.v"][0].repeat_interleave(
            run.model.config.n_heads // run.model.config.kv_heads, dim=0
        )
        torch.testing.assert_close(z, torch.einsum("hts,hse->hte", expected, v), rtol=1e-4, atol=1e-5)

    expected = base.clone()
    expected[1, 3] *= (1 - 0.25) / (1 - base[1, 3, 2])
    expected[1, 3, 2] = 0.25
    check(expected, {"op": "attn", **at, "q": 3, "k": 2, "value": 0.25})
    expected = base.clone()
    expected[1, 3, 2] = 0.25
    check(expected, {"op": "attn", **at, "q": 3, "k": 2, "value": 0.25, "renorm": False})
    expected = base.clone()
    for query in range(base.shape[1]):
        if side != "decoder" or query >= 1:
            expected[1, query, 1] = 0
            expected[1, query] /= expected[1, query].sum()
    check(expected, {"op": "attn", **at, "q": "*", "k": 1, "value": 0})
    expected = base.clone()
    expected[1, 4] = 0
    expected[1, 4, :3] = torch.tensor([0.25, 0.5, 0.25])
    check(expected, {"op": "attn", **at, "q": 4, "row": [1, 2, 1]})
    expected[1, 4] *= 4
    check(expected, {"op": "attn", **at, "q": 4, "row": [1, 2, 1], "renorm": False})
    expected = base.clone()
    for query in range(base.shape[1]):
        row = torch.tensor([1.0, 2.0, 1.0])
        if side == "decoder":
            row[query + 1 :] = 0
        expected[1, query] = 0
        expected[1, query, :3] = row / row.sum()
    check(expected, {"op": "attn", **at, "q": "*", "row": [1, 2, 1]})
    expected = base.clone()
    expected[1, :2] = 0
    expected[1, 0, 0], expected[1, 1, 0], expected[1, 1, 1] = 1.0, 0.5, 0.25
    check(expected, {"op": "pattern", **at, "kind": "given", "rows": [[1], [0.5, 0.25]]})
    expected[1, 1, 0], expected[1, 1, 1] = 2 / 3, 1 / 3
    check(expected, {"op": "pattern", **at, "kind": "given", "rows": [[1], [0.5, 0.25]], "renorm": True})
    expected = base.clone()
    for query in range(base.shape[1]):
        weights = base[1, query].tolist()
        best = weights.index(max(weights))
        expected[1, query] = 0
        expected[1, query, best] = 1
    check(expected, {"op": "pattern", **at, "kind": "argmax"})


def test_order_is_meaning(run_of: RunOf) -> None:
    run = run_of("GPT-2")
    path, at = "decoder.layers.0.self_attn", {"layer": 0, "head": 0}
    first: Change = {"op": "pattern", **at, "kind": "uniform"}
    then: Change = {"op": "attn", **at, "q": 3, "k": 0, "value": 1.0}
    one, _ = pattern_of(run, path, first, then)
    two, _ = pattern_of(run, path, then, first)
    assert one[0, 3].tolist()[:4] == [1, 0, 0, 0]
    assert two[0, 3].tolist()[:4] == [0.25] * 4
