"""The numbers hold on every processor: the tests of numbers, run as lesser processors run them, and with two threads.

`ATEN_CPU_CAPABILITY`, `MKL_CBWR` and `ONEDNN_MAX_CPU_ISA` tell PyTorch and its two matrix libraries which instructions
to do without, and so in what order sums are made.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
ARITHMETIC = (
    "inspection/test_arithmetic.py",
    "inspection/test_rounding.py",
    "inspection/test_vector_models.py",
)
NUMERIC = ("nn", "models", "parity", *ARITHMETIC, "test_tap.py", "test_docs.py")
SETTINGS = {
    "default": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "own": {},
}


def test_the_tests_of_numbers_are_there() -> None:
    """What is slow is not run each time, and a path that has moved would be found late."""
    assert not [name for name in NUMERIC if not (ROOT / "tests" / name).exists()]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("processor", SETTINGS)
def test_numbers_hold(processor: str, threads: int) -> None:
    if processor == "avx2" and "AVX" not in torch.backends.cpu.get_cpu_capability():
        pytest.skip("this processor has no AVX2 to be held to")
    settings = SETTINGS[processor] | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-rf", "-p", "no:cacheprovider"]
    tests = [str(ROOT / "tests" / name) for name in NUMERIC]
    done = subprocess.run(
        [*command, "-m", "not slow", *tests],
        cwd=ROOT, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
