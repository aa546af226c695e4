"""TOML and JSON files, read strictly: a fault is named with its file and line, and nothing is guessed."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from cutaway.errors import CutawayError, brief


def read_text(path: Path) -> str:
    """A UTF-8 file's text, without a byte order mark. Raises CutawayError naming file and line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CutawayError(
            "{path}: cannot be read: {strerror}", path=path, strerror=error.strerror
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CutawayError(
            "{path}:{line}: not valid UTF-8 (byte {start}); save it as UTF-8",
            path=path,
            line=line,
            start=error.start,
        ) from error


def read_toml(path: Path) -> dict[str, object]:
    """A TOML file as nested dicts. Raises CutawayError naming file and line."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    # a number of thousands of digits is a ValueError too
    except (ValueError, RecursionError) as error:
        raise CutawayError("{path}: not valid TOML: {error}", path=path, error=error) from error


def read_json(path: Path) -> dict[str, object]:
    """A JSON file that holds one object. Duplicate keys and NaN are refused: two readers could disagree."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise CutawayError("{path}: key {key!r} stands there twice", path=path, key=key)
            found[key] = value
        return found

    def constant(name: str) -> object:
        raise CutawayError("{path}: {name} is not JSON", path=path, name=name)

    try:
        value = json.loads(read_text(path), object_pairs_hook=unique, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise CutawayError(
            "{path}:{lineno}: not valid JSON: {msg}", path=path, lineno=error.lineno, msg=error.msg
        ) from error
    except RecursionError as error:
        raise CutawayError("{path}: nested too deeply", path=path) from error
    if not isinstance(value, dict):
        raise CutawayError("{path}: expected a JSON object, got {value}", path=path, value=brief(value))
    return value


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
                "{where}: {assignment} is not valid: {error}",
                where=where,
                assignment=brief(assignment),
                error=error,
            ) from error
    return result
