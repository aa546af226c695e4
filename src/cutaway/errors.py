"""What a user did wrong, said so that they can mend it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from cutaway.words import Phrase, Text, phrase, say


class CutawayError(ValueError):
    """A mistake in what the user gave us: the message names what was wrong, what was expected, what to do.

    `message` can be said in any language of the catalogue; the error's own text is English. The command line prints it
    without a traceback and exits with 2; a server tells `kind` beside it, for programs.
    """

    kind: str = "bad_request"

    def __init__(self, template: Phrase | str, **values: object):
        self.message = phrase(template, **values)
        super().__init__(str(self.message))


class TooLong(CutawayError):
    """A text that has more tokens than the model reads at a time."""

    kind = "too_long"


class TooLarge(CutawayError):
    """Something asked for that would take more memory than it may."""

    kind = "too_large"


@contextmanager
def about(place: object) -> Iterator[None]:
    """Errors of what is done within are told with the place that they are about, unless they begin with it."""
    try:
        yield
    except CutawayError as error:
        if str(error).startswith(f"{place}:"):
            raise
        # what programs tell apart stays what it is
        kind = CutawayError if error.kind == CutawayError.kind else type(error)
        raise kind(say("{where}: {error}", where=place, error=error)) from error


# What systems and the parsers of the standard library say, so that the catalogue has it; other words stay as they are.
_SAID = {
    str(each): each
    for each in (
        say("No such file or directory"),
        say("Permission denied"),
        say("Is a directory"),
        say("Not a directory"),
        say("No space left on device"),
        say("Read-only file system"),
        say("File name too long"),
        say("File exists"),
        say("Expecting value"),
        say("Expecting property name enclosed in double quotes"),
        say("Expecting ',' delimiter"),
        say("Expecting ':' delimiter"),
        say("Extra data"),
        say("Unterminated string starting at"),
        say("Invalid value"),
        say("Invalid statement"),
        say("Unclosed array"),
        say("Unterminated string"),
        say("Expected '=' after a key in a key/value pair"),
        say("Expected newline or end of document after a statement"),
        say("Cannot overwrite a value"),
    )
}


def reason(error: Exception | str) -> Text:
    """Why the system or a parser refused, as it says it, without the place, which only some of them know."""
    words = getattr(error, "strerror", None) or getattr(error, "msg", None) or str(error)
    return _SAID.get(words, words)


def nearest(word: str, choices: Iterable[str]) -> Text:
    """` (did you mean 'x'?)` for the choice closest to `word`, or nothing when none is close."""
    close = get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return say(" (did you mean {word!r}?)", word=close[0]) if close else ""


def brief(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
