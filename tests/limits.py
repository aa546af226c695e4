"""What something may take at most: of the processor's time, of memory."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# What a million additions take where the limits were written; a slower or busy processor is given more in proportion.
YARDSTICK = 0.05
STATUS = Path("/proc/self/status")


def _used() -> float:
    """Seconds of the processor that this process and those it waited for have used."""
    return sum(os.times()[:4])


@contextmanager
def takes_less_than(seconds: float) -> Iterator[None]:
    """`with takes_less_than(2):` fails when what is within needs more than 2 seconds of an ordinary processor."""
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


def _kilobytes(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


@contextmanager
def grows_less_than(megabytes: float) -> Iterator[None]:
    """`with grows_less_than(50):` fails when this process needs that many megabytes more at any time within."""
    if not STATUS.exists():
        pytest.skip("the peak of a process's memory is read from /proc, which only Linux has")
    gc.collect()
    # the peak counts from here
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("VmRSS")
    yield
    grown = (_kilobytes("VmHWM") - before) / 1000
    assert grown < megabytes, f"the process grew by {grown:.0f} MB, expected less than {megabytes}"
