"""A run that is killed and damaged again and again: `python -m tests.train.kill_rounds RECIPE RUN ROUNDS SEED`.

Each round starts the run in a process of its own, ends it at a random moment with SIGKILL or SIGTERM, looks at what is
left, and then may cut, change or delete a file of a checkpoint, or spoil the log. At last the run is let finish. Prints
the last step, and in how many rounds there was nothing whole to go on from.
"""

import json
import os
import random
import re
import signal
import sys
import time
import traceback
from pathlib import Path

from cutaway.train.machine import Interrupts
from cutaway.train.recipe import read_recipe
from cutaway.train.run import train
from cutaway.train.state import STATE_FILES, RunFolder, damage

SETTINGS = (
    "schedule=constant", "save_every=3", "validate_every=7", "keep=2", "data.validation.translations=0",
)  # fmt: skip


def start(recipe: Path, run: Path, said: Path, steps: int) -> int:
    """The run, in a process of its own that tells its story to the file `said`. Returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        train(read_recipe(recipe, (*SETTINGS, f"steps={steps}", f"run.folder={run}")), Interrupts())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def newest_whole(run: Path) -> int:
    folder = RunFolder(run)
    return max((step for step in folder.steps() if not damage(folder.at(step), STATE_FILES[:2])), default=0)


def losses(run: Path) -> dict[int, float]:
    """What the log has of each step; every step must stand there once at most."""
    found: dict[int, float] = {}
    for line in (run / "log.jsonl").read_bytes().split(b"\n") if (run / "log.jsonl").exists() else []:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and "loss" in entry:
            assert entry["step"] not in found, f"step {entry['step']} stands in the log twice"
            found[entry["step"]] = entry["loss"]
    return found


def harm(run: Path, draws: random.Random) -> set[int]:
    """Do some harm, or none. Returns the steps whose line of the log is lost by it."""
    kind = draws.choice(("none", "none", "checkpoint", "checkpoint", "line", "cut line"))
    steps, log = RunFolder(run).steps(), run / "log.jsonl"
    if kind == "checkpoint" and steps:
        file = draws.choice(sorted(RunFolder(run).at(draws.choice(steps)).iterdir()))
        data = bytearray(file.read_bytes())
        at = draws.randrange(len(data)) if data else 0
        how = draws.choice(("cut", "flip", "delete"))
        if how == "delete":
            file.unlink()
        elif how == "cut" or not data:
            file.write_bytes(data[:at])
        else:
            data[at] ^= 1 << draws.randrange(8)
            file.write_bytes(data)
    elif kind in ("line", "cut line") and log.exists() and log.stat().st_size:
        lines = log.read_bytes().split(b"\n")[:-1]
        at = draws.randrange(len(lines))
        before = losses(run)
        if kind == "cut line":
            lines[at] = lines[at][: draws.randrange(len(lines[at]) or 1)]
        else:
            lines.insert(at, draws.choice((b"\xff\x00", b"[" * 10_000, b'{"step": "1"}', b"")))
        log.write_bytes(b"".join(line + b"\n" for line in lines))
        return before.keys() - losses(run).keys()
    return set()


def pause(run: Path, draws: random.Random) -> None:
    """Wait until some moment of the run: often while it takes and saves steps, else at once or before that."""
    deadline = time.monotonic() + 2 * draws.random()
    if draws.random() < 0.7:
        before, more, deadline = losses(run), draws.randint(1, 12), time.monotonic() + 120
        # what it takes again is forgotten first
        while losses(run) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        more += len(losses(run))
        while len(losses(run)) < more and time.monotonic() < deadline:
            time.sleep(0.01)
        deadline = time.monotonic() + draws.random() / 20
    while time.monotonic() < deadline:
        time.sleep(0.005)


def main(recipe: Path, run: Path, rounds: int, seed: int) -> None:
    draws, said = random.Random(seed), run.with_name("said")
    run.mkdir(exist_ok=True)
    lost: set[int] = set()
    from_nothing = 0
    for _ in range(rounds):
        before = newest_whole(run)
        from_nothing += before == 0
        child = start(recipe, run, said, steps=1_000_000)
        pause(run, draws)
        number = draws.choice((signal.SIGKILL, signal.SIGTERM))
        os.kill(child, number)
        code, words = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.read_text(encoding="utf-8")
        # SIGTERM ends the process itself as long as it takes no steps
        assert code in (-number, 0), words
        if saved := re.search(r"step (\d+) is saved", words):
            assert newest_whole(run) == int(saved[1]), words
        assert newest_whole(run) >= before, f"step {before} was whole and is gone\n{words}"
        steps = losses(run).keys()
        assert {*range(1, max(steps, default=0) + 1)} - steps <= lost, (sorted(steps), lost)
        lost |= harm(run, draws)
    last = newest_whole(run) + 5
    for folder in (run, run.with_name("straight")):
        code = os.waitstatus_to_exitcode(os.waitpid(start(recipe, folder, said, last), 0)[1])
        assert code == 0, said.read_text(encoding="utf-8")
    ours, straight = losses(run), losses(run.with_name("straight"))
    assert len(straight) == last and straight.keys() - ours.keys() <= lost
    assert all(loss == straight[step] for step, loss in ours.items())
    assert from_nothing < rounds
    print(last, from_nothing)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
