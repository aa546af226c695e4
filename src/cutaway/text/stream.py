"""Tokens to text as they arrive, without ever cutting a character."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutaway.text.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"


class TextStream:
    """Turns ids into text one by one: the joined deltas equal `tokenizer.decode` of all ids.

    Text is held back while it may still change: an incomplete character, or (with byte fallback, where one
    bad byte spoils its whole run) a run of byte pieces. Only a window from the last settled piece on is
    decoded again, so a push costs the same however long the text is."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._window: list[int] = []  # the last settled piece, if any, and all ids after it
        self._sent = 0  # characters of the decoded window that are out

    def push(self, id: int) -> str:
        """The text that became certain with this id; often one piece, sometimes nothing."""
        if self._skip_special and self._tokenizer.is_silent(id):
            return ""
        self._window.append(id)
        if self._tokenizer.is_byte(id):
            return ""
        text = self._tokenizer.decode(self._window, skip_special=False)
        settled = text.rstrip(_REPLACEMENT)
        delta = settled[self._sent :]
        if settled == text:
            self._window = [id]
            self._sent = len(self._tokenizer.decode(self._window, skip_special=False))
        else:
            self._sent = max(self._sent, len(settled))
        return delta

    def finish(self) -> str:
        """What is still held back, as `decode` gives it (a character that was never completed becomes
        U+FFFD)."""
        delta = self._tokenizer.decode(self._window, skip_special=False)[self._sent :] if self._window else ""
        self._window, self._sent = [], 0
        return delta
