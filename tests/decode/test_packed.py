"""Packed layers are the same layers."""

import pytest
import torch
from torch import nn

from cutaway.decode.generate import Limits, generate
from cutaway.decode.packed import PackedLinear, has_bfloat16, pack
from cutaway.errors import CutawayError
from cutaway.tap import Trace

bf16 = pytest.mark.skipif(not has_bfloat16(), reason="the processor has no bfloat16 arithmetic")
DTYPES = [torch.float32, pytest.param(torch.bfloat16, marks=bf16)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 24), (3, 24), (5, 7, 24), (200, 24)])
@pytest.mark.parametrize("bias", [True, False])
def test_results_are_those_of_the_plain_layer(dtype: torch.dtype, shape: tuple[int, ...], bias: bool):
    torch.manual_seed(0)
    plain = nn.Linear(24, 31, bias=bias)
    x = torch.randn(shape)
    with torch.inference_mode():
        y = PackedLinear(plain, dtype)(x)
        assert y.dtype == torch.float32
        if dtype == torch.bfloat16:
            rounded = nn.functional.linear(*(t.bfloat16().float() for t in (x, plain.weight)))
            expected = rounded + (plain.bias.bfloat16().float() if bias else 0)
            assert torch.allclose(y, expected, atol=2**-6)
            assert not torch.equal(y, plain(x))
        else:
            assert torch.allclose(y, plain(x), atol=1e-6)


def test_a_changed_weight_is_noticed():
    layer = PackedLinear(nn.Linear(8, 8), torch.float32)
    x = torch.randn(16, 8)
    with torch.no_grad():
        layer(x)
        layer.weight.mul_(-2.0)
        assert torch.allclose(layer(x), x @ layer.weight.T + layer.bias, atol=1e-6)


def test_gradients_flow_as_ever():
    layer = PackedLinear(nn.Linear(8, 8), torch.float32)
    layer(torch.randn(16, 8)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().sum() > 0


def test_a_packed_model_keeps_names_parameters_ties_and_taps(tiny):
    model = tiny("marian")
    source, target = torch.randint(3, 29, (3, 9)), torch.randint(3, 29, (3, 6))
    names, parameters = list(model.state_dict()), list(map(id, model.parameters()))
    with torch.no_grad():
        before = model(source=source, target=target)
        assert pack(model) is model
        with Trace(model, ["decoder.layers.1.cross_attn.pattern"]) as trace:
            after = model(source=source, target=target)
    assert torch.allclose(before, after, atol=1e-4)
    assert trace["decoder.layers.1.cross_attn.pattern"].shape == (3, 4, 6, 9)
    assert list(model.state_dict()) == names
    assert list(map(id, model.parameters())) == parameters
    assert isinstance(model.head.unembed, PackedLinear)
    assert model.head.unembed.weight is model.source_embed.tokens.weight


def test_a_packed_model_writes_the_same(tiny):
    model = tiny("llama")
    prompts = [[5, 6, 7]] * 9

    def run():
        return generate(model, model.begin(9), prompts, limits=Limits(12), eos_id=2)[0]

    plain = run()
    pack(model)
    assert run().ids == plain.ids
    assert run().log_probs == pytest.approx(plain.log_probs, abs=1e-4)


def test_other_types_are_refused():
    with pytest.raises(CutawayError, match=r"float16, only as float32 or bfloat16"):
        pack(nn.Linear(2, 2), torch.float16)
