"""Text files as lines, documents or pairs: plain text, TSV, two parallel files, JSONL; each plain or gzipped, UTF-8
checked byte by byte.

Only LF ends a line (a CR before it goes with it); NEL, LS, lone CR and the like are characters of the text. A UTF-8
byte order mark is skipped. Nothing is dropped without being counted in a `Report`.
"""

import codecs
import gzip
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase
from itertools import zip_longest
from pathlib import Path
from shlex import quote
from typing import Literal

from cutaway.errors import CutawayError, about, brief, nearest
from cutaway.files import json_value, likely_encoding, marked_encoding, unreadable
from cutaway.words import Phrase, Text, listed, say

Errors = Literal["strict", "replace", "skip"]
Split = Literal["lines", "blank", "file"]
_SHOWN = 10
_LONG = 1_000_000  # bytes
_NOT_UTF8 = say("a byte that is not UTF-8")
_NUL = say("a NUL (is this a binary or UTF-16 file?)")


@dataclass
class Report:
    """What a reader met, filled while it reads."""

    lines: int = 0  # lines read, blank and bad ones included
    replaced: int = 0  # bad bytes and NULs that became U+FFFD
    skipped: int = 0  # lines left out because they were bad
    empty: int = 0  # pairs or documents left out because a side was blank
    long: int = 0  # pairs left out because a side was longer than allowed
    problems: list[Text] = field(default_factory=list)  # the first ten, as file:line: reason

    def note(self, problem: Text) -> None:
        if len(self.problems) < _SHOWN:
            self.problems.append(problem)

    def told(self) -> Phrase:
        """The counts that are not 0, in words."""
        parts = (
            (self.lines, say("lines: {n:,}", n=self.lines)),
            (self.replaced, say("bad bytes replaced: {n:,}", n=self.replaced)),
            (self.skipped, say("bad lines skipped: {n:,}", n=self.skipped)),
            (self.empty, say("empty ones left out: {n:,}", n=self.empty)),
            (self.long, say("too long ones left out: {n:,}", n=self.long)),
        )
        return listed(phrase for place, (count, phrase) in enumerate(parts) if count or place == 0)

    def __str__(self) -> str:
        return str(self.told())


def read_lines(path: str | Path, errors: Errors = "strict", report: Report | None = None) -> Iterator[str]:
    """The lines of a file without their ends, blank ones included.

    `errors`: "strict" raises CutawayError with file, line and byte offset at the first bad byte or NUL; "replace" puts
    U+FFFD; "skip" leaves the line out. `report` counts both. UTF-16 and UTF-32 are recognised by their mark and always
    refused.
    """
    for _, line in numbered_lines(Path(path), errors, report or Report()):
        if line is not None:
            yield line


def numbered_lines(path: Path, errors: Errors, report: Report) -> Iterator[tuple[int, str | None]]:
    """Line number from 1 and line; None stands for one that is skipped."""
    return _checked(raw_lines(path), path, path.name, errors, report)


def stream_lines(stream: Iterable[bytes], place: Text) -> Iterator[str]:
    """The lines of a stream, each as soon as it is there, as strictly as those of a file; `place` is what errors call
    it."""
    for _, line in _checked(stream, place, None, "strict", Report()):
        assert line is not None, "strict reading skips nothing"
        yield line


