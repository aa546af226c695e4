"""The length penalty, whose bound the stop rule of beam search stands on; limits; and values out of range."""

import math

import pytest

from cutaway.decode.sampling import Sampling
from cutaway.decode.search import LengthPenalty, Limits, Rules, Search
from cutaway.errors import CutawayError


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


def test_limits_within_a_model_keep_what_was_given():
    assert Limits().within(64, usual=20) == Limits(20, 0, 64)
    assert Limits(7, 3).within(64, usual=20) == Limits(7, 3, 64)
    assert Limits(min_new_tokens=30).within(64, usual=20) == Limits(30, 30, 64)
    assert [Limits(9, max_len=10).room([1] * n) for n in (1, 4, 9)] == [9, 6, 1]
    with pytest.raises(CutawayError, match="10 tokens, but this model's limit is 10 positions"):
        Limits(9, max_len=10).room([1] * 10)
    with pytest.raises(CutawayError, match="nothing limits the result"):
        Limits().room([1])
    # no token needs no room
    assert Limits(0, max_len=10).room([1] * 10) == 0


def test_lengths_of_prompt_and_result_together():
    assert Limits(max_len=50).within(64, usual=20) == Limits(None, 0, 50)
    assert Limits(max_len=90).within(64, usual=20).room([1] * 4) == 60
    assert Limits(min_len=40).within(64, usual=20).max_new_tokens == 40
    limits = Limits(8, 2, 64, min_len=10)
    # it gives way to the most there may be
    assert [limits.least([1] * n) for n in (1, 5, 9)] == [8, 5, 2]
    assert limits.after(3) == Limits(8, 2, 61, min_len=7)
    with pytest.raises(CutawayError, match=r"at least 7 new tokens.*the 58 of the prompt only 6 fit into 64"):
        Limits(9, 7, 64).least([1] * 58)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Search(beam=0), "beam is 0, expected 1 to 32"),
        (lambda: Search(beam=33), "beam is 33"),
        (lambda: Search(beam=2, n_best=3), r"n_best is 3, expected 1 to the beam's width \(2\)"),
        (lambda: Search(n_best=2), "n_best is 2"),
        (lambda: Search(beam=2, n_best=0), "n_best is 0"),
        (lambda: Search(beam=2, sampling=Sampling(temperature=1.0)), "sampling needs beam 1"),
        (lambda: Search(alternatives=21), "alternatives is 21, expected 0 to 20"),
        (lambda: Search(alternatives=-1), "alternatives is -1"),
        (lambda: Limits(-1), "max_new_tokens is -1"),
        (lambda: Rules(no_repeat_ngram=-1), "no_repeat_ngram is -1"),
        (lambda: Rules(bad_words=((1,), ())), "bad_words has an empty one"),
        (lambda: Limits(3, 4), r"min_new_tokens is 4.*\(3\)"),
        (lambda: Limits(3, -1), "min_new_tokens is -1"),
        (lambda: LengthPenalty(math.nan), "length penalty alpha is nan"),
        (lambda: LengthPenalty(math.inf), "length penalty alpha is inf"),
        (lambda: LengthPenalty(11, "power"), "length penalty alpha is 11"),
    ],
)
def test_values_out_of_range_are_refused_by_name(make, message: str):
    with pytest.raises(CutawayError, match=message):
        make()
