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


def reaching(unit: Text, greatest: float) -> Both:
    """A unit, and how far from 0 its colours reach on both sides."""
    return Both(f"{said(unit, 'en')}, ±{greatest:.3g}", f"{said(unit, 'zh')}，±{greatest:.3g}")


def told(en: str, zh: str, locale: Locale | None = None) -> str:
    """A text in the reader's language, unless another is asked for."""
    return zh if (locale or reader_locale()) == "zh" else en


def reader_locale() -> Locale:
    """What the environment asks for: LC_ALL, LC_MESSAGES, LANG, in that order; "en" unless it is Chinese."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"