def _checked(
    lines: Iterable[bytes], place: Path | Text, name: str | None, errors: Errors, report: Report
) -> Iterator[tuple[int, str | None]]:
    """The lines of a file called `name`, or of a stream."""
    if errors not in ("strict", "replace", "skip"):
        raise CutawayError("errors is {errors!r}, expected strict, replace or skip", errors=errors)
    start = 0  # byte of the (unpacked) file where the line begins
    beginning = b""
    for number, raw in enumerate(lines, 1):
        report.lines += 1
        head = 0
        if number == 1:
            beginning = raw[:4]
            if marked := marked_encoding(beginning):
                raise CutawayError(
                    "{place}: {encoding}, expected UTF-8; convert it with {command}",
                    place=place,
                    encoding=marked,
                    command=_conversion(marked, name),
                )
            head = 3 if raw.startswith(codecs.BOM_UTF8) else 0
            # a mark alone is no line
            if raw == codecs.BOM_UTF8 and name is None:
                return
        end = len(raw) - raw.endswith(b"\n")
        end -= raw.endswith(b"\r\n")
        line, bad = _decode(memoryview(raw)[head:end])
        if bad is not None:
            at = head + bad
            problem = say(
                "{path}:{line}: {what} at byte {in_line} of the line, byte {in_file} of the file",
                path=place,
                line=number,
                what=_NOT_UTF8 if raw[at] else _NUL,
                in_line=at + 1,
                in_file=start + at + 1,
            )
            if errors == "strict":
                raise CutawayError(
                    "{problem}; {advice}", problem=problem, advice=_advice(raw, beginning, name)
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


def _advice(line: bytes, beginning: bytes, name: str | None) -> Phrase:
    """What to do about a line that is not UTF-8."""
    likely = likely_encoding(line, beginning)
    if likely is not None:
        command = _conversion(likely, name)
        return say("it seems to be {encoding}: convert it with {command}", encoding=likely, command=command)
    return say(
        "expected UTF-8: convert it with {command} from its encoding, or mend the line (in a recipe, "
        'errors = "replace" or "skip" goes on and counts such lines)',
        command=_conversion("ENCODING", name),
    )


def _conversion(encoding: str, name: str | None) -> str:
    """The command that makes UTF-8 of a file, or of what comes through a pipe."""
    command = f"iconv -f {encoding} -t UTF-8"
    return f"{command} {quote(name)} > new-file" if name is not None else f"… | {command} | cutaway …"


def _decode(data: memoryview) -> tuple[str | None, int | None]:
    """The text, and where the first bad byte or NUL stands."""
    start = 0
    try:
        # Checked in parts first, since a failing decoder keeps a copy of all it was given.
        if len(data) > _LONG:
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
            "{path}: no such file{hint}; check the path", path=path, hint=nearest(path.name, beside)
        ) from error
    except IsADirectoryError as error:
        raise CutawayError("{path}: a folder, expected a file", path=path) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CutawayError(
            "{path}: damaged or cut gzip file: {error}; fetch it again", path=path, error=error
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _open(path: Path) -> BufferedIOBase:
    """Gzip is recognised by its first two bytes, whatever the name."""
    file = path.open("rb")
    if file.peek(2)[:2] == b"\x1f\x8b":
        file.close()
        return gzip.open(path, "rb")
    return file


# Documents and pairs.


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation, with the line it came from."""

    source: str
    target: str
    domain: str = ""
    line: int = 0


def read_documents(
    path: str | Path, split: Split = "lines", errors: Errors = "strict", report: Report | None = None
) -> Iterator[str]:
    """Documents of a plain text file: one a line, one a run of lines between blank ones, or the whole file (with its
    line ends as LF). Blank documents are left out and counted, except under "blank", where blank lines only divide."""
    if split not in ("lines", "blank", "file"):
        raise CutawayError("split is {split!r}, expected lines, blank or file", split=split)
    report = report or Report()
    if split == "file":
        text = "\n".join(read_lines(path, errors, report))
        if _ends_with_line_feed(Path(path)):
            text += "\n"
        if text.strip():
            yield text
        else:
            report.empty += 1
        return
    gathered: list[str] = []
    for line in read_lines(path, errors, report):
        if split == "blank" and line.strip():
            gathered.append(line)
        elif split == "blank":
            if gathered:
                yield "\n".join(gathered)
            gathered = []
        elif line.strip():
            yield line
        else:
            report.empty += 1
    if gathered:
        yield "\n".join(gathered)


def read_tsv(
    path: str | Path,
    source: str,
    target: str,
    domain: str | None = None,
    columns: Sequence[str] | None = None,
    errors: Errors = "strict",
    report: Report | None = None,
) -> Iterator[Pair]:
    """Pairs of a tab-separated file. `columns` names its columns; None takes the first line as their names.

    Raises CutawayError for a name that is no column, and for a line with another number of columns (counted and left
    out with `errors="skip"`). Quotes have no meaning: a field is what stands between tabs."""
    path = Path(path)
    report = report or Report()
    lines = numbered_lines(path, errors, report)
    with about(path):
        if columns is None:
            first = next(lines, (0, None))[1]
            if not first:
                raise CutawayError("no header line, expected the names of its columns")
            columns = first.split("\t")
        known = ", ".join(columns)
        if len(set(columns)) < len(columns):
            raise CutawayError(
                "two columns of one name among {columns}; give each its own name", columns=known
            )
        for name in (source, target, domain):
            if name is not None and name not in columns:
                hint = nearest(name, columns)
                raise CutawayError(
                    "no column {name!r}{hint}; columns: {columns}", name=name, hint=hint, columns=known
                )
    for number, line in lines:
        if line is None:
            continue
        fields = line.split("\t")
        if len(fields) != len(columns):
            problem = say(
                "{path}:{line}: columns: {found}, expected {expected} ({names})",
                path=path,
                line=number,
                found=len(fields),
                expected=len(columns),
                names=known,
            )
            _complain(problem, errors, report)
            continue
        named = dict(zip(columns, fields, strict=True))
        yield Pair(named[source], named[target], "" if domain is None else named[domain], number)


def read_parallel(
    source: str | Path, target: str | Path, errors: Errors = "strict", report: Report | None = None
) -> Iterator[Pair]:
    """Pairs of two files, line by line. A different number of lines is a CutawayError that states both; a line that is
    skipped in one file is left out in the other too, so pairs stay together."""
    source, target = Path(source), Path(target)
    report = report or Report()
    other = Report()
    left, right = numbered_lines(source, errors, report), numbered_lines(target, errors, other)
    end = (-1, None)
    for (number, one), (its_number, two) in zip_longest(left, right, fillvalue=end):
        if number < 0 or its_number < 0:
            # read to the end, so that both counts are whole
            for rest in (left, right):
                deque(rest, maxlen=0)
            raise CutawayError(
                "lines of {source}: {source_lines:,}, of {target}: {target_lines:,}; expected the same number",
                source=source,
                source_lines=report.lines,
                target=target,
                target_lines=other.lines,
            )
        if one is not None and two is not None:
            yield Pair(one, two, "", number)
    report.replaced += other.replaced
    report.skipped += other.skipped
    for problem in other.problems:
        report.note(problem)


def read_jsonl(
    path: str | Path, fields: Sequence[str], errors: Errors = "strict", report: Report | None = None
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Each line's number and the named string fields of its JSON object; blank lines are left out and counted.

    Bad JSON, a value that is no string, a missing field, duplicate keys, NaN, NULs, lone surrogates and absurd nesting
    are CutawayErrors with file and line (counted and left out with `errors="skip"`)."""
    path = Path(path)
    report = report or Report()
    for number, line in numbered_lines(path, errors, report):
        if line is None:
            continue
        if not line.strip():
            report.empty += 1
            continue
        try:
            yield number, _json_fields(line, fields)
        except CutawayError as error:
            _complain(say("{path}:{line}: {error}", path=path, line=number, error=error), errors, report)


def _json_fields(line: str, fields: Sequence[str]) -> tuple[str, ...]:
    """Raises CutawayError with the reason alone."""
    value = json_value(line)
    if not isinstance(value, dict):
        raise CutawayError("expected a JSON object, got {value}", value=brief(value))
    found: list[str] = []
    for name in fields:
        if name not in value:
            known = ", ".join(value) or "—"
            raise CutawayError(
                "no field {name!r}{hint}; fields: {known}", name=name, hint=nearest(name, value), known=known
            )
        text = value[name]
        if not isinstance(text, str):
            raise CutawayError("field {name!r} is {value}, expected a string", name=name, value=brief(text))
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise CutawayError("field {name!r} has a lone surrogate, expected Unicode characters", name=name)
        if "\0" in text:
            raise CutawayError("field {name!r} has a NUL, expected text", name=name)
        found.append(text)
    return tuple(found)


def _complain(problem: Phrase, errors: Errors, report: Report) -> None:
    if errors != "skip":
        raise CutawayError(problem)
    report.skipped += 1
    report.note(problem)


def _ends_with_line_feed(path: Path) -> bool:
    last = deque(raw_lines(path), maxlen=1)
    return bool(last) and last[0].endswith(b"\n")
