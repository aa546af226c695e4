import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from cutaway.errors import CutawayError
from cutaway.train.machine import (
    Interrupts,
    give_back_memory,
    memory,
    multiplies_bf16,
    one_thread,
    pick_device,
    pick_precision,
)

CPU = torch.device("cpu")


def test_auto_is_what_there_is() -> None:
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == CPU


def test_a_system_that_does_not_tell_its_memory_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    told = memory(CPU)
    assert told is None or told > 2**24
    monkeypatch.setattr(os, "sysconf_names", {}, raising=False)
    assert memory(CPU) is None


@pytest.mark.parametrize("name", ["gpu", "", "cpu0x", "meta", "mps"])
def test_unknown_devices_are_named(name: str) -> None:
    with pytest.raises(CutawayError, match=rf"run\.device is '{name}', expected auto, cpu or cuda"):
        pick_device(name)


def test_a_cuda_device_that_is_not_there_is_named() -> None:
    with pytest.raises(CutawayError, match=r"run\.device is 'cuda:99', but the CUDA devices that torch sees"):
        pick_device("cuda:99")


def test_bf16_where_the_hardware_has_it() -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    has = any(flag in flags for flag in ("avx512_bf16", "amx_bf16", " bf16"))
    assert multiplies_bf16(CPU) == has
    assert pick_precision("auto", CPU) == (torch.bfloat16 if has else torch.float32)
    assert pick_precision("bf16", CPU) == torch.bfloat16
    assert pick_precision("fp32", CPU) == torch.float32


def test_one_thread_is_for_the_time_being() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library keeps what was freed"
)
def test_memory_that_was_freed_in_pieces_goes_back_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )

    pieces = [bytes([1]) * 2000 for _ in range(50_000)]
    # the last piece lies at the top, and keeps the others' 100 MB in the process
    del pieces[:-1]
    before = resident()
    give_back_memory()
    assert before - resident() > 50_000_000


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_first_signal_is_only_noted(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        assert not interrupts() and interrupts.exit_code == 0
        signal.raise_signal(number)
        assert interrupts() and interrupts.exit_code == code
        assert signal.getsignal(signal.SIGINT) == signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(number) == before


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """R07, with a run too busy to look: a single batch that takes minutes."""
    busy = "import time; from cutaway.train.machine import Interrupts; from pathlib import Path\nwith Interrupts():"
    busy += f"\n Path({str(tmp_path / 'ready')!r}).touch()\n while True: time.sleep(1)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", busy], env=environment, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "ready").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.3)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=5)[1]
    assert process.returncode == -signal.SIGINT and said == ""
