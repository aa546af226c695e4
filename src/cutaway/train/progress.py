"""What a run says while it works: a line in a terminal, JSON lines in its folder, TensorBoard when asked.

Whoever watches is told in their own language; what is written for programs is English everywhere.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from cutaway.errors import CutawayError
from cutaway.files import json_value
from cutaway.text.display import harmless
from cutaway.train.validation import Scores
from cutaway.words import Phrase, listed, phrase, said, say, told

_NAMES = {"loss": say("loss"), "bits_per_byte": say("bits per byte")}


class Tell(Protocol):
    """Says one line to whoever watches."""

    def __call__(self, line: Phrase | str, **values: object) -> None: ...


class ScalarWriter(Protocol):
    """The part of TensorBoard's SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def close(self) -> None: ...


class Progress:
    """Reports one run. `log` receives one JSON object a line: every step, every validation.

    In a terminal one line is kept up to date; elsewhere a plain line goes to `stream` every `every` seconds.
    """

    def __init__(
        self, log: Path, *, stream: TextIO | None = None, every: float = 30.0, tensorboard: Path | None = None
    ):
        self.log, self.every = log, every
        self.console = Console(file=stream or sys.stderr)
        self._writer = None if tensorboard is None else open_tensorboard(tensorboard)
        self._file: TextIO | None = None
        self._loss: float | None = None
        self._rate: float | None = None
        self._said = time.monotonic()

    def __enter__(self) -> "Progress":
        self._file = open(self.log, "a", encoding="utf-8")
        columns = TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.percentage:>3.0f} %")
        self._bar = Bar(*columns, console=self.console, disable=not self.console.is_terminal)
        self._task = self._bar.add_task(told("starting"), total=1.0)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        for opened in (self._file, self._writer):
            if opened is not None:
                opened.close()
        self._file = None

    def rewind(self, step: int) -> bool:
        """Forget log lines after `step`, which are taken again, and lines that are none, as a crash or a damaged disk
        leaves them. Returns whether there was anything to forget."""
        found = self.log.read_bytes() if self.log.exists() else b""
        # a sentence may have what str.splitlines takes for the end of a line
        kept = b"".join(line + b"\n" for line in found.split(b"\n") if 0 < _step_of(line) <= step)
        if kept == found:
            return False
        temporary = self.log.with_suffix(".tmp")
        temporary.write_bytes(kept)
        temporary.replace(self.log)
        return True

    def step(
        self,
        entry: dict[str, object],
        seconds: float,
        done: float,
        elapsed: float,
        skipped: Phrase | None = None,
    ) -> None:
        """A step's values, the seconds it took, the part of the run that is done, the seconds so far, and why its
        update was left out if it was."""
        if skipped is not None:
            entry = {**entry, "skipped": str(skipped)}
        tokens, loss = entry["tokens"], entry.get("loss")
        assert isinstance(tokens, int)
        rate = tokens / max(seconds, 1e-9)
        self._write({**entry, "tokens_per_second": round(rate, 1), "seconds": round(elapsed, 3)})
        self._rate = rate if self._rate is None else 0.95 * self._rate + 0.05 * rate
        if isinstance(loss, float):
            self._loss = loss if self._loss is None else 0.95 * self._loss + 0.05 * loss
        self._plot(
            "train", {name: entry.get(name) for name in ("loss", "lr", "gradient_norm")}, entry["step"]
        )
        if skipped is not None:
            words = say("step {step} skipped: {reason}", step=entry["step"], reason=skipped)
            if samples := entry.get("samples"):
                words = say("{skipped}, samples {samples}", skipped=words, samples=samples)
            self.tell(words)
        shown = [say("step {step}", step=entry["step"])]
        if self._loss is not None:
            shown.append(say("loss {loss:.4f}", loss=self._loss))
        shown.append(say("{rate:,.0f} tokens/s", rate=self._rate))
        shown.append(say("{time} left", time=clock(max(0.0, elapsed / done - elapsed) if done > 0 else 0.0)))
        line = said(listed(shown, " · "))
        if self.console.is_terminal:
            self._bar.update(self._task, description=line, completed=min(done, 1.0))
        elif time.monotonic() - self._said >= self.every:
            self._said = time.monotonic()
            self.tell(line)

    def validation(self, step: int, scores: Scores, better: bool) -> None:
        values = scores.values()
        self._write({"step": step, "validation": values, "samples": scores.samples})
        self._plot("validation", values, step)
        shown = [
            say("{name} {value:.4g}", name=_NAMES.get(name, name), value=n) for name, n in values.items()
        ]
        line = say("step {step} validation: {scores}", step=step, scores=listed(shown, " · "))
        self.tell(say("{line} (best so far)", line=line) if better else line)
        for source, output, reference in scores.samples:
            pair = f"  {source} → {output}"
            pair += f"   ({reference})" if reference else ""
            self.tell(pair)

    def tell(self, line: Phrase | str, **values: object) -> None:
        """One line for whoever watches, above the progress line where there is one."""
        self.console.print(
            harmless(said(phrase(line, **values))), markup=False, highlight=False, soft_wrap=True
        )

    def _plot(self, group: str, values: Mapping[str, object], step: object) -> None:
        """Numbers for TensorBoard, where it is asked for."""
        if self._writer is None:
            return
        for name, value in values.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{group}/{name}", value, int(str(step)))

    def _write(self, entry: dict[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            self._file.flush()


def _step_of(line: bytes) -> int:
    """The step of a line of the log; 0 for what is no such line."""
    try:
        entry = json_value(line.decode())
    except (CutawayError, UnicodeDecodeError):
        return 0
    step = entry.get("step") if isinstance(entry, dict) else None
    return step if type(step) is int else 0


def open_tensorboard(folder: Path) -> ScalarWriter:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise CutawayError(
            "train.tensorboard is on, but TensorBoard is not installed; pip install 'cutaway[tensorboard]'"
        ) from error
    return SummaryWriter(str(folder))


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
