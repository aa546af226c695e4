"""The divergence of distributions, against plain sums."""

import math

import torch

from cutaway.inspection.outcome import divergence


def test_it_is_the_sum_over_what_has_probability() -> None:
    p, q = [0.5, 0.25, 0.25, 0.0], [0.25, 0.5, 0.25, 0.0]
    expected = math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a)
    rows = torch.tensor([p, q, [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64).log()
    found = divergence(rows, torch.tensor([q, q, [0.0, 1.0, 0.0, 0.0]], dtype=torch.float64).log())
    torch.testing.assert_close(found, torch.tensor([expected, 0.0, math.inf], dtype=torch.float64))
