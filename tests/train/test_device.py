from pathlib import Path

import pytest
import torch

from cutaway.errors import CutawayError
from cutaway.train.device import give_back_memory, multiplies_bf16, one_thread, pick_device, pick_precision

CPU = torch.device("cpu")


def test_auto_is_what_there_is() -> None:
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == CPU


@pytest.mark.parametrize("name", ["gpu", "", "cpu0x"])
def test_unknown_devices_are_named(name: str) -> None:
    with pytest.raises(CutawayError, match=rf"run\.device is '{name}', expected auto, cpu or cuda"):
        pick_device(name)


def test_bf16_where_the_hardware_has_it() -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    has = any(flag in flags for flag in ("avx512_bf16", "amx_bf16", " bf16"))
    assert multiplies_bf16(CPU) == has
    assert pick_precision("auto", CPU) == (torch.bfloat16 if has else torch.float32)
    assert pick_precision("bf16", CPU) == torch.bfloat16
    assert pick_precision("fp32", CPU) == torch.float32


def test_one_thread_is_for_the_time_being() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_memory_can_be_given_back_at_any_time() -> None:
    kept = torch.ones(1000)
    give_back_memory()
    assert float(kept.sum()) == 1000
