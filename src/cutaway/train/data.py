"""What training reads: a tokenizer, endless batches, and what validation looks at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.text.batches.batch import Batch
from cutaway.text.tokenizer import Tokenizer
from cutaway.train.evaluate import Direction
from cutaway.train.loop import Batches
from cutaway.train.recipe import TokenizerPart
from cutaway.train.state import damage, write_folder

Say = Callable[[str], None]


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
    say: Say,
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
            raise CutawayError(f"{fault}; delete {kept} to train the tokenizer anew")
        return Tokenizer.open(kept)
    step = max(1, -(-len(texts) // part.texts))
    chosen = texts[::step]
    say(f"tokenizer: learning a {part.kind} vocabulary from {len(chosen):,} texts")
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
    say(f"tokenizer: {tokenizer.vocab_size:,} pieces, kept in {kept}")
    return tokenizer


def decoder_start(tokenizer: Tokenizer) -> int:
    """What the decoder is given before the first word: bos, or eos in a vocabulary without."""
    start = tokenizer.role("bos")
    return tokenizer.require("eos") if start is None else start
