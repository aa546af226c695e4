"""The result as a table for people and as JSON for comparisons, with the machine it was measured on."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import torch
import transformers
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Row
from benchmarks.training import BF16


def machine() -> dict[str, str | int | float | bool]:
    """What a figure depends on."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    cores = os.cpu_count() or 1
    return {
        "cpu": _processor(),
        "cores": len(affinity(0)) if affinity else cores,
        "threads": torch.get_num_threads(),
        "bf16 in hardware": BF16,
        "load before": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else -1.0,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write_json(path: Path, facts: dict[str, str | int | float | bool], rows: Sequence[Row]) -> None:
    values = {"machine": facts, "rows": [{**asdict(row), "reached": row.reached} for row in rows]}
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def show(facts: dict[str, str | int | float | bool], rows: Sequence[Row], console: Console) -> None:
    """Print machine and table."""
    console.print(
        " · ".join(f"{name} {value}" for name, value in facts.items()), style="dim", highlight=False
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("measured", overflow="fold")
    for header in ("cutaway", "peer"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for header in ("ratio", "wanted"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("same result", no_wrap=True)
    for title, group in groupby(rows, key=_title):
        table.add_row(f"[bold]{title}[/]")
        for row in group:
            table.add_row(
                f"  {row.case}", number(row.ours), number(row.theirs), row.unit,
                "" if row.ratio is None else f"{row.ratio:.2f} ×", _wanted(row),
                {True: "yes", False: "[red]no[/]", None: ""}[row.agree],
            )  # fmt: skip
    console.print(table)


def _title(row: Row) -> str:
    return f"{row.part}, against {row.peer}" if row.peer else row.part


def _wanted(row: Row) -> str:
    if row.reached is None:
        return ""
    bound = f"≥ {row.least:.2f} ×" if row.least is not None else f"≤ {row.most:g}"
    return f"[green]{bound}[/]" if row.reached else f"[red]{bound}[/]"


def number(value: float | None) -> str:
    """Three figures that matter, or a whole number with its thousands."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
