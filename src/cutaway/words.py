"""Words in one catalogue: English is the key in the code, other languages lie in locale/*/LC_MESSAGES/cutaway.po."""

import gettext
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

Locale = Literal["en", "zh"]
LOCALES: tuple[Locale, ...] = ("en", "zh")
FOLDER = Path(__file__).with_name("locale")


@dataclass(frozen=True)
class Phrase:
    """A template with its values, which can be said in any language of the catalogue, now or by whom it is sent to.

    The template is written as `str.format` reads it. A value may be a phrase, or an error that has one: it is then
    said in the same language. `context` tells apart what English spells alike and another language does not.
    """

    template: str
    values: Mapping[str, object] = field(default_factory=dict)
    context: str = ""

    def said(self, locale: Locale, marks: Mapping[int, str] | None = None) -> str:
        """The whole text in one language; `marks` are put for characters of the templates, and not of the values."""
        words, key = catalogue(locale), self.template
        template = words.pgettext(self.context, key) if self.context else words.gettext(key)
        template = template.translate(marks) if marks else template
        if not self.values:
            return template
        return template.format(**{name: _said(value, locale, marks) for name, value in self.values.items()})

    def __str__(self) -> str:
        return self.said("en")

    def __hash__(self) -> int:
        return hash((self.template, self.context))


Text = str | Phrase  # a str is data: a piece of a text, a number, a name


def say(template: str, **values: object) -> Phrase:
    """A message of the catalogue. `make words` finds every call; a test fails on one that has no Chinese."""
    return Phrase(template, values)


def phrase(words: Phrase | str, **values: object) -> Phrase:
    """A phrase as it is, or that of a template with its values: for functions that take either."""
    return say(words, **values) if isinstance(words, str) else words


def say_in(context: str, template: str, **values: object) -> Phrase:
    """A message whose English means several things: `context` says which one."""
    return Phrase(template, values, context)


def said(text: Text, locale: Locale | None = None) -> str:
    """A text in one language; None: the reader's."""
    return text if isinstance(text, str) else text.said(locale or reader_locale())


def told(template: str, **values: object) -> str:
    """A message of the catalogue, said in the reader's language at once."""
    return say(template, **values).said(reader_locale())


def listed(texts: Iterable[Text], between: Text | None = None) -> Phrase:
    """Several texts as one, with commas between them or what is given."""
    values: dict[str, object] = {f"n{place}": text for place, text in enumerate(texts)}
    names = [f"{{{name}}}" for name in values]
    if isinstance(between, str):
        return Phrase(between.replace("{", "{{").replace("}", "}}").join(names), values)
    return Phrase("{between}".join(names), {**values, "between": between or say(", ")})


def names_of(things: Iterable[object]) -> Phrase:
    """Names of things one after another, as each language sets them apart."""
    return listed(map(str, things), say_in("list", ", "))


def reader_locale() -> Locale:
    """What the environment asks for: LC_ALL, LC_MESSAGES, LANG, in that order; "en" unless it is Chinese."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


@cache
def catalogue(locale: str) -> gettext.NullTranslations:
    """The translations into one language; English needs none."""
    if locale == "en":
        return gettext.NullTranslations()
    return gettext.translation("cutaway", FOLDER, [locale], fallback=True)


def _said(value: object, locale: Locale, marks: Mapping[int, str] | None) -> object:
    message = getattr(value, "message", value) if isinstance(value, Exception) else value
    return message.said(locale, marks) if isinstance(message, Phrase) else value
