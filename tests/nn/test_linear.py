"""Half the memory, the same numbers."""

import copy
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from tests.nearness import assert_near
from torch import nn
from torch.nn.functional import linear as plain

from cutaway.config import ModelConfig, parse
from cutaway.models.build import PRESETS, build
from cutaway.models.decoder_only import DecoderOnly
from cutaway.nn.linear import Linear, fits_16_bits, multiplies_16_bits


def rounded(width: int, out: int, bias: bool = True) -> Linear:
    """A layer as it comes out of a file with 16-bit weights."""
    linear = Linear(width, out, bias=bias)
    round_(linear)
    return linear


def round_(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2).copy_(parameter.half().float())


@pytest.mark.parametrize("rows", [1, 3, 32, 300])
@pytest.mark.parametrize("bias", [True, False])
def test_a_step_gives_the_fp32_product_but_for_the_order_of_sums(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = rounded(96, 40, bias), torch.randn(rows, 1, 96)
    with torch.inference_mode():
        got = linear(x)
        exact = x.double() @ linear.weight.double().mT + (linear.bias.double() if bias else 0)
        assert_near(got, exact, 96)
        # a row's result does not depend on the rows beside it
        assert_near(linear(x[:1]), got[:1], 96)
        # what reads a whole text takes the plain product, to the bit
        text = torch.randn(2, 7, 96)
        assert torch.equal(linear(text), plain(text, linear.weight, linear.bias))


def test_the_copy_is_really_read_and_follows_weight_and_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    operators = torch.ops.quantized

    def operator(name: str) -> Callable[..., torch.Tensor]:
        used.append(name)
        return getattr(operators, name)

    monkeypatch.setattr("cutaway.nn.linear._operator", operator)
    linear, x = rounded(16, 8), torch.randn(1, 1, 16)
    with torch.no_grad():
        before = linear(x)
        if torch.backends.quantized.engine in ("x86", "fbgemm"):
            assert used == ["linear_prepack_fp16", "linear_dynamic_fp16"]
        for parameter in (linear.weight, linear.bias):
            parameter.mul_(2)
            torch.testing.assert_close(linear(x), plain(x, linear.weight, linear.bias))
            assert not torch.equal(linear(x), before)
        linear.weight.add_(1e-6)
        assert not fits_16_bits(linear.weight)
        assert torch.equal(linear(x), plain(x, linear.weight, linear.bias))


def test_without_the_operators_a_step_is_the_plain_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in builds of PyTorch for other processors."""
    multiplies_16_bits.cache_clear()
    monkeypatch.setattr(torch.ops, "quantized", SimpleNamespace())
    try:
        linear, x = rounded(16, 8), torch.randn(3, 1, 16)
        with torch.inference_mode():
            assert torch.equal(linear(x), plain(x, linear.weight, linear.bias))
        assert not multiplies_16_bits()
    finally:
        multiplies_16_bits.cache_clear()


def test_a_model_is_the_same_before_and_after_a_step() -> None:
    small = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 40}
    model = build(parse(ModelConfig, {**PRESETS["llama-tiny"], **small}, "config")).eval()
    assert isinstance(model, DecoderOnly)
    round_(model)
    ids = torch.randint(0, 61, (2, 9))

    def seen() -> tuple[list[str], list[type], torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            kinds = [type(module) for module in model.modules()]
            return list(model.state_dict()), kinds, model(ids), model(ids[:, :1])

    before = seen()
    with torch.inference_mode():
        cache = model.begin(2)
        steps = [model.step(ids[:, i : i + 1], cache) for i in range(9)]
    names, kinds, text, token = seen()
    assert (names, kinds) == before[:2]
    assert torch.equal(text, before[2]) and torch.equal(token, before[3])
    torch.testing.assert_close(torch.stack(steps, dim=1), text, rtol=0, atol=1e-4)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.get_parameter("head.unembed.weight").mul_(2)
        assert not torch.equal(copied(ids[:, :1]), token)
        assert torch.equal(model(ids[:, :1]), token)
    model(ids[:, :1]).sum().backward()
    assert model.get_parameter("decoder.layers.0.mlp.up.weight").grad is not None
