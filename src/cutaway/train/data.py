"""What training reads: a tokenizer, endless batches, and what validation looks at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.text.batches.batch import Batch
from cutaway.text.corpus import Report
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.train.evaluate import Direction
from cutaway.train.loop import Batches
from cutaway.train.recipe import TokenizerPart
from cutaway.train.state import damage, write_folder
from cutaway.words import Text, say

Tell = Callable[[Text], None]
TRAINING, VALIDATION = say("training"), say("validation")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything training reads, once the model's special ids are known."""

    tokenizer: Tokenizer
    batches: Batches
    validation: list[Batch] = field(default_factory=list)
    n_bytes: int | None = None  # of the validation text, for bits per byte
    directions: list[Direction] = field(default_factory=list)


def learned_tokenizer(
    part: TokenizerPart,
    folder: Path,
    texts: Sequence[str],
    tell: Tell,
    *,
    languages: Sequence[str] = (),
    roles: Mapping[str, str] | None = None,
    template: str | None = None,
) -> Tokenizer:
    """The recipe's tokenizer: the one at `path`, the one this run has learned before, or one learned from `texts`
    and kept in `folder`/tokenizer. `template` says what stands around a text in training, for whoever opens it."""
    if part.path is not None:
        return Tokenizer.open(Path(part.path))
    kept = folder / "tokenizer"
    if kept.is_dir():
        if fault := damage(kept):
            raise CutawayError("{fault}; delete {kept} to train the tokenizer anew", fault=fault, kept=kept)
        return Tokenizer.open(kept)
    step = max(1, -(-len(texts) // part.texts))
    chosen = texts[::step]
    tell(
        say(
            "tokenizer: learning a {kind} vocabulary from {count:,} texts",
            kind=part.kind,
            count=len(chosen),
        )
    )
    tokenizer = Tokenizer.train(
        chosen,
        part.kind,
        part.vocab_size or None,
        roles=roles,
        languages=languages,
        normalization=part.normalization,
        lowercase=part.lowercase,
        coverage=part.coverage,
        min_count=part.min_count,
        template=template,
    )
    write_folder(kept, tokenizer.save)
    size = f"{tokenizer.vocab_size:,}"
    tell(say("tokenizer: {size} pieces, kept in {kept}", size=size, kept=kept))
    return tokenizer


def report_to(path: Path, report: Report, tell: Tell) -> None:
    """Tell what was met while the file at `path` was read."""
    tell(say("{path}: {report}", path=path, report=report.told()))


def decoder_start(tokenizer: Tokenizer) -> int:
    """What the decoder is given before the first word: bos, or eos in a vocabulary without."""
    start = tokenizer.role("bos")
    return tokenizer.require("eos") if start is None else start
