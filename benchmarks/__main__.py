"""`python -m benchmarks [part ...]`: measure, print the table, write results.json."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import transformers
from rich.console import Console

from benchmarks import (
    attention,
    experts,
    explorer,
    opening,
    run_with_cache,
    start,
    table,
    tracing,
    training,
    translation,
    word2vec,
)
from benchmarks.measure import CLOCKS, QUICK, Effort, Row

PARTS: dict[str, Callable[[Effort], list[Row]]] = {
    "training": training.measure,
    "translation": translation.measure,
    "attention": attention.measure,
    "tracing": tracing.measure,
    "run_with_cache": run_with_cache.measure,
    "start": start.measure,
    "opening": opening.measure,
    "experts": experts.measure,
    "word2vec": word2vec.measure,
    "explorer": explorer.measure,
}

TABLE_WIDTH = 110  # columns, also where the output is no terminal


def main(arguments: list[str] | None = None) -> list[Row]:
    reader = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    reader.add_argument(
        "parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all by default"
    )
    reader.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    reader.add_argument(
        "--clock", choices=sorted(CLOCKS), default="wall",
        help="cpu counts processor time: for one thread on a busy machine",
    )  # fmt: skip
    reader.add_argument("--model", type=Path, help="a translator's folder, in place of the bundled one")
    reader.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    given = reader.parse_args(arguments)
    if unknown := set(given.parts) - PARTS.keys():
        reader.error(f"unknown part {min(unknown)!r}; expected some of {', '.join(PARTS)}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    effort = Effort(clock=given.clock, model=given.model, **(QUICK if given.quick else {}))
    facts = table.machine() | {"clock": effort.clock}
    rows: list[Row] = []
    for part in given.parts or PARTS:
        print(f"measuring {part} …", file=sys.stderr)
        rows += PARTS[part](effort)
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    table.show(facts, rows, console)
    table.write_json(given.out, facts, rows)
    return rows


if __name__ == "__main__":
    main()
