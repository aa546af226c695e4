"""The context limit, checked before anything is computed."""

from cutaway.config import ModelConfig
from cutaway.errors import CutawayError


def check_length(config: ModelConfig, length: int, what: str) -> None:
    """Refuse more tokens than the model has positions for. Raises CutawayError naming both numbers."""
    if length > config.max_len:
        raise CutawayError(
            "{what} has {length} tokens, but this model's limit is {max_len} positions; shorten it",
            what=what,
            length=length,
            max_len=config.max_len,
        )
