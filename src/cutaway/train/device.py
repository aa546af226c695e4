"""Where a run computes, and in which precision its products are fast."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import torch

from cutaway.errors import CutawayError


def pick_device(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA where there is one, else the CPU. Raises CutawayError."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise CutawayError("run.device is {name!r}, expected auto, cpu or cuda", name=name) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CutawayError(
            "run.device is {name!r}, but torch sees no CUDA device here; use cpu or auto", name=name
        )
    return device


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
    if name == "auto":
        return torch.bfloat16 if multiplies_bf16(device) else torch.float32
    return torch.bfloat16 if name == "bf16" else torch.float32


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
