"""The bound holds what it promises: fp32 and bf16 stay within it, also where sums cancel, and it is not idle."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.inspection.arithmetic import rounding
from cutaway.inspection.arithmetic.rounding import ACTIVATIONS, Rounded
from cutaway.nn import mlp

DTYPES = [torch.float32, torch.bfloat16]


def exact(x: Tensor) -> Rounded:
    return Rounded(x.double(), 0.0, x.dtype)


def holds(found: Tensor, bound: Rounded) -> float:
    """Whether every value is within its bound; the greatest share of it that was used."""
    away = (found.double() - bound.value).abs()
    assert bool((away <= bound.error).all())
    return float((away / bound.error.clamp(min=1e-300)).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_in_the_worst_order_stay_within_their_bound(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for n in (1, 2, 30, 700):
        for spread in (0.0, 3.0):
            x = (torch.randn(n) * torch.exp(spread * torch.randn(n))).to(dtype)
            x = torch.cat([x, -x[: n // 2]])  # half of it cancels
            one_by_one = torch.zeros((), dtype=dtype)
            for term in x:
                one_by_one = one_by_one + term
            holds(one_by_one, exact(x).sum())
    assert rounding.growth(10) == 9
    assert rounding.growth(10_000) == 600


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_stay_within_their_bound(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.cat([torch.randn(500) * 5, torch.tensor([0.0, 1e-20, -90.0, 88.0])]).to(dtype)
    for name, (function, _) in ACTIVATIONS.items():
        holds(mlp.ACTIVATIONS[name](x), function(exact(x)))
    small = x[x < 80]
    for op in ("exp", "tanh", "erf", "cos", "sin"):
        holds(getattr(small, op)(), getattr(exact(small), op)())
    holds((x.abs() + 1).log(), (exact(x.abs()) + 1).log())
    holds((x.abs() + 1).rsqrt(), (exact(x.abs()) + 1).rsqrt())
    holds(F.softmax(x, dim=-1), rounding.softmax(exact(x)))


def test_errors_of_operands_are_passed_on() -> None:
    """Each operand is moved by its error, both ways: the result moves by no more than its own."""
    torch.manual_seed(2)
    a, b = torch.randn(200).double(), torch.randn(200).double().abs() + 0.5
    off = torch.full((200,), 1e-3).double()
    for formula in (
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y, lambda x, y: x.exp() * y,
        lambda x, y: y.log() + x.tanh(), lambda x, y: y.rsqrt() * x.erf(), lambda x, y: x.cos() - y.sin(),
    ):  # fmt: skip
        bound = formula(Rounded(a, off, torch.float32), Rounded(b, off, torch.float32))
        used = [holds(formula(a + i * off, b + j * off), bound) for i in (-1, 1) for j in (-1, 1)]
        assert max(used) > 0.3, "a bound so wide says nothing"


def test_infinities_are_exact_and_a_row_that_sees_nothing_gives_zeros() -> None:
    row = torch.tensor([1.0, -math.inf, 2.0])
    assert rounding.softmax(exact(row)).value.tolist() == pytest.approx(
        [1 / (1 + math.e), 0, 1 / (1 + 1 / math.e)]
    )
    assert rounding.softmax(exact(row)).error[1] < 1e-30
    masked = exact(row) + exact(row)
    assert masked.error[1] == 0 and masked.value[1] == -math.inf
    assert rounding.softmax(exact(torch.full((3,), -math.inf))).value.tolist() == [0, 0, 0]
