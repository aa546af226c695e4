"""What is skipped is not there, and a norm off is no norm."""

import torch
from tests.inspection.changes.altered import block_of, changed, differ, other, same, sides, stack_of
from torch import Tensor, nn

from cutaway.inspection.runs import Run
from cutaway.models.build import Model
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.norm import PreNorm, SandwichNorm


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
