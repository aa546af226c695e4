"""What every test may count on."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

# Models here are tiny: a second thread only waits for the first, and dearly on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what runs in the background deaf to SIGINT, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.command"]

# What a million additions take where the limits were written; a slower or busy processor is given more in proportion.
YARDSTICK = 0.05


def _used() -> float:
    """Seconds of the processor that this process and those it waited for have used."""
    return sum(os.times()[:4])


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    started = _used()
    yield
    used = _used() - started
    if used < seconds:
        return
    started, total = _used(), 0
    for i in range(1_000_000):
        total += i
    here = seconds * (_used() - started) / YARDSTICK
    assert used < here, f"took {used:.1f} s of the processor, expected less than {max(seconds, here):.1f}"


@pytest.fixture
def takes_less_than() -> Callable[[float], AbstractContextManager[None]]:
    """`with takes_less_than(2):` fails when what is within needs more than 2 seconds of an ordinary processor."""
    return _limited
