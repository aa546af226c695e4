"""The JSON of a request, read as strictly as any file: what two readers could understand differently is refused."""

import math

from cutaway.errors import CutawayError, brief
from cutaway.files import json_value

DEEPEST = 64  # levels
WHOLE = 2**53 - 1  # the greatest number that every reader of JSON takes for the same (RFC 8259, §6)


def body_object(body: bytes) -> dict[str, object]:
    """The object that a body is. Raises CutawayError for what is no valid UTF-8 or JSON, for another value, duplicate
    keys, lone surrogates, numbers out of range, and more levels than anything here has."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise CutawayError(
            "the body is not valid UTF-8 (byte {byte}); send it as UTF-8", byte=error.start
        ) from error
    found = json_value(text)
    if not isinstance(found, dict):
        raise CutawayError("expected a JSON object, got {value}", value=brief(found))
    # by levels, so that no depth is one of Python's
    level: list[tuple[str, object]] = [("", found)]
    for _ in range(DEEPEST):
        inner: list[tuple[str, object]] = []
        for name, value in level:
            match value:
                case str():
                    _check_text(name, value)
                case bool() | None:
                    pass
                case int() if abs(value) > WHOLE:
                    raise _out_of_range(name, value)
                case float() if not math.isfinite(value):
                    raise _out_of_range(name, value)
                case list():
                    inner += [(name, each) for each in value]
                case dict():
                    for key, each in value.items():
                        _check_text(name, key)
                        inner.append((f"{name}.{key}" if name else key, each))
        if not inner:
            return found
        level = inner
    raise CutawayError("JSON is nested too deeply")


def _out_of_range(name: str, number: float) -> CutawayError:
    return CutawayError(
        "{name} is {number}, expected a number from {least:,} to {most:,}",
        name=name,
        number=brief(number),
        least=-WHOLE,
        most=WHOLE,
    )


def _check_text(name: str, text: str) -> None:
    if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
        raise CutawayError("{name} has half a surrogate pair, expected Unicode characters", name=brief(name))
