"""Draws the pictures of the pages with cutaway itself: `python -m docs.pictures` (or `make pictures`)."""

from collections.abc import Mapping
from pathlib import Path

from cutaway.inspection.answers import Session
from cutaway.inspection.question import find_question
from cutaway.page.figures import figures
from cutaway.words import LOCALES, Locale
from cutaway.zoo import TRANSLATOR

FOLDER = Path(__file__).parent / "pictures"
QUESTIONS: Mapping[str, Mapping[str, object]] = {"anatomy": {}, "align": {"text": "我的猫在桌子下面睡觉。"}}


def pictures() -> dict[str, str]:
    """The first figure of each question in both languages, by the name of its file."""
    session = Session(TRANSLATOR)
    found = dict[str, str]()
    for name, options in QUESTIONS.items():
        page = session.ask(find_question(name), given=options).page()
        for locale in LOCALES:
            found[_file(name, locale)] = figures(page, locale)[0][1]
    return found


def _file(name: str, locale: Locale) -> str:
    return f"{name}.svg" if locale == "en" else f"{name}.{locale}.svg"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, picture in pictures().items():
        (FOLDER / file).write_text(picture, encoding="utf-8")
