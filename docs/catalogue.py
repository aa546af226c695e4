"""Keeps the catalogue of words up to date: `python -m docs.catalogue` (or `make words`).

Every phrase of the code (what `say_in` and the functions of PHRASED are given) gets an entry in
src/cutaway/locale/zh/LC_MESSAGES/cutaway.po, new ones with an empty Chinese; what no code says any more goes.
"""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po
from hatch_build import compile_catalogues

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "cutaway"
CHINESE = SOURCE / "locale" / "zh" / "LC_MESSAGES" / "cutaway.po"
PHRASED = (
    "say", "told", "CutawayError", "TooLong", "TooLarge", "TrainingStopped", "tell", "note", "key", "described",
    "argument", "option",
)  # fmt: skip
KEYWORDS = {**dict.fromkeys(PHRASED), "say_in": ((1, "c"), 2)}
HEADER = "# The Chinese of cutaway. English is the key, and is in the code; `make words` keeps this file up to date."


def phrases() -> Iterator[tuple[str, str, str]]:
    """File, context and template of every phrase in the code, in the order of the files."""
    found = extract_from_dir(SOURCE, [("**.py", "python")], keywords=KEYWORDS, comment_tags=())
    for file, _, template, _, context in sorted(found, key=lambda each: (each[0], each[1])):
        assert isinstance(template, str), f"{file}: a phrase has one template"
        yield Path(file).as_posix(), context or "", template


def read() -> Catalog:
    """The catalogue as it lies there."""
    if not CHINESE.exists():
        return Catalog(locale="zh")
    with CHINESE.open("rb") as file:
        return read_po(file, locale="zh")


def updated(old: Catalog) -> Catalog:
    """The catalogue that the code asks for, with the Chinese that is there."""
    new = Catalog(locale="zh", header_comment=HEADER, fuzzy=False)
    for file, context, template in phrases():
        there = old.get(template, context or None)
        chinese = there.string if there is not None else ""
        new.add(template, chinese, locations=[(file, 0)], context=context or None)
    return new


def written(catalogue: Catalog) -> str:
    """The text of its file: without dates and line numbers, so that a change of the file is a change of its words."""
    file = BytesIO()
    write_po(file, catalogue, width=0, omit_header=True, include_lineno=False)
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n'
    return f"{HEADER}\n{head}\n{file.getvalue().decode().strip()}\n"


def write(catalogue: Catalog) -> None:
    CHINESE.write_text(written(catalogue), encoding="utf-8")


if __name__ == "__main__":
    write(updated(read()))
    compile_catalogues(ROOT)
    empty = sum(not entry.string for entry in read() if entry.id)
    if empty:
        print(f"{CHINESE.relative_to(ROOT)}: {empty} phrases have no Chinese yet")
