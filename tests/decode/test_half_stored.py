"""Half the memory, the same numbers."""

import copy

import pytest
import torch
from tests.nearness import assert_near
from torch import nn

from cutaway.config import ModelConfig, parse
from cutaway.decode.half_stored import HalfStoredLinear, fits_16_bits, store_in_half
from cutaway.models.build import PRESETS, build
from cutaway.tap import Trace


def rounded(model: nn.Module) -> nn.Module:
    """The model as it comes out of a file with 16-bit weights."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2).copy_(parameter.half().float())
    return model.eval()


@pytest.mark.parametrize("rows", [1, 3, 32, 300])
@pytest.mark.parametrize("bias", [True, False])
def test_the_product_is_the_fp32_product_but_for_the_order_of_sums(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    linear = rounded(nn.Linear(96, 40, bias=bias))
    assert isinstance(linear, nn.Linear)
    stored, x = HalfStoredLinear(linear), torch.randn(rows, 1, 96)
    with torch.inference_mode():
        got = stored(x)
        if rows > 1:  # what reads a whole text takes the plain way
            text = x.transpose(0, 1)
            plain = nn.functional.linear(text, linear.weight, linear.bias)
            assert_near(stored(text), plain, 96)
        exact = x.double() @ linear.weight.double().mT + (linear.bias.double() if bias else 0)
        assert_near(got, exact, 96)
        # a row's result does not depend on the rows beside it
        assert_near(stored(x[:1]), got[:1], 96)


def test_a_changed_weight_is_noticed_and_one_that_16_bits_cannot_hold_is_left() -> None:
    linear = rounded(nn.Linear(16, 8))
    assert isinstance(linear, nn.Linear)
    stored, x = HalfStoredLinear(linear), torch.randn(1, 16)
    with torch.no_grad():
        before = stored(x)
        linear.weight.mul_(2)
        assert not torch.equal(stored(x), before)
        linear.weight.add_(1e-6)
        assert not fits_16_bits(linear.weight)
        assert torch.equal(stored(x), nn.functional.linear(x, linear.weight, linear.bias))


def test_a_model_keeps_its_names_its_ties_its_taps_and_its_gradients() -> None:
    small = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 40}
    plain = rounded(build(parse(ModelConfig, {**PRESETS["llama-tiny"], **small}, "config")))
    stored = copy.deepcopy(plain)
    store_in_half(stored)
    assert sum(isinstance(module, HalfStoredLinear) for module in stored.modules()) == 2 * 7 + 1
    assert list(stored.state_dict()) == list(plain.state_dict())
    assert stored.get_parameter("head.unembed.weight") is stored.get_parameter("embed.tokens.weight")
    ids = torch.randint(0, 61, (2, 9))
    with torch.inference_mode(), Trace(stored, watch=["*.pattern"]) as trace:
        assert_near(stored(ids), plain(ids), 3 * 40)
    assert len(trace.calls) == 2
    stored(ids).sum().backward()
    assert stored.get_parameter("decoder.layers.0.mlp.up.weight").grad is not None


def test_weights_under_training_are_left_alone() -> None:
    linear = nn.Sequential(nn.Linear(16, 8))
    store_in_half(linear)
    assert type(linear[0]) is nn.Linear
