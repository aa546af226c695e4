"""What is kept of the path to a logit, and that carrying along it is what the components of a logit are made of."""

from collections.abc import Callable

import pytest
import torch

from cutaway.inspection.frozen_path import frozen_path
from cutaway.inspection.questions.logit import logit
from cutaway.inspection.runs import Run

RunOf = Callable[..., Run]


def test_only_one_position_is_kept(run_of: RunOf) -> None:
    read = run_of("post-norm pair")
    trace = frozen_path(read, 2).trace
    assert len(trace.calls) > 20
    for (value,) in trace.calls.values():
        assert value.untyped_storage().nbytes() == 4 * read.model.config.d_model


@pytest.mark.parametrize("structure", ["post-norm pair", "Gemma 2", "BERT"])
def test_what_a_sublayer_writes_is_carried_to_its_share(run_of: RunOf, structure: str) -> None:
    read = run_of(structure)
    path = frozen_path(read, 4)
    name = f"{path.side.name}.layers.1.mlp"
    (carried,) = path.carry(path.trace[f"{name}.out"], 1, "mlp")
    row = path.head.unembed.weight[11].detach().double() * path.head.scale
    (share,) = (each.share for each in logit(read, at=4, token=11).components if each.place == name)
    assert float(carried @ row) == pytest.approx(share, rel=1e-6)
    assert torch.equal(path.logits, read.forward()[0][4])
