"""TOML and JSON files, read strictly: a fault is named with its file and line, and nothing is guessed. And the files
of a folder from a stranger: small where they hold settings, and never outside the folder."""

import codecs
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from cutaway.errors import CutawayError, about, brief, reason
from cutaway.words import say

# Of a file of settings. The commas bound what parsing it takes.
MOST_BYTES = 16_000_000
MOST_COMMAS = 500_000


def unreadable(path: Path, error: OSError) -> CutawayError:
    """What to say of a file that the system does not give."""
    return CutawayError("{path}: cannot be read: {reason}", path=path, reason=reason(error))


# A mark of UTF-32 begins like one of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def marked_encoding(data: bytes) -> str | None:
    """The encoding other than UTF-8 that a byte order mark at the beginning of a file names."""
    return next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)


def likely_encoding(data: bytes, beginning: bytes) -> str | None:
    """The encoding that bytes which are not UTF-8 text are most likely in, as iconv calls it: by the mark at the
    beginning of their file or by their zeros, else the one in which they are frequent Chinese characters; None where
    nothing tells."""
    if marked := marked_encoding(beginning):
        return marked
    for name in ("UTF-16LE", "UTF-16BE"):
        if _mostly_chinese(data.decode(name, errors="replace")):
            return name
    if 0 in data:
        if 5 * data.count(0) < 2 * len(data):
            return None
        unit = "UTF-32" if b"\0\0" in data else "UTF-16"
        return f"{unit}BE" if beginning.startswith(b"\0") else f"{unit}LE"
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        return None
    foreign = [each for each in text if not each.isascii()]
    # the first level of GB 2312, and its punctuation
    leads = [each.encode("gb18030")[0] for each in foreign]
    usual = sum(0xA1 <= lead <= 0xA3 or 0xB0 <= lead <= 0xD7 for lead in leads)
    return "GB18030" if 3 * usual >= 2 * len(foreign) > 0 else None


def _mostly_chinese(text: str) -> bool:
    """Whether nine in ten characters are Chinese, with their punctuation and what a page of them has of ASCII."""
    ours = sum("\0" < each <= "~" or "\u3000" <= each <= "\u303f" or "\u4e00" <= each <= "\u9fff" or
               "\uff00" <= each <= "\uffef" for each in text)  # fmt: skip
    return 10 * ours >= 9 * len(text) > 0


def read_text(path: Path) -> str:
    """A UTF-8 file's text, without a byte order mark. Raises CutawayError naming file and line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        likely = likely_encoding(data, data)
        raise CutawayError(
            "{path}:{line}: not valid UTF-8 (byte {byte}){likely}; save it as UTF-8",
            path=path,
            line=line,
            byte=error.start,
            likely="" if likely is None else say(", but {encoding} as it seems", encoding=likely),
        ) from error


def read_toml(path: Path) -> dict[str, object]:
    """A TOML file as nested dicts. Raises CutawayError naming file and line."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    # a number of thousands of digits is a ValueError too
    except (ValueError, RecursionError) as error:
        found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error))
        words, line = found.groups() if found else (str(error).removesuffix(" (at end of document)"), "")
        place = f"{path}:{line}" if line else str(path)
        raise CutawayError("{path}: not valid TOML: {reason}", path=place, reason=reason(words)) from error


def read_json(path: Path) -> dict[str, object]:
    """A JSON file that holds one object, as `json_value` reads it."""
    return parse_json(read_text(path), path)


def parse_json(text: str, path: Path) -> dict[str, object]:
    """The same for a text that stands in a file."""
    with about(path):
        value = json_value(text)
        if not isinstance(value, dict):
            raise CutawayError("expected a JSON object, got {value}", value=brief(value))
        return value


def json_value(text: str) -> object:
    """A JSON value. Raises CutawayError with the place in the text; duplicate keys and NaN are refused, for two readers
    could disagree."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        place = say("character {at}", at=error.colno)
        if "\n" in text:
            place = say("line {line}, character {at}", line=error.lineno, at=error.colno)
        raise CutawayError("not valid JSON: {reason} ({place})", reason=reason(error), place=place) from error
    except RecursionError as error:
        raise CutawayError("JSON is nested too deeply") from error
    except CutawayError:
        raise
    except ValueError as error:
        raise CutawayError("not valid JSON: a number has thousands of digits") from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise CutawayError("key {key!r} stands there twice", key=key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise CutawayError("{name} is not JSON", name=name)


def override(values: Mapping[str, object], assignments: Sequence[str], where: str) -> dict[str, object]:
    """`values` with `table.key=value` assignments applied; values are TOML (bare words are taken as text)."""
    result: dict[str, object] = json.loads(json.dumps(values, default=str))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise CutawayError(
                "{where}: {assignment!r} is not of the form key=value or table.key=value",
                where=where,
                assignment=assignment,
            )
        *tables, key = path.strip().split(".")
        place = result
        for table in tables:
            inner = place.setdefault(table, {})
            if not isinstance(inner, dict):
                raise CutawayError(
                    "{where}: {path!r} goes through {table!r}, which is not a table",
                    where=where,
                    path=path,
                    table=table,
                )
            place = inner
        try:
            place[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            place[key] = text.strip()
        except (ValueError, RecursionError) as error:
            raise CutawayError(
                "{where}: {assignment} is not valid: {reason}",
                where=where,
                assignment=brief(assignment),
                reason=error,
            ) from error
    return result


# Files of a stranger's folder.


def inside(folder: Path, name: str) -> Path:
    """`folder/name`, which must be a file there and not lead out of the folder by a link."""
    path = folder / name
    if not path.is_file():
        raise CutawayError(
            "{folder}: {name} is missing; fetch the model's folder again, whole", folder=folder, name=name
        )
    check_links(folder, [path])
    return path


def check_links(folder: Path, paths: Iterable[Path]) -> None:
    """Raises CutawayError for a path that leads out of the folder."""
    for path in paths:
        if not is_within(folder, path):
            raise CutawayError(
                "{path}: leads out of the model folder; put the file itself into the folder", path=path
            )


def is_within(folder: Path, path: Path) -> bool:
    """Whether a path stays in the folder. The library that downloads from Hugging Face keeps a model's files in
    `blobs` and links to them from `snapshots/<version>`: those links are within the model too."""
    real = folder.resolve()
    places = [real, real.parent.parent / "blobs"] if real.parent.name == "snapshots" else [real]
    return any(path.resolve().is_relative_to(place) for place in places)


def read_inside(folder: Path, name: str, optional: bool = False) -> dict[str, object]:
    """The JSON object in the file `name` of a folder, which must be inside and no larger than settings are; an empty
    one where an optional file is not there."""
    if optional and not (folder / name).exists():
        return {}
    path = inside(folder, name)
    size = path.stat().st_size
    if size > MOST_BYTES or path.read_bytes().count(b",") > MOST_COMMAS:
        raise CutawayError(
            "{path}: too large ({size:,} bytes), expected a few settings", path=path, size=size
        )
    return read_json(path)


def write_json(path: Path, values: Mapping[str, object]) -> None:
    """Write an object as a JSON file that people can read."""
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
