"""What a user did wrong, said so that they can mend it."""

from collections.abc import Iterable
from difflib import get_close_matches


class CutawayError(ValueError):
    """A mistake in what the user gave us: the message names what, where, what was expected, and the nearest
    valid choice. The command line prints it without a traceback and exits with 2."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the choice closest to `word`, or nothing when none is close."""
    close = get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def brief(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
