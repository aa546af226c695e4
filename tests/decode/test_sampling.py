"""Filters and draws, against exact arithmetic."""

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.decode.sampling import (
    Draws,
    Sampling,
    draw,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
    row_seed,
    shape,
)
from cutaway.errors import CutawayError


def logits_of(weights: list[int]) -> torch.Tensor:
    """fp32 logits of the distribution proportional to `weights`."""
    return torch.tensor([[math.log(w / sum(weights)) for w in weights]], dtype=torch.float32)


def kept(logits: torch.Tensor) -> set[int]:
    return set((logits[0] > -math.inf).nonzero()[:, 0].tolist())


def nucleus(weights: list[int], p: Fraction) -> set[int]:
    """The smallest prefix of the best tokens with mass >= p; of equal ones, the first come first."""
    chosen: set[int] = set()
    mass = Fraction(0)
    for i in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        chosen.add(i)
        mass += Fraction(weights[i], sum(weights))
        if mass >= p:
            break
    return chosen


@pytest.mark.parametrize(
    ("weights", "p", "size"),
    [
        ([5, 3, 1, 1], Fraction(8, 10), 2),
        ([4, 3, 2, 1], Fraction(8, 10), 3),
        ([4, 2, 1, 1], Fraction(3, 4), 2),
        ([1, 1, 1, 1, 1, 1, 1], Fraction(3, 7), 3),
        ([97, 1, 1, 1], Fraction(1, 100), 1),
    ],
)
def test_nucleus_is_the_smallest_set_that_reaches_p_even_exactly(weights: list[int], p: Fraction, size: int):
    assert kept(keep_top_p(logits_of(weights), float(p))) == nucleus(weights, p)
    assert len(nucleus(weights, p)) == size


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(1, 40))
def test_nucleus_equals_rational_arithmetic(weights: list[int], fortieths: int):
    p = Fraction(fortieths, 40)
    assert kept(keep_top_p(logits_of(weights), float(p))) == nucleus(weights, p)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=9), st.integers(0, 7))
def test_nucleus_ends_where_the_mass_equals_p(weights: list[int], place: int):
    ranked = sorted(weights, reverse=True)
    p = Fraction(sum(ranked[: place % len(ranked) + 1]), sum(ranked))
    assert kept(keep_top_p(logits_of(weights), float(p))) == nucleus(weights, p)


def test_top_k_keeps_exactly_k_and_is_capped():
    logits = torch.tensor([[1.0, 3.0, 3.0, 3.0, -2.0], [5.0, 4.0, 3.0, 2.0, 1.0]])
    assert (keep_top_k(logits, 2) > -math.inf).sum(dim=1).tolist() == [2, 2]
    assert kept(keep_top_k(logits[1:], 2)) == {0, 1}
    assert torch.equal(keep_top_k(logits, 99), logits)


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.0, {0, 1, 2, 3}), (0.1, {0, 1, 2, 3}), (0.25, {0, 1, 2}), (0.26, {0, 1}), (1.0, {0})],
)
def test_min_p_is_a_share_of_the_best_probability(p: float, expected: set[int]):
    assert kept(keep_min_p(logits_of([8, 4, 2, 1]), p)) == expected


def test_penalty_makes_seen_tokens_less_likely_whatever_their_sign():
    logits, seen = torch.tensor([[2.0, -2.0, 1.0, -1.0]]), torch.tensor([[True, True, False, False]])
    assert penalise_repetition(logits, seen, 2.0).tolist() == [[1.0, -4.0, 1.0, -1.0]]


def test_filters_apply_one_after_the_other():
    # Of [.4 .3 .2 .1], top_k 3 leaves [.444 .333 .222], whose nucleus of 0.7 is the first two.
    shaped = shape(logits_of([4, 3, 2, 1]), Sampling(temperature=1.0, top_k=3, top_p=0.7))
    assert torch.allclose(shaped.softmax(dim=-1), torch.tensor([[4 / 7, 3 / 7, 0, 0]], dtype=torch.float64))


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 0.5, 1e9])
def test_no_temperature_overflows(temperature: float):
    shaped = shape(torch.tensor([[3.0, 1.0, -50.0, -math.inf]]), Sampling(temperature=temperature))
    probability = shaped.softmax(dim=-1)[0]
    assert probability.isfinite().all()
    assert probability[3] == 0
    if temperature < 1e-6:
        assert probability[0] == 1


def test_draws_follow_the_distribution_of_the_nucleus():
    weights, n = [40, 30, 20, 10], 20_000
    shaped = keep_top_p(logits_of(weights), 0.8).expand(n, -1)
    draws = Draws([5])
    uniform = torch.cat([draws.next() for _ in range(n)])
    counts = torch.bincount(draw(shaped, uniform), minlength=4).double()
    expected = torch.tensor([40, 30, 20], dtype=torch.float64) / 90 * n
    assert counts[3] == 0
    # chi-square, 2 degrees, 0.1 %
    assert float(((counts[:3] - expected) ** 2 / expected).sum()) < 13.8


def test_draw_never_takes_an_impossible_token():
    shaped = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]]).expand(3, -1)
    assert draw(shaped, torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)).tolist() == [1, 3, 3]


def test_a_row_draws_the_same_alone_and_beside_others():
    seeds = [row_seed(1, row) for row in range(4)]
    together = Draws(seeds)
    first = torch.stack([together.next() for _ in range(100)])
    together.select(torch.tensor([3, 1]))
    later = torch.stack([together.next() for _ in range(100)])
    for row, column in ((1, 1), (3, 0)):
        alone = Draws([seeds[row]])
        numbers = torch.cat([alone.next() for _ in range(200)])
        assert torch.equal(numbers, torch.cat([first[:, row], later[:, column]]))


def test_row_seeds_differ():
    assert len({row_seed(seed, row) for seed in range(30) for row in range(30)}) == 900


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": -0.1}, "top_p is -0.1"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_p": math.nan}, "top_p is nan"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"min_p": 1.5}, "min_p is 1.5"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"repetition_penalty": math.inf}, "repetition_penalty is inf"),
    ],
)
def test_values_out_of_range_are_refused_by_name(settings: dict[str, Any], message: str):
    with pytest.raises(CutawayError, match=message):
        Sampling(**settings)
