"""The machine a run has: its device, precision, threads and memory, its random generators, and its signals."""

import ctypes
import hashlib
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Literal

import torch
from torch import Tensor

from cutaway.errors import CutawayError


def pick_device(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA where there is one, else the CPU. Raises CutawayError."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if count else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise CutawayError("run.device is {name!r}, expected auto, cpu or cuda", name=name)
    if device.type == "cuda" and (device.index or 0) >= count:
        raise CutawayError(
            "run.device is {name!r}, but the CUDA devices that torch sees here are {count}; use cpu or auto",
            name=name,
            count=count,
        )
    return device


def memory(device: torch.device) -> int | None:
    """Bytes that the device has, in use or not; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def multiplies_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bf16 matrices in hardware, so that bf16 pays."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        has = torch.cpu.get_capabilities()
        return bool(has.get("avx512_bf16") or has.get("amx_bf16") or has.get("bf16"))
    return False


def pick_precision(name: Literal["auto", "bf16", "fp32"], device: torch.device) -> torch.dtype:
    """The type of matrix products: bf16 under autocast, or fp32. "auto": bf16 where hardware has it."""
    reduced = multiplies_bf16(device) if name == "auto" else name == "bf16"
    return torch.bfloat16 if reduced else torch.float32


@contextmanager
def one_thread() -> Iterator[None]:
    """Within this context torch uses one CPU thread.

    For many small elementwise operations: on a busy machine each parallel region waits for the slowest thread to
    be scheduled. AdamW over 10 M parameters in 200 tensors took 10 ms with one thread, idle or not, and up to
    1,600 ms with two while another process was running.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def give_back_memory() -> None:
    """Return freed memory to the system, where the C library can.

    glibc keeps what was freed in pieces: reading and tokenising a corpus leaves gigabytes, and batches of ever new
    shapes some ten megabytes each (1.95 GB became 1.06 GB after 360 steps with 120 shapes).
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@dataclass(frozen=True)
class RandomState:
    """Every generator that training draws from."""

    tensors: dict[str, Tensor]
    python: object


def random_state(device: torch.device) -> RandomState:
    tensors = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    version, numbers, gauss = random.getstate()
    return RandomState(tensors, [version, list(numbers), gauss])


def restore_random_state(state: RandomState, device: torch.device) -> None:
    torch.set_rng_state(state.tensors["torch"])
    if device.type == "cuda" and "cuda" in state.tensors:
        torch.cuda.set_rng_state(state.tensors["cuda"], device)
    assert isinstance(state.python, list)
    version, numbers, gauss = state.python
    random.setstate((version, tuple(numbers), gauss))


def draw_seed(seed: int, step: int, part: int) -> int:
    """A seed for the random choices of one batch, the same whenever that batch comes round."""
    digest = hashlib.blake2b(f"{seed}/{step}/{part}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class Interrupts:
    """Within this context the first SIGINT or SIGTERM only sets `received`; a second one ends the process at once.

    Only the main thread of a process may enter it (Python delivers signals there).
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __enter__(self) -> "Interrupts":
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        for known in (signal.SIGINT, signal.SIGTERM):
            signal.signal(known, signal.SIG_DFL)

    def __call__(self) -> bool:
        return self.received is not None

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, as shells count; 0 without a signal."""
        return 0 if self.received is None else 128 + self.received
