"""The context limit, checked before anything is computed."""

from typing import Literal

from cutaway.config import ModelConfig
from cutaway.errors import CutawayError
from cutaway.words import say

_NAMES = {"text": say("the text"), "source": say("the source"), "target": say("the target")}


def check_length(config: ModelConfig, length: int, what: Literal["text", "source", "target"]) -> None:
    """Refuse more tokens than the model has positions for. Raises CutawayError naming both numbers."""
    if length > config.max_len:
        raise CutawayError(
            "{what} has {length} tokens, but this model's limit is {max_len} positions; shorten it",
            what=_NAMES[what],
            length=length,
            max_len=config.max_len,
        )
