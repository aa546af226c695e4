import math
from itertools import pairwise

import pytest

from cutaway.train.schedule import Schedule, ScheduleName

EVERY: list[ScheduleName] = ["constant", "inverse_sqrt", "cosine", "wsd"]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_starts_above_zero_and_peaks_at_the_end_of_warmup(name: ScheduleName, warmup: int) -> None:
    rates = [Schedule(name=name, warmup=warmup).at(n, 100) for n in range(1, 101)]
    assert rates[0] > 0 and min(rates) > 0
    top = max(warmup, 1) - 1
    assert rates[top] == max(rates) == 1.0
    assert all(before < after for before, after in pairwise(rates[: top + 1]))
    assert all(before >= after for before, after in pairwise(rates[top:]))


@pytest.mark.parametrize("name", ["cosine", "inverse_sqrt"])
def test_the_peak_is_a_single_step(name: ScheduleName) -> None:
    rates = [Schedule(name=name, warmup=10).at(n, 100) for n in range(1, 101)]
    assert rates.count(1.0) == 1


@pytest.mark.parametrize("name", ["cosine", "wsd"])
@pytest.mark.parametrize("end", [0.0, 0.1])
def test_reaches_its_end_one_step_after_the_last(name: ScheduleName, end: float) -> None:
    schedule = Schedule(name=name, warmup=5, end=end)
    assert schedule.at(101, 100) == pytest.approx(end)
    assert schedule.at(100, 100) > end


def test_inverse_sqrt_is_the_papers() -> None:
    d_model, warmup = 512, 4000
    schedule = Schedule(name="inverse_sqrt", warmup=warmup)
    peak = d_model**-0.5 * warmup**-0.5
    for n in (1, 17, 4000, 4001, 100_000):
        paper = d_model**-0.5 * min(n**-0.5, n * warmup**-1.5)  # Vaswani et al. 2017, equation 3
        assert peak * schedule.at(n, 100_000) == pytest.approx(paper)


def test_wsd_is_flat_then_straight() -> None:
    rates = [Schedule(name="wsd", warmup=10, decay=0.2).at(n, 100) for n in range(1, 101)]
    assert set(rates[9:80]) == {1.0}
    falls = [before - after for before, after in pairwise(rates[80:])]
    assert falls == pytest.approx([0.05] * len(falls))


@pytest.mark.parametrize("name", EVERY)
def test_a_run_of_one_step_and_one_without_end_are_fine(name: ScheduleName) -> None:
    assert Schedule(name=name).at(1, 1) > 0
    assert Schedule(name=name, warmup=3).at(5, math.inf) > 0


def test_values_out_of_range_are_named() -> None:
    for field, make in (
        ("warmup is -1", lambda: Schedule(warmup=-1)),
        ("decay is 0", lambda: Schedule(decay=0)),
        ("decay is 1.5", lambda: Schedule(decay=1.5)),
        ("end is 2", lambda: Schedule(end=2)),
    ):
        with pytest.raises(ValueError, match=field):
            make()
