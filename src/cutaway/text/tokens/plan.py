"""What vocabulary to learn: the settings of `Tokenizer.train`, checked."""

from dataclasses import dataclass
from typing import Literal, get_args

from cutaway.errors import CutawayError, nearest
from cutaway.words import names_of

Kind = Literal["bpe-bytes", "bpe", "unigram", "wordpiece", "words", "characters"]
Normalization = Literal["none", "nfc", "nfkc"]
DEFAULT_ROLES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
BERT_ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_ROLES = {**DEFAULT_ROLES, "cls": "<s>", "sep": "</s>", "mask": "<mask>"}  # fairseq's
MOST_PIECES = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to learn; the arguments of `Tokenizer.train`, settled."""

    kind: Kind
    vocab_size: int | None
    controls: tuple[str, ...]  # control tokens, in the order of their ids from 0
    marks: tuple[str, ...]  # those of them that name a language
    unk: str | None
    normalization: Normalization = "none"
    lowercase: bool = False
    coverage: float = 0.9995
    alphabet: int | None = None
    min_count: int = 2
    template: str | None = None

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("kind", self.kind, get_args(Kind)),
            ("normalization", self.normalization, get_args(Normalization)),
        ):
            if value not in choices:
                hint = nearest(str(value), choices)
                raise CutawayError(
                    "{name} is {value!r}{hint}, expected one of {choices}",
                    name=name,
                    value=value,
                    hint=hint,
                    choices=names_of(choices),
                )
        if self.vocab_size is None and self.kind not in ("words", "characters"):
            raise CutawayError("vocab_size is needed for a {kind} vocabulary", kind=self.kind)
        if self.vocab_size is not None and not 1 <= self.vocab_size <= MOST_PIECES:
            raise CutawayError(
                "vocab_size is {size:,}, expected 1 to {limit:,}", size=self.vocab_size, limit=MOST_PIECES
            )
        if not 0.0 < self.coverage <= 1.0:
            raise CutawayError("coverage is {coverage}, expected 0 < coverage <= 1", coverage=self.coverage)
        if self.alphabet is not None and self.alphabet < 1:
            raise CutawayError("alphabet is {size}, expected at least 1 character", size=self.alphabet)
        if self.min_count < 1:
            raise CutawayError("min_count is {min_count}, expected at least 1", min_count=self.min_count)
        if self.kind not in ("bpe-bytes", "bpe") and self.unk is None:
            raise CutawayError("a {kind} vocabulary needs a piece for the role unk", kind=self.kind)
        for piece in self.controls:
            if not piece or piece.isspace():
                raise CutawayError("control token {piece!r} is blank; give it a name", piece=piece)
