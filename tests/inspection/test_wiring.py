"""Where things sit in a model: the names of taps are those that a trace meets, and numbers are read alike."""

from collections.abc import Callable

import pytest
import torch
from tests.inspection.sizes import MODELS, config

from cutaway import CutawayError
from cutaway.inspection.runs import Run
from cutaway.inspection.wiring import (
    at_least_one,
    chosen,
    layer_in,
    one_of,
    places,
    ranges,
    sides,
    stepped,
    tap_names,
)
from cutaway.models.build import build
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.tap import Trace
from cutaway.words import said, say

RunOf = Callable[..., Run]


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_taps_are_those_that_a_trace_meets(name: str) -> None:
    torch.manual_seed(0)
    model = build(config(name)).eval()
    # Enough tokens for every expert to be given one.
    ids = torch.randint(0, 61, (8, 32), generator=torch.Generator().manual_seed(1))
    with Trace(model, watch=["*"]) as trace:
        if isinstance(model, EncoderDecoder):
            model(ids, ids)
        elif model.config.head == "none":
            model.hidden(ids)
        else:
            model(ids)
    names = tap_names(model)
    assert len(names) == len(set(names)) and set(names) == set(trace.calls)


@pytest.mark.parametrize("structure", ["post-norm pair", "T5", "Gemma 2", "BERT", "experts"])
def test_sublayers_write_what_the_stream_gains(run_of: RunOf, structure: str) -> None:
    """By the names of the wiring: the stream before, what a sublayer writes, and the stream after it."""
    read = run_of(structure)
    for side in sides(read.model):
        for place in places(read.model, side):
            for sublayer in place.sublayers:
                before, written = place.before(sublayer), f"{place.path}.{sublayer.module}.out"
                after = f"{place.path}.{sublayer.after}"
                _, trace = read.hidden([before, written, after])
                residual = place.residual(sublayer)
                with torch.no_grad():
                    out = trace[written]
                    if residual.__class__.__name__ == "SandwichNorm":
                        out = getattr(residual, "out_norm")(out)
                    total = trace[before] + out
                    if residual.__class__.__name__ == "PostNorm":
                        total = residual.norm(total)
                torch.testing.assert_close(trace[after], total, rtol=1e-4, atol=1e-4)


def test_numbers_are_read_alike() -> None:
    what = say("layer")
    assert (chosen(what, None, 3), chosen(what, -1, 3), chosen(what, [2, 0], 3)) == ((0, 1, 2), (2,), (2, 0))
    assert one_of(what, -3, 3) == 0
    for given, message in (
        (3, "there is no layer 3, expected 0 to 2, or -1 for the last"),
        ([], "no layer is named, expected at least one of 0 to 2"),
        ([1, -2], r"layer: \[1, 1\] names one twice, expected each once"),
    ):
        with pytest.raises(CutawayError, match=message):
            chosen(what, given, 3)
    with pytest.raises(CutawayError, match="top is 0, expected at least 1"):
        at_least_one(batch=2, top=0)


def test_ranges_and_steps() -> None:
    assert [ranges(each) for each in ([3, 0, 1, 7], [0, 2, 4], [5])] == ["0-1,3,7", "0,2,4", "5"]
    assert [said(stepped(each), "en") for each in ([0, 2, 4], [0, 2, 3], [0, 1, 2])] == [
        "0-4 step 2",
        "0,2-3",
        "0-2",
    ]
    assert (layer_in("decoder.layers.12.mlp.up.weight"), layer_in("decoder.norm.weight")) == (12, None)
