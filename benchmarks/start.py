"""How long one waits before anything happens: new processes by the wall clock, and opening the bundled model."""

import subprocess
import sys
import time
from statistics import median

from benchmarks.measure import Effort, Row, take_turns
from cutaway import zoo
from cutaway.checkpoint.folder import load
from cutaway.checkpoint.word_vectors import holds_vectors, load_vectors

COMMANDS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "cutaway --help": (("-m", "cutaway", "--help"), 300),
    "import cutaway": (("-c", "import cutaway"), None),
    "import torch": (("-c", "import torch"), None),
    "import transformers": (("-c", "import transformers"), None),
}


def measure(effort: Effort) -> list[Row]:
    rows = [
        Row(part="start", case=name, unit="ms", ours=1e3 * _process(arguments, effort.rounds), most=most)
        for name, (arguments, most) in COMMANDS.items()
    ]
    for path in zoo.bundled():
        (seconds,) = take_turns(
            [lambda path=path: load_vectors(path) if holds_vectors(path) else load(path)], effort
        )
        rows.append(Row(part="start", case=f"opening {path.name}", unit="ms", ours=1e3 * seconds))
    return rows


def _process(arguments: tuple[str, ...], rounds: int) -> float:
    """Median seconds of a python process, after one that warmed the file cache."""
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])
