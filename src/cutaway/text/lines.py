"""The lines of a file, as text: plain or gzipped, UTF-8 checked byte by byte, nothing dropped uncounted."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Literal

from cutaway.errors import CutawayError, nearest
from cutaway.words import Phrase, listed, say

Errors = Literal["strict", "replace", "skip"]
_SHOWN = 10
_LONG = 1_000_000  # bytes


@dataclass
class Report:
    """What a reader met, filled while it reads."""

    lines: int = 0  # lines read, blank and bad ones included
    replaced: int = 0  # bad bytes and NULs that became U+FFFD
    skipped: int = 0  # lines left out because they were bad
    empty: int = 0  # pairs or documents left out because a side was blank
    long: int = 0  # pairs left out because a side was longer than allowed
    problems: list[str] = field(default_factory=list)  # the first ten, as file:line: reason

    def note(self, problem: str) -> None:
        if len(self.problems) < _SHOWN:
            self.problems.append(problem)

    def told(self) -> Phrase:
        """The counts that are not 0, in words."""
        parts = (
            (self.lines, say("{n:,} lines", n=self.lines)),
            (self.replaced, say("{n:,} bad bytes replaced", n=self.replaced)),
            (self.skipped, say("{n:,} bad lines skipped", n=self.skipped)),
            (self.empty, say("{n:,} empty ones left out", n=self.empty)),
            (self.long, say("{n:,} too long ones left out", n=self.long)),
        )
        return listed(phrase for place, (count, phrase) in enumerate(parts) if count or place == 0)

    def __str__(self) -> str:
        return str(self.told())


def read_lines(path: str | Path, errors: Errors = "strict", report: Report | None = None) -> Iterator[str]:
    """The lines of a file without their ends, blank ones included.

    `errors`: "strict" raises CutawayError with file, line and byte offset at the first bad byte or NUL;
    "replace" puts U+FFFD; "skip" leaves the line out. Both count in `report`.
    UTF-16 is recognised by its mark and always refused.
    """
    for _, line in numbered(Path(path), errors, report or Report()):
        if line is not None:
            yield line


def numbered(path: Path, errors: Errors, report: Report) -> Iterator[tuple[int, str | None]]:
    """Line number from 1 and line; None stands for one that is skipped."""
    if errors not in ("strict", "replace", "skip"):
        raise CutawayError("errors is {errors!r}, expected strict, replace or skip", errors=errors)
    start = 0  # byte of the (unpacked) file where the line begins
    for number, raw in enumerate(raw_lines(path), 1):
        report.lines += 1
        head = 0
        if number == 1:
            if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise CutawayError(
                    "{path}: UTF-16, expected UTF-8; convert it with iconv -f UTF-16 -t UTF-8 {name} > "
                    "new-file",
                    path=path,
                    name=path.name,
                )
            head = 3 if raw.startswith(codecs.BOM_UTF8) else 0
        end = len(raw) - raw.endswith(b"\n")
        end -= raw.endswith(b"\r\n")
        line, bad = _decode(memoryview(raw)[head:end])
        if bad is not None:
            at = head + bad
            what = "a byte that is not UTF-8" if raw[at] else "a NUL (is this a binary or UTF-16 file?)"
            problem = (
                f"{path}:{number}: {what} at byte {at + 1} of the line, byte {start + at + 1} of the file"
            )
            if errors == "strict":
                raise CutawayError(
                    '{problem}; errors="replace" or "skip" goes on and counts such lines', problem=problem
                )
            report.note(problem)
            if errors == "skip":
                report.skipped += 1
                line = None
            else:
                line = codecs.utf_8_decode(memoryview(raw)[head:end], "replace", True)[0].replace(
                    "\0", "\ufffd"
                )
                report.replaced += line.count("\ufffd") - raw.count("\ufffd".encode())
        start += len(raw)
        raw = b""  # a long line is not kept while it is worked on
        yield number, line


def _decode(data: memoryview) -> tuple[str | None, int | None]:
    """The text, and where the first bad byte or NUL stands."""
    start = 0
    try:
        if (
            len(data) > _LONG
        ):  # checked in parts first, since a failing decoder keeps a copy of all it was given
            while start < len(data):
                part = data[start : start + _LONG]
                start += codecs.utf_8_decode(part, "strict", start + len(part) == len(data))[1]
        start = 0
        text = codecs.utf_8_decode(data, "strict", True)[0]
    except UnicodeDecodeError as error:
        return None, start + error.start
    return text, len(text[: text.index("\0")].encode()) if "\0" in text else None


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines with their ends. CutawayError for a file that is missing, unreadable or damaged."""
    try:
        with _open(path) as file:
            yield from file
    except FileNotFoundError as error:
        beside = [other.name for other in path.parent.glob("*")] if path.parent.is_dir() else []
        raise CutawayError(
            "{path}: no such file{hint}", path=path, hint=nearest(path.name, beside)
        ) from error
    except IsADirectoryError as error:
        raise CutawayError("{path}: a folder, expected a file", path=path) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CutawayError("{path}: damaged or cut gzip file: {error}", path=path, error=error) from error
    except OSError as error:
        raise CutawayError(
            "{path}: cannot be read: {strerror}", path=path, strerror=error.strerror or error
        ) from error


def _open(path: Path) -> BufferedIOBase:
    """Gzip is recognised by its first two bytes, whatever the name."""
    file = path.open("rb")
    if file.peek(2)[:2] == b"\x1f\x8b":
        file.close()
        return gzip.open(path, "rb")
    return file
