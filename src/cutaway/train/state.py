"""Checkpoints that are whole or do not exist.

A run folder holds `step-00001000/` folders: a Hugging Face model folder plus `training.safetensors`,
`training.json` and, written last, `manifest.json` with every file's size and SHA-256. Everything is written to
`step-00001000.tmp-<pid>/`, synced, and renamed. What does not agree with its manifest later is damaged: it is renamed
to `step-00001000.damaged`, counts no more, and is left to the user.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cutaway.errors import CutawayError, reason
from cutaway.files import read_json
from cutaway.words import Phrase, Text, say

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

STATE_FILES = ("training.safetensors", "training.json", "manifest.json")
_STEP = re.compile(r"step-(\d{8,})")


@dataclass
class Position:
    """Where a run stands; saved with every checkpoint."""

    step: int = 0  # windows taken, whether they were applied or skipped
    tokens: int = 0  # counted labels
    seconds: float = 0.0  # of training, summed over resumes
    skipped: int = 0
    bad_in_a_row: int = 0
    validated: int = 0  # the step of the last finished validation
    best_step: int | None = None
    best_loss: float | None = None
    stale: int = 0  # validations since the best one
    history: list[dict[str, object]] = field(default_factory=list)

    @property
    def losses(self) -> dict[int, float]:
        """The validation loss of every step that was validated."""
        found = ((entry["step"], entry["loss"]) for entry in self.history)
        return {step: loss for step, loss in found if isinstance(step, int) and isinstance(loss, float)}


class RunFolder:
    """A run's folder, held by this process alone while it is open (`with RunFolder(path) as folder`).

    Raises CutawayError when the path is a file, cannot be written, or another process holds it.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock: TextIO | None = None

    def __enter__(self) -> "RunFolder":
        if self.path.exists() and not self.path.is_dir():
            raise CutawayError("{path} is a file, expected a folder for the run", path=self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(self.path / ".lock", "a+", encoding="utf-8")
        except OSError as error:
            raise CutawayError(
                "{path}: the run folder cannot be written: {reason}", path=self.path, reason=reason(error)
            ) from error
        try:
            _hold(lock)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or say("unknown")
            lock.close()
            raise CutawayError(
                "{path} is being written by another run (process {holder}); wait for it, or give this "
                "one another run.name",
                path=self.path,
                holder=holder,
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        self._tidy()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _tidy(self) -> None:
        """End what a kill cut short. A folder that was being replaced is the new one, or the old one again; whatever
        else is half written or half deleted goes."""
        for old in self.path.glob("*.tmp-*-old"):
            final = self.path / old.name.partition(".tmp-")[0]
            new = old.with_name(old.name.removesuffix("-old"))
            if not final.exists():
                (old if damage(new) else new).rename(final)
        for stray in self.path.glob("*.tmp-*"):
            shutil.rmtree(stray, ignore_errors=True)

    def steps(self) -> list[int]:
        """Steps that have a checkpoint folder, oldest first (contents are not verified)."""
        return sorted(
            int(match[1]) for entry in self.path.iterdir() if (match := _STEP.fullmatch(entry.name))
        )

    def ranked(self, losses: Mapping[int, float]) -> list[int]:
        """The same, those of the least validation loss first (of equal ones the earliest, as it is called the best),
        then the newest of those that have none."""
        steps = self.steps()
        validated = sorted((step for step in steps if step in losses), key=lambda step: losses[step])
        return validated + [step for step in reversed(steps) if step not in losses]

    def at(self, step: int) -> Path:
        return self.path / f"step-{step:08d}"

    def newest(self, tell: Callable[[Text], None]) -> Path | None:
        """The newest checkpoint that is whole. A newer one that is damaged is put aside, and `tell` hears of it."""
        return self._whole(reversed(self.steps()), tell)

    def best(self, losses: Mapping[int, float], tell: Callable[[Text], None]) -> Path | None:
        """The same for the checkpoint of the least validation loss; without any, the newest."""
        return self._whole(self.ranked(losses), tell)

    def _whole(self, steps: Iterable[int], tell: Callable[[Text], None]) -> Path | None:
        for step in steps:
            path = self.at(step)
            fault = damage(path, STATE_FILES[:2])
            if fault is None:
                return path
            aside = path.with_name(f"{path.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            tell(say("{fault}; this checkpoint is put aside as {aside}", fault=fault, aside=aside))
        return None

    def save(
        self,
        step: int,
        write_model: Callable[[Path], None],
        tensors: Mapping[str, Tensor],
        values: Mapping[str, object],
    ) -> Path:
        """Write the checkpoint of `step`: model files by `write_model(folder)`, then the training state.

        Raises CutawayError naming the path when the disk refuses; the temporary folder is then removed and
        earlier checkpoints stay as they were.
        """
        final = self.at(step)

        def write(folder: Path) -> None:
            write_model(folder)
            crash_point("model_written")
            save_file(
                {key: value.detach().contiguous() for key, value in tensors.items()}, folder / STATE_FILES[0]
            )
            (folder / STATE_FILES[1]).write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")

        write_folder(final, write)
        return final

    def export(self, checkpoint: Path) -> Path:
        """Copy the model of a checkpoint that is whole, without its training state, to `model/`."""
        names = _manifest(checkpoint).keys() - {*STATE_FILES}

        def write(folder: Path) -> None:
            for name in names:
                shutil.copyfile(checkpoint / name, folder / name)

        write_folder(self.path / "model", write)
        return self.path / "model"

    def retain(self, keep: int, losses: Mapping[int, float]) -> list[Phrase]:
        """Delete all but the newest `keep` checkpoints and the one of the least validation loss. Returns what could not
        be deleted."""
        steps = self.steps()
        failed = []
        for step in sorted({*steps[:-keep]} - {*self.ranked(losses)[:1]}):
            # under the other name it is no checkpoint, so a delete cut short leaves nothing half valid
            try:
                gone = self.at(step).rename(_temporary(self.at(step), "-gone"))
                shutil.rmtree(gone)
            except OSError as error:
                failed.append(
                    say("{path}: could not be deleted: {reason}", path=self.at(step), reason=reason(error))
                )
        return failed


def _temporary(final: Path, what: str = "") -> Path:
    """Where a folder lies that is not yet, or no longer, `final`."""
    return final.with_name(f"{final.name}.tmp-{os.getpid()}{what}")


def write_folder(final: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder beside `final`, add the manifest, sync, and rename it to `final`."""
    temporary = _temporary(final)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write(temporary)
        crash_point("files_written")
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        manifest = {
            "version": 1,
            "files": {
                path.relative_to(temporary).as_posix(): {"size": path.stat().st_size, "sha256": sha256(path)}
                for path in files
            },
        }
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        crash_point("manifest_written")
        for path in (*files, temporary / "manifest.json", temporary):
            _sync(path)
        crash_point("synced")
        # an earlier export; should a kill come in between, the next start ends what was begun
        if final.exists():
            old = final.rename(_temporary(final, "-old"))
            crash_point("between_renames")
            temporary.rename(final)
            shutil.rmtree(old, ignore_errors=True)
        else:
            temporary.rename(final)
        crash_point("renamed")
        _sync(final.parent)
    except (OSError, SafetensorError) as error:
        raise CutawayError(
            "{path} could not be written: {reason}. Free some space, or set run.folder to another disk; earlier "
            "checkpoints are as they were",
            path=final,
            reason=reason(error),
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def damage(folder: Path, needed: Iterable[str] = ()) -> Phrase | None:
    """What is wrong with a folder that has a manifest, which must list `needed`: a sentence that names the file, or
    None."""
    try:
        files = _manifest(folder)
    except CutawayError as error:
        return error.message
    if unlisted := [name for name in needed if name not in files]:
        return say("{path}: does not list {name}", path=folder / "manifest.json", name=unlisted[0])
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            return say("{path}: missing", path=file)
        size = file.stat().st_size
        if not isinstance(expected, dict) or size != expected.get("size"):
            return say("{path}: {size} bytes, the manifest says otherwise", path=file, size=size)
        if sha256(file) != expected.get("sha256"):
            return say("{path}: damaged (SHA-256 differs from the manifest)", path=file)
    return None


def _manifest(folder: Path) -> dict[str, object]:
    """The files of a folder, with their sizes and checksums."""
    path = folder / "manifest.json"
    files = read_json(path).get("files")
    if not isinstance(files, dict) or not files:
        raise CutawayError("{path}: not a manifest, which lists files", path=path)
    return files


def read_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """The training state of a checkpoint that `damage` found whole: tensors and values."""
    return load_file(folder / STATE_FILES[0]), read_json(folder / STATE_FILES[1])


def past_recipe(folder: Path) -> dict[str, object]:
    """The recipe that a checkpoint was made by, as plain values."""
    recipe = read_json(folder / STATE_FILES[1]).get("recipe")
    if not isinstance(recipe, dict):
        raise CutawayError(
            "{path}: not a training state of this version; train it anew, or with the version that wrote it",
            path=folder / STATE_FILES[1],
        )
    return recipe


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def crash_point(name: str) -> None:
    """Die here when a test asks for it: CUTAWAY_CRASH_AT=<name> in the environment."""
    if os.environ.get("CUTAWAY_CRASH_AT") == name:
        os.kill(os.getpid(), signal.SIGKILL)


def _hold(file: TextIO) -> None:
    """Lock an open file for this process until it is closed. Raises OSError when another one holds it."""
    if sys.platform == "win32":
        # the locked byte cannot be read by others, so it lies far behind the text
        file.seek(2**30)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync(path: Path) -> None:
    """Bring a file, or where systems have it the list of a folder's names, to the disk."""
    # Windows syncs what is open for writing only, and opens no folder.
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
