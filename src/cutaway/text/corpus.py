"""Text files as pairs or documents: TSV, two parallel files, JSONL, plain text; each plain or gzipped.

Only LF ends a line (a CR before it goes with it); NEL, LS, lone CR and the like are characters of the text. A
UTF-8 byte order mark is skipped. Nothing is dropped without being counted in a `Report`.
"""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NoReturn

from cutaway.errors import CutawayError, nearest
from cutaway.text.lines import Errors, Report, numbered, raw_lines, read_lines

Split = Literal["lines", "blank", "file"]


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
    """Documents of a plain text file: one a line, one a run of lines between blank ones, or the whole file
    (with its line ends as LF). Blank documents are left out and counted, except under "blank", where blank
    lines only divide."""
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

    Raises CutawayError for a name that is no column, and for a line with another number of columns (counted
    and left out with `errors="skip"`). Quotes have no meaning: a field is what stands between tabs."""
    path = Path(path)
    report = report or Report()
    lines = numbered(path, errors, report)
    if columns is None:
        first = next(lines, (0, None))[1]
        if not first:
            raise CutawayError("{path}: no header line, expected the names of its columns", path=path)
        columns = first.split("\t")
    if len(set(columns)) < len(columns):
        raise CutawayError(
            "{path}: two columns of one name among {columns}", path=path, columns=", ".join(columns)
        )
    wanted = [name for name in (source, target, domain) if name is not None]
    for name in wanted:
        if name not in columns:
            hint = nearest(name, columns)
            raise CutawayError(
                "{path}: no column {name!r}{hint}; columns: {columns}",
                path=path,
                name=name,
                hint=hint,
                columns=", ".join(columns),
            )
    at = [list(columns).index(name) for name in wanted]
    for number, line in lines:
        if line is None:
            continue
        fields = line.split("\t")
        if len(fields) != len(columns):
            expected = f"{len(fields)} columns, expected {len(columns)} ({', '.join(columns)})"
            _complain(f"{path}:{number}: {expected}", errors, report)
            continue
        chosen = [fields[index] for index in at]
        yield Pair(chosen[0], chosen[1], chosen[2] if domain is not None else "", number)


def read_parallel(
    source: str | Path, target: str | Path, errors: Errors = "strict", report: Report | None = None
) -> Iterator[Pair]:
    """Pairs of two files, line by line. A different number of lines is a CutawayError that states both; a
    line that is skipped in one file is left out in the other too, so pairs stay together."""
    source, target = Path(source), Path(target)
    report = report or Report()
    other = Report()
    left, right = numbered(source, errors, report), numbered(target, errors, other)
    end = (-1, None)
    for (number, one), (its_number, two) in zip_longest(left, right, fillvalue=end):
        if number < 0 or its_number < 0:
            for rest in (left, right):  # read to the end, so that both counts are whole
                deque(rest, maxlen=0)
            raise CutawayError(
                "{source} has {lines:,} lines and {target} has {lines2:,} lines, expected the same number",
                source=source,
                lines=report.lines,
                target=target,
                lines2=other.lines,
            )
        if one is not None and two is not None:
            yield Pair(one, two, "", number)
    report.replaced += other.replaced
    report.skipped += other.skipped
    for problem in other.problems:
        report.note(problem)


def read_jsonl(
    path: str | Path, fields: Sequence[str], errors: Errors = "strict", report: Report | None = None
) -> Iterator[tuple[str, ...]]:
    """The named string fields of each line's JSON object; blank lines are left out and counted.

    Bad JSON, a value that is no string, a missing field, duplicate keys, NaN, lone surrogates and absurd
    nesting are CutawayErrors with file and line (counted and left out with `errors="skip"`)."""
    path = Path(path)
    report = report or Report()
    for number, line in numbered(path, errors, report):
        if line is None:
            continue
        if not line.strip():
            report.empty += 1
            continue
        try:
            yield _json_fields(line, fields)
        except ValueError as error:
            _complain(f"{path}:{number}: {error}", errors, report)


def _json_fields(line: str, fields: Sequence[str]) -> tuple[str, ...]:
    """Raises ValueError with the reason."""
    try:
        value = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"bad JSON at character {error.pos}: {error.msg}") from error
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    found: list[str] = []
    for name in fields:
        if name not in value:
            raise ValueError(f"no field {name!r}{nearest(name, value)}; fields: {', '.join(value) or 'none'}")
        text = value[name]
        if not isinstance(text, str):
            raise ValueError(f"field {name!r} is {type(text).__name__}, expected a string")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"field {name!r} has a lone surrogate")
        found.append(text)
    return tuple(found)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} occurs twice")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _complain(problem: str, errors: Errors, report: Report) -> None:
    if errors != "skip":
        raise CutawayError(problem)
    report.skipped += 1
    report.note(problem)


def _ends_with_line_feed(path: Path) -> bool:
    last = deque(raw_lines(path), maxlen=1)
    return bool(last) and last[0].endswith(b"\n")
