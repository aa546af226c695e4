import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.train.conftest import never

from cutaway.errors import CutawayError
from cutaway.train.state import RunFolder, damage, read_state
from cutaway.words import Text

# In a fresh process, for each point: a fork that dies at this point of saving step 2, after step 1 was saved.
KILLED = """
import os, sys, torch
from pathlib import Path
from cutaway.train.state import RunFolder
def save(folder, step):
    folder.save(step, lambda path: (path / "config.json").write_text("{}"), {"w": torch.zeros(4)}, {"step": step})
for point in sys.argv[2:]:
    path = Path(sys.argv[1]) / point
    with RunFolder(path) as folder:
        save(folder, 1)
        if point == "between_renames":  # only a damaged folder of the same name is ever in the way
            folder.at(2).mkdir()
    child = os.fork()
    if child == 0:
        os.environ["CUTAWAY_CRASH_AT"] = point
        with RunFolder(path) as folder:
            save(folder, 2)
        os._exit(0)
    print(point, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
POINTS = ["model_written", "files_written", "manifest_written", "synced", "between_renames", "renamed"]


# The same for an export of step 2 where a model/ lies already, of step 1.
EXPORTING = """
import os, sys
from pathlib import Path
from cutaway.train.state import RunFolder
for point in sys.argv[2:]:
    path = Path(sys.argv[1]) / point
    with RunFolder(path) as folder:
        for step in (1, 2):
            folder.save(step, lambda path: (path / "config.json").write_text(str(step)), {}, {})
        folder.export(folder.at(1))
    child = os.fork()
    if child == 0:
        os.environ["CUTAWAY_CRASH_AT"] = point
        with RunFolder(path) as folder:
            folder.export(folder.at(2))
        os._exit(0)
    print(point, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def save(folder: RunFolder, step: int, size: int = 4) -> Path:
    def write_model(path: Path) -> None:
        (path / "config.json").write_text("{}")

    return folder.save(step, write_model, {"w": torch.full((size,), float(step))}, {"step": step})


def test_what_is_saved_comes_back(folder: RunFolder) -> None:
    path = save(folder, 3)
    assert path.name == "step-00000003" and folder.newest(never) == path
    tensors, values = read_state(path)
    assert torch.equal(tensors["w"], torch.full((4,), 3.0)) and values == {"step": 3}
    assert sorted(entry.name for entry in folder.path.iterdir()) == ["step-00000003"]


def test_every_damage_is_found_and_named(folder: RunFolder) -> None:
    """R04: cut by 1, 8, half; one bit flipped at 100 offsets; missing files and manifests."""
    good = save(folder, 1)
    path = save(folder, 2, size=64)
    draws = random.Random(0)
    for name in ("training.safetensors", "training.json", "config.json"):
        file = path / name
        whole = file.read_bytes()
        wrong = [whole[:-1], whole[:-8], whole[: len(whole) // 2], whole + b" "]
        for _ in range(100):
            at = draws.randrange(len(whole))
            wrong.append(whole[:at] + bytes([whole[at] ^ 1 << draws.randrange(8)]) + whole[at + 1 :])
        for data in wrong:
            file.write_bytes(data)
            found = damage(path)
            assert found is not None and str(file) in str(found)
        file.unlink()
        assert "missing" in str(damage(path))
        file.write_bytes(whole)
        assert damage(path) is None
    for text in ("", "{", "[]", "{}", '{"files": 3}', '{"files": {}}', '{"files": {"config.json": 1}}'):
        (path / "manifest.json").write_text(text)
        assert re.search(r"manifest\.json|config\.json", str(damage(path)))
    (path / "manifest.json").unlink()
    assert "cannot be read" in str(damage(path))
    assert folder.newest(lambda line: None) == good


def forget_the_state(path: Path) -> None:
    """A manifest that is right about what it lists, but lists no training state."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["files"]["training.safetensors"]
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: (path / "config.json").write_text("{ }"),
        lambda path: (path / "manifest.json").unlink(),
        lambda path: (path / "manifest.json").write_text('{"files": {}}'),
        lambda path: (path / "training.json").unlink(),
        forget_the_state,
    ],
)
def test_what_is_damaged_is_put_aside_and_counts_no_more(
    folder: RunFolder, harm: Callable[[Path], object]
) -> None:
    """Nothing is retained in the place of a whole one, and nothing is lost: the folder lies there under another
    name."""
    for step in (1, 2, 3):
        save(folder, step)
    for step in (2, 3):
        harm(folder.at(step))
    told: list[Text] = []
    assert folder.newest(told.append) == folder.at(1) and folder.steps() == [1]
    assert [
        f"put aside as {folder.at(step)}.damaged" in str(line)
        for step, line in zip((3, 2), told, strict=True)
    ]
    assert folder.newest(never) == folder.at(1)
    save(folder, 2)
    assert folder.retain(1, {}) == [] and folder.newest(never) == folder.at(2)
    assert sorted(path.name for path in folder.path.glob("*.damaged")) == [
        "step-00000002.damaged", "step-00000003.damaged",
    ]  # fmt: skip


def test_the_best_is_the_best_of_those_that_are_whole(folder: RunFolder) -> None:
    for step in (1, 2, 3, 4):
        save(folder, step)
    losses = {1: 2.0, 2: 1.0, 3: 1.0, 9: 0.5}
    assert folder.ranked(losses) == [2, 3, 1, 4] and folder.ranked({}) == [4, 3, 2, 1]
    assert folder.best(losses, never) == folder.at(2)
    (folder.at(2) / "config.json").write_text("[]")
    shutil.rmtree(folder.at(3))
    told: list[Text] = []
    assert folder.best(losses, told.append) == folder.at(1) and "config.json" in str(told[0])


def test_a_damaged_folder_is_replaced_by_a_new_save(folder: RunFolder) -> None:
    path = save(folder, 2)
    (path / "training.json").write_text("{}")
    save(folder, 2)
    assert damage(path) is None and folder.steps() == [2]


def test_retention_keeps_the_newest_and_the_best(folder: RunFolder) -> None:
    for step in range(1, 7):
        save(folder, step)
    assert folder.retain(2, {2: 1.5, 3: 1.0, 4: 1.5}) == []
    assert folder.steps() == [3, 5, 6]
    assert folder.retain(1, {2: 1.5}) == []
    assert folder.steps() == [6]


def test_a_delete_that_fails_is_reported_and_leaves_nothing_half_valid(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R18."""
    for step in (1, 2, 3):
        save(folder, step)

    def refuse(path: Path) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    failed = folder.retain(1, {})
    assert len(failed) == 2 and re.search("step-00000001.*busy", str(failed[0]))
    assert folder.steps() == [3] and damage(folder.at(3)) is None


def test_an_exception_while_saving_leaves_the_last_checkpoint(folder: RunFolder) -> None:
    """R18."""
    save(folder, 1)

    def hook(path: Path) -> None:
        (path / "config.json").write_text("{}")
        raise KeyError("hook")

    with pytest.raises(KeyError, match="hook"):
        folder.save(2, hook, {}, {})
    assert [entry.name for entry in folder.path.iterdir()] == ["step-00000001"]
    assert damage(folder.at(1)) is None


def test_a_full_disk_is_said_and_nothing_partial_stays(folder: RunFolder) -> None:
    """R02, by a limit on the size of files."""
    save(folder, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(CutawayError, match=r"step-00000002 could not be written.*earlier checkpoints"):
            save(folder, 2, size=10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [entry.name for entry in folder.path.iterdir()] == ["step-00000001"]
    assert folder.newest(never) == folder.at(1)


def test_killed_at_any_point_of_a_save(tmp_path: Path) -> None:
    """R01 at fault points: step 1 stands or step 2 does, whole; what is left over is swept away."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, str(tmp_path), *POINTS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == [word for point in POINTS for word in (point, str(-signal.SIGKILL))]
    for point in POINTS:
        path = tmp_path / point
        assert list(path.glob("*.tmp-*")) or point == "renamed"
        with RunFolder(path) as folder:
            assert folder.newest(never) == folder.at(2 if point in ("between_renames", "renamed") else 1)
            assert not list(path.glob("*.tmp-*"))


def test_killed_at_any_point_of_an_export(tmp_path: Path) -> None:
    """There is the old model or the new one, whole, as soon as the run is started again."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    points = POINTS[1:]
    command = [sys.executable, "-c", EXPORTING, str(tmp_path), *points]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == [word for point in points for word in (point, str(-signal.SIGKILL))]
    for point in points:
        path = tmp_path / point
        with RunFolder(path):
            assert damage(path / "model") is None
            replaced = point in ("between_renames", "renamed")
            assert (path / "model" / "config.json").read_text() == ("2" if replaced else "1"), point
            assert not list(path.glob("*.tmp-*"))


def test_an_export_cut_short_whose_new_folder_is_damaged_is_the_old_one_again(folder: RunFolder) -> None:
    save(folder, 1)
    old = folder.export(folder.at(1)).rename(folder.path / "model.tmp-1-old")
    new = folder.path / "model.tmp-1"
    shutil.copytree(old, new)
    (new / "config.json").write_text("[]")
    with folder:
        assert (folder.path / "model" / "config.json").read_text() == "{}"
        assert not list(folder.path.glob("*.tmp-*"))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "run"
    message = rf"written by another run \(process {os.getpid()}\)"
    with RunFolder(path), pytest.raises(CutawayError, match=message), RunFolder(path):
        pass
    with RunFolder(path) as folder:
        assert folder.steps() == []


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """R03."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(CutawayError, match="is a file, expected a folder"), RunFolder(file):
        pass
    with pytest.raises(CutawayError, match="cannot be written: Not a directory"), RunFolder(file / "below"):
        pass
    with pytest.raises(CutawayError, match="cannot be written"), RunFolder(Path("/proc/run")):
        pass


def test_export_is_the_model_without_the_training_state(folder: RunFolder) -> None:
    save(folder, 1)
    save(folder, 2)
    for step in (1, 2):
        model = folder.export(folder.at(step))
        assert sorted(entry.name for entry in model.iterdir()) == ["config.json", "manifest.json"]
        assert damage(model) is None
