"""Opening takes the memory of the weights once, and nothing of it hangs on the file afterwards."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.checkpoint.models import write

from cutaway.checkpoint import folder
from cutaway.config import ModelConfig, parse
from cutaway.models.build import PRESETS, build

# Each opening in a child of its own: memory that an earlier one gave back would hide what a later one takes.
MEASURE = """
import os, sys, torch
from pathlib import Path
from cutaway.checkpoint.folder import load

def kilobytes(name):
    return int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(name)).split()[1])

load(sys.argv[1])
for path, dtype in [case.split("=") for case in sys.argv[2:]]:
    sys.stdout.flush()
    if os.fork() == 0:
        load(sys.argv[1])  # a child maps the code's pages anew
        Path("/proc/self/clear_refs").write_text("5")
        before = kilobytes("VmRSS")
        model = load(path, dtype=getattr(torch, dtype)).model
        grown = kilobytes("VmHWM") - before
        print(grown * 1024 / sum(p.numel() * p.element_size() for p in model.parameters()), flush=True)
        os._exit(0)
    os.wait()
late = {"torch._dynamo", "sympy", "transformers"} & set(sys.modules)
print("late:", *late)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux tells a process's peak in /proc"
)
def test_the_peak_is_the_weights_and_little_more(tmp_path: Path) -> None:
    sizes = {"vocab_size": 3000, "d_model": 512, "n_layers": 4, "n_heads": 8, "d_ff": 1408}
    for name, dtype in (
        ("llama-tiny", torch.float32),
        ("llama-tiny", torch.bfloat16),
        ("gpt2-small", torch.float32),
    ):
        model = build(parse(ModelConfig, {**PRESETS[name], **sizes}, name))
        folder.save(tmp_path / f"{name}-{dtype}", model, dtype=dtype, shard_size=20_000_000)
    cases = ("llama-tiny-torch.float32=float32", "llama-tiny-torch.bfloat16=float32",
             "llama-tiny-torch.bfloat16=bfloat16", "gpt2-small-torch.float32=float32")  # fmt: skip
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            MEASURE,
            write(tmp_path / "small", "llama"),
            *(f"{tmp_path}/{case}" for case in cases),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    *ratios, late = run.stdout.splitlines()
    assert len(ratios) == len(cases)
    for case, ratio in zip(cases, ratios, strict=True):
        # 1.1 as a rule; where the heap begins is random, and may leave holes of a third of so small a model.
        assert 0.9 < float(ratio) < 1.5, f"{case}: {ratio} times the weights"
    # what would make the first opening slow
    assert late == "late:"


@pytest.mark.parametrize("kind", ["llama", "gpt2", "marian"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_are_their_own_and_can_be_trained(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    path = write(tmp_path, kind)
    model = folder.load(path, dtype=dtype).model
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    weights = path / "model.safetensors"
    with weights.open("r+b") as file:
        file.write(b"\xff" * weights.stat().st_size)
        file.truncate(10)
    storages = set()
    for name, parameter in model.named_parameters():
        assert (parameter.dtype, parameter.device.type, parameter.requires_grad) == (dtype, "cpu", True), name
        assert parameter.is_contiguous(), name
        assert torch.equal(parameter, before[name]), name
        storages.add(parameter.untyped_storage().data_ptr())
        parameter.data.add_(1)
        assert torch.equal(parameter, before[name] + 1), name
    assert len(storages) == len(before)
    ids = torch.arange(12).reshape(2, 6)
    logits = model(ids, ids) if kind == "marian" else model(ids)
    logits.float().logsumexp(-1).mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_tied_parameters_stay_one(tmp_path: Path) -> None:
    model = folder.load(write(tmp_path, "marian")).model
    tied = [
        model.get_parameter(f"{name}.weight")
        for name in ("source_embed.tokens", "target_embed.tokens", "head.unembed")
    ]
    assert tied[0] is tied[1]
    assert tied[0] is tied[2]
