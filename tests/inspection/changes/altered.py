"""A run under changes, and the same run of a copy of its model in which something was altered by hand."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor

from cutaway.inspection.changes.lists import edits
from cutaway.inspection.runs import Run
from cutaway.inspection.wiring import sides as sides_of
from cutaway.inspection.wiring import stack_of
from cutaway.models.build import Model, build
from cutaway.nn.attention import Attention
from cutaway.nn.block import Block

RunOf = Callable[..., Run]
Change = dict[str, object]


def changed(run: Run, *changes: Change, runs: dict[str, Run] | None = None) -> Tensor:
    return run.forward(edit=edits(changes, run, runs))[0]


def sides(run: Run, cross: bool = True) -> list[str]:
    return [side for side in sides_of(run.model) if cross or side != "cross"]


def block_of(model: Model, side: str, layer: int) -> Block:
    block = stack_of(model, side).layers[layer]
    assert isinstance(block, Block)
    return block


def attention_of(model: Model, side: str, layer: int) -> Attention:
    block = block_of(model, side, layer)
    return block.cross_attn if side == "cross" else block.self_attn


def other(run: Run, change: Callable[[Model], object]) -> Tensor:
    """The logits of a copy of the model in which `change` has been made."""
    model = deepcopy(run.model)
    with torch.no_grad():
        change(model)
        return model(**run.inputs)[0]


def rebuilt(run: Run, **settings: float) -> Tensor:
    """The logits of a model of another config with the same weights."""
    model = build(replace(run.model.config, **settings))
    model.load_state_dict(run.model.state_dict(), strict=False)
    with torch.no_grad():
        return model.eval()(**run.inputs)[0]


def same(found: Tensor, expected: Tensor, tolerance: float = 2e-5) -> None:
    scale = expected.abs().max()
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=tolerance)


def differ(found: Tensor, base: Tensor) -> None:
    assert (found - base).abs().max() > 1e-5 * base.abs().max(), "the change does nothing: nothing is tested"
