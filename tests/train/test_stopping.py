"""Runs as a user starts them, in a process of their own, stopped from outside: by a signal, or killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.train.conftest import never
from tests.train.toy import write_data, write_recipe

from cutaway.train.recipe import read_recipe
from cutaway.train.run import train
from cutaway.train.state import RunFolder, damage, sha256

LONG = ("steps=100000", "save_every=100000", "validate_every=100000", "data.validation.translations=0")


def start(recipe: Path, *overrides: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cutaway", "train", str(recipe), *overrides]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def wait_for(log: Path, process: subprocess.Popen[str], lines: int) -> None:
    deadline = time.monotonic() + 120
    while not log.exists() or len(log.read_bytes().splitlines()) < lines:
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


@pytest.mark.slow
def test_killed_at_random_moments_again_and_again(tmp_path: Path) -> None:
    """R01: after kill -9 at any moment, mostly during saves, a run resumes from its newest whole checkpoint, and
    in the end equals a straight one."""
    write_data(tmp_path)
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    settings = ("steps=60", "save_every=1", "validate_every=60", "data.validation.translations=0")
    run.mkdir()
    draws, kills, seen = random.Random(0), 0, 0
    while seen < 60:
        process = start(recipe, *settings)
        while process.poll() is None and max(RunFolder(run).steps(), default=0) <= seen:
            time.sleep(0.01)
        time.sleep(draws.random())
        if process.poll() is None:
            process.kill()
            kills += 1
        said = process.communicate()[1]
        assert process.returncode in (0, -signal.SIGKILL), said
        assert "Traceback" not in said and "passed over" not in said, said
        newest = RunFolder(run).newest(never)
        assert newest is not None
        step = int(newest.name.removeprefix("step-"))
        assert step > seen
        seen = step
    assert kills > 0 and seen == 60
    train(read_recipe(recipe, (*settings, f"run.folder={tmp_path}/straight")))
    assert losses(run) == losses(tmp_path / "straight")
    for name in ("model.safetensors", "training.safetensors"):
        assert sha256(run / "step-00000060" / name) == sha256(tmp_path / "straight" / "step-00000060" / name)
    assert not list(run.glob("*.tmp-*"))


# Forks 200 savers, kills each after a random time, and looks at what is left each time.
SAVERS = """
import os, random, signal, sys, time, torch
from pathlib import Path
from cutaway.train.state import RunFolder
path, draws, seen = Path(sys.argv[1]), random.Random(1), 0
for kill in range(200):
    child = os.fork()
    if child == 0:
        with RunFolder(path) as folder:
            step = max(folder.steps(), default=0)
            while True:
                step += 1
                tensors = {"w": torch.full((20_000,), float(step))}
                folder.save(step, lambda at: (at / "config.json").write_text(str(step)), tensors, {"step": step})
                folder.retain(2, {})
    time.sleep(draws.random() * 0.2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    newest = RunFolder(path).newest(sys.exit)  # a damaged one with a manifest would be a failure
    if newest is not None:
        step = int((newest / "config.json").read_text())
        assert newest == RunFolder(path).at(step) and step >= seen, (newest, step, seen)
        seen = step
with RunFolder(path) as folder:
    assert not list(path.glob("*.tmp-*"))
print(seen)
"""


@pytest.mark.slow
def test_two_hundred_kills_during_saves(tmp_path: Path) -> None:
    """R01: a process that saves without pause is killed after a random time; the newest step is always whole."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SAVERS, str(tmp_path / "run")]
    (tmp_path / "run").mkdir()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


@pytest.mark.slow
def test_two_hundred_kills_with_damage_in_between(tmp_path: Path) -> None:
    """R01, R04, R18: see kill_rounds for what is looked at each time. A run goes on, or over, from what is whole, so in
    the end it is the run that was never disturbed, bit for bit."""
    write_data(tmp_path)
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.train.kill_rounds", str(recipe), str(run), "200", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    last = int(done.stdout.split()[0])
    assert last > 20
    for name in ("model.safetensors", "training.safetensors"):
        one, other = (sha256(tmp_path / folder / f"step-{last:08d}" / name) for folder in ("run", "straight"))
        assert one == other
    assert damage(run / "model") is None and damage(tmp_path / "straight" / "model") is None
    assert not list(run.glob("*.tmp*"))


@pytest.mark.slow
# torch's compiler uses what torch deprecates
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_compiled_run_learns_as_an_eager_one(tmp_path: Path) -> None:
    write_data(tmp_path)
    recipe = write_recipe(tmp_path)
    settings = ("steps=3", "data.validation.translations=0", "model.dropout=0.0")
    train(read_recipe(recipe, settings))
    train(read_recipe(recipe, (*settings, "compile=true", f"run.folder={tmp_path}/compiled")))
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "compiled"), rel=1e-4)
