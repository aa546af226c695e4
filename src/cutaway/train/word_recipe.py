"""A recipe of word vectors: one TOML file that says everything a run depends on, as `recipe.Recipe` does for
Transformers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cutaway.config import PIECES, checked, key, parse
from cutaway.errors import CutawayError
from cutaway.files import override, read_toml
from cutaway.models.word2vec import Word2VecConfig
from cutaway.text.sequences import Cut
from cutaway.train.recipe import RunPart, Source, spell_out
from cutaway.words import Text


@checked
class VectorsPart(Word2VecConfig):
    """[model]: what is learned; the number of words is that of the texts."""

    vocab_size: int = key("number of words; not given: those of the texts", default=PIECES, ge=2, le=PIECES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output == "none":
            raise CutawayError(
                "output is none, which only vectors from other tools have; expected negative or hierarchical"
            )


@checked
class WordsPart:
    """[words]: what a word is, and which of them get a vector."""

    cut: Cut = key(
        "words: letters and apostrophes, or digits; spaces: whatever stands between them, as in texts cut before, "
        "baskets and playlists; jieba: Chinese words; tokenizer: the pieces of one",
        default="words",
    )
    tokenizer: str | None = key("tokenizer: its tokenizer.json, or a folder with one", default=None)
    lowercase: bool = key("fold the text to lower case", default=True)
    min_count: int = key("how often a word must occur", default=5, ge=1)
    phrases: int = key(
        "times that frequent pairs of words are joined, such as new_york; 0: never", default=0, ge=0, le=8
    )
    phrase_threshold: float = key(
        "how much more often than apart they must occur together", default=100.0, gt=0
    )

    def __post_init__(self) -> None:
        if (self.cut == "tokenizer") != (self.tokenizer is not None):
            raise CutawayError(
                'cut is {cut} and tokenizer {tokenizer}: give cut = "tokenizer" and its path together, or neither',
                cut=self.cut,
                tokenizer=self.tokenizer,
            )


@checked
class TextsPart:
    """[data]: where the texts come from; each document is a sequence of words."""

    folder: str = key("where the files lie", default=".")
    sources: tuple[Source, ...] = key("the files, a table each: format text or jsonl")

    def __post_init__(self) -> None:
        if not self.sources:
            raise CutawayError("there are no sources; add a [[data.sources]] table with a path")
        for source in self.sources:
            if source.format not in ("text", "jsonl"):
                raise CutawayError(
                    "{path}: format {format} holds pairs; expected text or jsonl",
                    path=source.path,
                    format=source.format,
                )


@checked
class WordTrainPart:
    """[train]: how the vectors are found. The learning rate falls linearly from `lr` to `end_lr`."""

    epochs: int = key("times that every word is read", default=5, ge=1, le=10_000)
    window: int = key(
        "the most words to either side; each time 1 to this many are taken", default=5, ge=1, le=1_000
    )
    negatives: int = key("negative sampling: words drawn for each word", default=5, ge=1, le=1_000)
    exponent: float = key(
        "negative sampling: they are drawn by count to this power", default=0.75, ge=-10, le=10
    )
    subsample: float = key(
        "frequent words are left out at random: the share of all words from which on; 0: never",
        default=1e-3,
        ge=0,
    )
    lr: float | None = key(
        "the learning rate at first; not given: 0.025 for skip-gram, 0.05 for cbow", default=None, gt=0, le=10
    )
    end_lr: float = key("the learning rate at last", default=1e-4, ge=0, le=10)
    step_words: int = key("words of a step: of a line of the log", default=1_000_000, ge=1)
    save_every: int = key("steps between checkpoints", default=50, ge=1)
    keep: int = key("newest checkpoints that are kept", default=2, ge=1)


@checked
class WordRecipe:
    """A whole run of word vectors."""

    run: RunPart = key("the run itself")
    model: VectorsPart = key("what is built")
    words: WordsPart = key("what a word is", default=WordsPart())
    data: TextsPart = key("what is learned from")
    train: WordTrainPart = key("how it is learned", default=WordTrainPart())

    def __post_init__(self) -> None:
        if self.run.device not in ("auto", "cpu"):
            raise CutawayError(
                "run.device is {device!r}: word vectors are learned on the CPU; leave it out",
                device=self.run.device,
            )

    @property
    def folder(self) -> Path:
        return Path(self.run.folder or os.path.join("runs", self.run.name))

    @property
    def lr(self) -> float:
        return self.train.lr or (0.025 if self.model.context == "skip-gram" else 0.05)


def is_of_words(path: Path) -> bool:
    """Whether the recipe at `path` is one of word vectors. Raises CutawayError for a file that is no TOML."""
    model = read_toml(path).get("model")
    return isinstance(model, dict) and model.get("family") == "word2vec"


def read_word_recipe(path: Path, overrides: Sequence[str] = ()) -> WordRecipe:
    """The recipe in a TOML file with `key=value` assignments applied, as `recipe.read_recipe` does."""
    spelled = [spell_out(assignment) for assignment in overrides]
    return parse_word_recipe(override(read_toml(path), spelled, str(path)), str(path))


def parse_word_recipe(values: Mapping[str, object], where: Text) -> WordRecipe:
    """The same from plain values. Raises CutawayError naming `where`, key and what was expected."""
    return parse(WordRecipe, values, where)
