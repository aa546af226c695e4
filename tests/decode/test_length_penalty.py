"""The formulas, and the bound that the stop rule of beam search stands on."""

import pytest

from cutaway.decode.length_penalty import LengthPenalty


@pytest.mark.parametrize(
    ("penalty", "length", "divisor"),
    [
        (LengthPenalty(0.6, "gnmt"), 1, 1.0),
        (LengthPenalty(1.0, "gnmt"), 13, 3.0),
        (LengthPenalty(-1.0, "gnmt"), 13, 1 / 3),
        (LengthPenalty(1.0, "power"), 13, 13.0),
        (LengthPenalty(0.0, "power"), 13, 1.0),
        (LengthPenalty(2.0, "power"), 5, 25.0),
    ],
)
def test_divisors(penalty: LengthPenalty, length: int, divisor: float):
    assert penalty.divisor(length) == pytest.approx(divisor)


def test_the_papers_penalty_is_the_default():
    assert LengthPenalty().divisor(7) == pytest.approx(2**0.6)


@pytest.mark.parametrize("kind", ["gnmt", "power"])
@pytest.mark.parametrize("alpha", [-2.0, -0.3, 0.0, 0.6, 1.0, 3.0])
def test_the_best_attainable_score_is_reached_and_never_exceeded(kind, alpha: float):
    penalty = LengthPenalty(alpha, kind)
    for length, most in ((0, 1), (3, 4), (3, 20), (1, 50)):
        ahead = [-2.5 / penalty.divisor(longer) for longer in range(length + 1, most + 1)]
        assert penalty.best_attainable(-2.5, length, most) == pytest.approx(max(ahead))
