"""JSON files of a model folder: small, inside the folder, one object each."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.files import read_json

MOST_BYTES = 16_000_000
MOST_COMMAS = 500_000  # they bound what parsing takes


def inside(folder: Path, name: str) -> Path:
    """`folder/name`, which must be a file there and not lead out of the folder by a link."""
    path = folder / name
    if not path.is_file():
        raise CutawayError("{folder}: {name} is missing", folder=folder, name=name)
    check_links(folder, [path])
    return path


def check_links(folder: Path, paths: Iterable[Path]) -> None:
    """Raises CutawayError for a path that leads out of the folder. The library that downloads from Hugging Face keeps a
    model's files in `blobs` and links to them from `snapshots/<version>`: those links are within the model too."""
    real = folder.resolve()
    places = [real, real.parent.parent / "blobs"] if real.parent.name == "snapshots" else [real]
    for path in paths:
        if not any(path.resolve().is_relative_to(place) for place in places):
            raise CutawayError("{path}: leads out of the model folder", path=path)


def read(folder: Path, name: str) -> dict[str, object]:
    """The object that the file `name` of a folder holds. Raises CutawayError that names the file."""
    path = inside(folder, name)
    size = path.stat().st_size
    if size > MOST_BYTES or path.read_bytes().count(b",") > MOST_COMMAS:
        raise CutawayError(
            "{path}: too large ({size:,} bytes), expected a few settings", path=path, size=size
        )
    try:
        return read_json(path)
    except CutawayError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise CutawayError("{path}: not valid JSON: {error}", path=path, error=error) from error


def read_if_there(folder: Path, name: str) -> dict[str, object]:
    """The same, or an empty object when there is no such file."""
    return read(folder, name) if (folder / name).exists() else {}


def write(folder: Path, name: str, values: Mapping[str, object]) -> None:
    """Write an object as a JSON file of the folder."""
    text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    (folder / name).write_text(text, encoding="utf-8")
