"""Parameters and operations are what the modules hold and what torch counts."""

from collections.abc import Callable

import pytest
import torch
from tests.inspection.sizes import MODELS, config
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cutaway.inspection.model_size import operations, parts
from cutaway.models.build import Model, build
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.block import Block
from cutaway.tap import Trace


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    torch.manual_seed(0)
    return build(config(request.param)).eval()


def ids(n_tokens: int) -> Tensor:
    return torch.randint(0, 61, (1, n_tokens), generator=torch.Generator().manual_seed(1))


def flops(model: Model, work: Callable[[], object]) -> int:
    """What torch counts while `work` runs with explicit attention, whose products it knows on every device."""
    with Trace(model, watch=["*.pattern"]), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def test_every_parameter_is_counted_once(model: Model) -> None:
    found = parts(model)
    assert sum(part.parameters for part in found) == sum(each.numel() for each in model.parameters())
    for part in found:
        if part.per_layer is not None:
            assert part.parameters == part.per_layer * (part.layers or 0)


def test_parts_are_the_modules_they_are_called_after(model: Model) -> None:
    """Each part against the modules themselves, norms inside of attention apart."""
    sizes = {(part.place, part.name): part.parameters for part in parts(model)}
    for place in ("encoder", "decoder"):
        for name, owner in (("self-attention", "self_attn"), ("cross-attention", "cross_attn")):
            expected = sum(
                parameter.numel()
                for full, parameter in model.named_parameters()
                if full.startswith(f"{place}.layers.") and f".{owner}." in full and "_norm." not in full
            )
            assert sizes.get((place, name), 0) == expected
        norms = sum(
            parameter.numel()
            for full, parameter in model.named_parameters()
            if full.startswith(f"{place}.") and full.split(".")[-2].endswith("norm")
        )
        assert sizes.get((place, "norms"), 0) + sizes.get((place, "final norm"), 0) == norms
        work = ("feed-forward", "router", "experts")
        networks = sum(
            parameter.numel() for full, parameter in model.named_parameters()
            if full.startswith(f"{place}.") and ".mlp." in full
        )  # fmt: skip
        assert sum(sizes.get((place, name), 0) for name in work) == networks


@torch.no_grad()
@pytest.mark.parametrize("context", [1, 7, 32])
def test_operations_are_what_torch_counts(model: Model, context: int) -> None:
    counted = operations(model, context)
    per_token, per_source = counted.per_token, counted.per_source_token
    for each in (per_token, per_source):
        if each is not None:
            assert each.total == each.projections + each.attention + each.feed_forward + each.head
    if isinstance(model, EncoderDecoder):
        assert per_source is not None
        source = ids(context)
        assert (
            flops(model, lambda: model.encode(source)) + memory(model, context) == context * per_source.total
        )
        cache = model.begin(source)
        if context > 1:
            model.step(ids(context)[:, 1:], cache)
    elif isinstance(model, DecoderOnly):
        cache = model.begin(1)
        if context > 1:
            model.step(ids(context)[:, 1:], cache)
    else:
        assert (
            flops(
                model,
                lambda: model.hidden(ids(context)) if model.config.head == "none" else model(ids(context)),
            )
            == context * per_token.total
        )
        return
    assert flops(model, lambda: model.step(ids(1), cache)) == per_token.total


def memory(model: EncoderDecoder, n_tokens: int) -> int:
    """The keys and values of the memory, which `begin` makes after `encode`; no pattern is met there to force."""
    with FlopCounterMode(display=False) as counter:
        for layer in model.decoder.layers:
            assert isinstance(layer, Block)
            layer.cross_attn.keys_values(torch.zeros(1, n_tokens, model.config.d_model))
    return counter.get_total_flops()


def test_operations_by_hand() -> None:
    """GPT-2, N = 3, D = HE = 24, F = 40, V = 61 at T = 10, by the formula of the docstring."""
    counted = operations(build(config("GPT-2")), 10)
    assert counted.per_token.projections == 3 * 2 * 24 * 4 * 24
    assert counted.per_token.attention == 3 * 4 * 24 * 10
    assert counted.per_token.feed_forward == 3 * 2 * 2 * 24 * 40
    assert counted.per_token.head == 2 * 24 * 61
    assert (counted.context, counted.per_source_token) == (10, None)
