"""Other positions are a model that is told other ones."""

from collections.abc import Callable

import pytest
import torch
from tests.inspection.changes.altered import Change, RunOf, changed, differ, other, same, stack_of
from torch import Tensor, nn

from cutaway.inspection.runs import Run
from cutaway.models.build import Model
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.bias import RelativeBias
from cutaway.nn.stack import Stack


def positions_taken_away(model: Model) -> None:
    for module in model.modules():
        table = getattr(module, "positions", None)
        if isinstance(table, nn.Embedding):
            table.weight.zero_()
        elif table is not None:
            table.table.zero_()
        if isinstance(module, Stack):
            module.rotary = module.local_rotary = module.relative = None


def test_without_positions_is_a_model_without_them(run: Run) -> None:
    found = changed(run, {"op": "pos", "set": "none"})
    same(found, other(run, positions_taken_away))
    differ(found, run.forward()[0])


@pytest.mark.parametrize(
    ("structure", "side"), [("post-norm pair", "encoder"), ("pre-norm pair", "decoder"), ("BERT", "encoder")]
)
def test_shifted_and_shuffled_vectors_are_a_table_moved(structure: str, side: str, run_of: RunOf) -> None:
    run = run_of(structure)
    length = len((run.source if side == "encoder" else run.target) or [])
    order = torch.randperm(length, generator=torch.Generator().manual_seed(3))

    def move(model: Model, rows: Tensor) -> None:
        embed = model.embed if not isinstance(model, EncoderDecoder) else (
            model.source_embed if side == "encoder" else model.target_embed
        )  # fmt: skip
        first = embed.offset
        positions = embed.positions
        if isinstance(positions, nn.Embedding):
            positions.weight[first : first + length] = positions.weight[first + rows].clone()
        elif positions is not None:
            positions.table = positions.table.clone()
            positions.table[first : first + length] = positions.table[first + rows].clone()

    shifted = changed(run, {"op": "pos", "side": side, "set": "shift", "by": 4})
    same(shifted, other(run, lambda model: move(model, torch.arange(4, 4 + length))))
    shuffled = changed(run, {"op": "pos", "side": side, "set": "shuffle", "seed": 3})
    same(shuffled, other(run, lambda model: move(model, order)))
    differ(shuffled, shifted)


@pytest.mark.parametrize("structure", ["Llama", "Gemma 2"])
def test_shuffled_rotations_are_a_stack_told_other_positions(structure: str, run_of: RunOf) -> None:
    run = run_of(structure)
    model, ids = run.model, run.inputs["ids"]
    assert isinstance(model, DecoderOnly)
    order = torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        x = model.embed(ids, torch.arange(ids.shape[1])[None])
        expected = model.head(model.decoder(x, order[None]))[0]
    found = changed(run, {"op": "pos", "set": "shuffle", "seed": 5})
    same(found, expected)
    differ(found, run.forward()[0])
    # only distances count
    same(changed(run, {"op": "pos", "set": "shift", "by": 3}), run.forward()[0], 1e-4)


class GivenBias(nn.Module):
    """Relative positions written out: bias (H, T, S) of a function of two positions."""

    def __init__(self, order: list[int], bias: Callable[[int, int], Tensor]):
        super().__init__()
        self.order, self.bias = order, bias

    def forward(self, n_queries: int, n_keys: int) -> Tensor:
        rows = [
            [self.bias(self.order[q], self.order[k]) for k in range(n_keys)]
            for q in range(n_keys - n_queries, n_keys)
        ]
        return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)[None]


@pytest.mark.parametrize(("structure", "settings"), [("T5", {}), ("GPT-2", {"position": "alibi"})])
@pytest.mark.parametrize("side", ["decoder", "encoder"])
def test_shuffled_relative_positions_are_other_distances(
    structure: str, settings: Change, side: str, run_of: RunOf
) -> None:
    if structure == "GPT-2":
        side = "decoder"
    run = run_of(structure, **settings)
    length = len((run.source if side == "encoder" else run.target) or [])
    order = torch.randperm(length, generator=torch.Generator().manual_seed(2)).tolist()

    def tell(model: Model) -> None:
        stack = stack_of(model, side)
        relative = stack.relative
        assert relative is not None

        def bias(query: int, key: int) -> Tensor:
            if isinstance(relative, RelativeBias):
                return relative.table.weight[int(relative.bucket(torch.tensor([key - query]))[0])]
            return -relative.slopes * abs(key - query)

        setattr(stack, "relative", GivenBias(order, bias))

    found = changed(run, {"op": "pos", "side": side, "set": "shuffle", "seed": 2})
    same(found, other(run, tell))
    differ(found, run.forward()[0])
