"""How much memory something takes at its peak."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

STATUS = Path("/proc/self/status")


def _kilobytes(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


@contextmanager
def _limited(megabytes: float) -> Iterator[None]:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _kilobytes("VmRSS")
    yield
    grown = (_kilobytes("VmHWM") - before) / 1000
    assert grown < megabytes, f"the process grew by {grown:.0f} MB, expected less than {megabytes}"


@pytest.fixture
def grows_less_than() -> Callable[[float], AbstractContextManager[None]]:
    """`with grows_less_than(50):` fails when this process needs that many megabytes more at any time within."""
    if not STATUS.exists():
        pytest.skip("the peak of a process's memory is read from /proc, which only Linux has")
    return _limited
