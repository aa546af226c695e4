"""Runs as a user starts them, in a process of their own, stopped from outside."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.train.toy import write_data, write_recipe

from cutaway.train.recipe import read_recipe
from cutaway.train.run import train
from cutaway.train.signals import Interrupts
from cutaway.train.state import RunFolder, damage, sha256

LONG = ("steps=100000", "save_every=100000", "validate_every=100000", "data.validation.translations=0")


def start(recipe: Path, *overrides: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cutaway", "train", str(recipe), *overrides]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def wait_for(
    condition: Path, process: subprocess.Popen[str] | subprocess.Popen[bytes], lines: int = 1
) -> None:
    deadline = time.monotonic() + 120
    while not condition.exists() or len(condition.read_bytes().splitlines()) < lines:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def losses(folder: Path) -> list[float]:
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]


def test_a_signal_saves_and_ends_with_its_code(tmp_path: Path) -> None:
    """R07: within 10 s, and the resumed run equals one that was never stopped."""
    write_data(tmp_path)
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    process = start(recipe, *LONG)
    wait_for(run / "log.jsonl", process, lines=5)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert time.monotonic() - sent < 10
    assert process.returncode == 143, said
    assert "the same command goes on" in said and "Traceback" not in said
    step = RunFolder(run).steps()[-1]
    assert damage(RunFolder(run).at(step)) is None and len(losses(run)) == step
    more = (*LONG[1:], f"steps={step + 3}")
    train(read_recipe(recipe, more))
    train(read_recipe(recipe, (*more, f"run.folder={tmp_path}/straight")))
    assert losses(run) == losses(tmp_path / "straight")
    last = f"step-{step + 3:08d}"
    for name in ("model.safetensors", "training.safetensors"):
        assert sha256(run / last / name) == sha256(tmp_path / "straight" / last / name)


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
    busy = "import time; from cutaway.train.signals import Interrupts; from pathlib import Path\nwith Interrupts():"
    busy += f"\n Path({str(tmp_path / 'ready')!r}).touch()\n while True: time.sleep(1)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", busy], env=environment, stderr=subprocess.PIPE, text=True
    )
    wait_for(tmp_path / "ready", process, lines=0)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.3)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=5)[1]
    assert process.returncode == -signal.SIGINT and said == ""
