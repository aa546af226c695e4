"""The tests' own measure: every order of a sum is near, and what no order explains is not."""

import pytest
import torch
from tests.nearness import assert_near


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("terms", [2, 40, 3000])
def test_orders_of_a_sum_are_near_and_a_lost_term_is_not(terms: int, dtype: torch.dtype) -> None:
    made = torch.Generator().manual_seed(terms)
    x = torch.rand(20, terms, generator=made).add(0.5).to(dtype)
    exact = x.double().sum(dim=-1)
    for order in (torch.arange(terms), torch.arange(terms).flip(0), torch.randperm(terms, generator=made)):
        total = torch.zeros(20, dtype=dtype)
        for i in order.tolist():
            total += x[:, i]
        assert_near(total, exact, terms)
    assert_near(torch.tensor([1e-7]), torch.tensor([0.0]), 40, size=1.0)
    with pytest.raises(AssertionError, match="the sum: "):
        assert_near(x.float().sum(dim=-1) - x[:, 0], x.float().sum(dim=-1), terms, name="the sum")
