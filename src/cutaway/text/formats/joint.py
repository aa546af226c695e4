"""Ids that a SentencePiece model does not give itself: Marian cuts source and target texts by two models, M2M100
by one, and both number the pieces in a `vocab.json`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class JointVocabulary:
    """What a tokenizer.json cannot say about such a vocabulary."""

    size: int  # ids from here on are pieces of the model that the vocabulary leaves out; they become unk
    elsewhere: Mapping[str, int]  # pieces that are not the model's
    files: Mapping[str, bytes]  # the vocabulary's own files by name, as they were: what is saved
    target: Callable[[], "tuple[str, JointVocabulary]"] | None = (
        None  # the other side, with its tokenizer.json
    )

    def leaves_out(self, ids: Sequence[int], unk: int) -> bool:
        """Whether `numbered` has anything to do."""
        return unk in ids or max(ids, default=0) >= self.size

    def numbered(
        self, text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]], unk: int
    ) -> list[int]:
        """The ids as the vocabulary has them. A run of characters that the model does not know is looked up as it
        stands: that is how Marian's own tools, and `transformers`, number `北京` in an English text."""
        return [
            self.elsewhere.get(text[start:end], unk) if id == unk else id if id < self.size else unk
            for id, (start, end) in zip(ids, offsets, strict=True)
        ]
