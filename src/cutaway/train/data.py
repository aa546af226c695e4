"""What training reads: a tokenizer, endless batches, and what validation looks at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.page.locale import Both, told
from cutaway.text.batches.batch import Batch
from cutaway.text.lines import Report
from cutaway.text.tokenizer import Tokenizer
from cutaway.train.evaluate import Direction
from cutaway.train.loop import Batches
from cutaway.train.recipe import TokenizerPart
from cutaway.train.state import damage, write_folder

Say = Callable[[str], None]
TRAINING, VALIDATION = Both("training", "训练"), Both("validation", "验证")


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
    say(
        told(
            f"tokenizer: learning a {part.kind} vocabulary from {len(chosen):,} texts",
            f"分词器：从 {len(chosen):,} 段文字学词表（{part.kind}）",
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
    say(told(f"tokenizer: {size} pieces, kept in {kept}", f"分词器：{size} 个词块，存于 {kept}"))
    return tokenizer


def say_report(path: Path, report: Report, say: Say) -> None:
    """Tell what was met while the file at `path` was read."""
    counts = ((report.skipped, "个坏行"), (report.empty, "个空的"), (report.long, "个过长的"))
    left_out = "、".join(f"{count:,} {what}" for count, what in counts if count)
    zh = [f"{report.lines:,} 行"]
    zh += [f"替换 {report.replaced:,} 个坏字节"] if report.replaced else []
    zh += [f"略去 {left_out}"] if left_out else []
    say(told(f"{path}: {report}", f"{path}：{'，'.join(zh)}"))


def decoder_start(tokenizer: Tokenizer) -> int:
    """What the decoder is given before the first word: bos, or eos in a vocabulary without."""
    start = tokenizer.role("bos")
    return tokenizer.require("eos") if start is None else start
