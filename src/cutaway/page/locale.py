"""The language a reader reads, and texts that are there in both."""

import os
from dataclasses import dataclass
from typing import Literal

Locale = Literal["en", "zh"]


@dataclass(frozen=True)
class Both:
    """One text in two languages."""

    en: str
    zh: str


Text = str | Both  # a str is data: a piece, a number, a name


def said(text: Text, locale: Locale) -> str:
    """A text in the language of the reader."""
    if isinstance(text, str):
        return text
    return text.zh if locale == "zh" else text.en


def reader_locale() -> Locale:
    """What the environment asks for: LC_ALL, LC_MESSAGES, LANG, in that order; "en" unless it is Chinese."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"
