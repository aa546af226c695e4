"""What a request is refused with: its kind, which programs read, and a sentence in both languages for people; and what
is sent of texts in general."""

import json
from collections.abc import Mapping
from typing import Literal

from cutaway.errors import CutawayError
from cutaway.page.wrapping import legible, shown
from cutaway.words import LOCALES, Phrase, Text

Kind = Literal[
    "bad_request", "unknown_model", "loading", "too_long", "too_large", "bad_change", "busy", "out_of_memory",
    "failed", "forbidden", "not_found",
]  # fmt: skip
# What HTTP calls each, where nothing of the answer was sent yet.
STATUS: Mapping[str, int] = {
    "bad_request": 400,
    "bad_change": 400,
    "forbidden": 403,
    "unknown_model": 404,
    "not_found": 404,
    "loading": 409,
    "too_long": 413,
    "too_large": 413,
    "busy": 429,
    "failed": 500,
    "out_of_memory": 503,
}


class Refusal(CutawayError):
    """A refusal that has nothing to do with what a question is asked of."""

    def __init__(self, kind: Kind, words: Phrase):
        super().__init__(words)
        self.kind = kind


def text_value(text: Text) -> str | dict[str, str]:
    """A text, safe to show, as every page shows it: data as a string, a phrase in both languages."""
    return legible(text) if isinstance(text, str) else {each: shown(text, each) for each in LOCALES}


def error_value(error: CutawayError) -> dict[str, object]:
    """An error as JSON has it."""
    return {"kind": error.kind, "message": text_value(error.message)}


def json_bytes(value: object) -> bytes:
    """A value as JSON, in one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
