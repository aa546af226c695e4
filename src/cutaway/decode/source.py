"""Before a text is translated: which way, and in which script."""

import re
from functools import cache

import opencc

Language = str  # "en" or "zh"

_HAN = re.compile("[〇㐀-䶿一-鿿豈-﫿\U00020000-\U0003347f]")


def target_of(text: str) -> Language:
    """The language to translate into when none is given: English when there are Chinese characters, else Chinese."""
    return "en" if has_han(text) else "zh"


def has_han(text: str) -> bool:
    return _HAN.search(text) is not None


def simplified(text: str) -> str:
    """Traditional Chinese characters as simplified ones, by the dictionaries of OpenCC ("t2s")."""
    return _converter().convert(text) if has_han(text) else text


@cache
def _converter() -> opencc.OpenCC:
    return opencc.OpenCC("t2s")
