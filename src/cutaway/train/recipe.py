"""A recipe: one TOML file that says everything a run depends on."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cutaway.config import parse, to_dict
from cutaway.errors import CutawayError
from cutaway.files import override, read_toml
from cutaway.text.corpus import Errors, Split
from cutaway.text.tokens.plan import Kind, Normalization
from cutaway.train.average import AverageName
from cutaway.train.objective import ObjectiveName
from cutaway.train.optimizer import OptimizerName
from cutaway.train.schedule import Schedule, ScheduleName


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """[run]: what it is called, where it goes, what it runs on."""

    name: str
    folder: str | None = None  # None: runs/<name>, below the folder cutaway is started in
    seed: int = 1
    device: str = "auto"  # "auto": CUDA where there is one, else the CPU
    threads: int | None = None  # None: torch's choice (OMP_NUM_THREADS is respected)

    def __post_init__(self) -> None:
        if not self.name or self.name in (".", "..") or any(mark in self.name for mark in "/\\\0"):
            raise ValueError(
                f"name is {self.name!r}, expected a plain folder name; run.folder can be any path"
            )
        if self.threads is not None and not 1 <= self.threads <= 1024:
            raise ValueError(f"threads is {self.threads}, expected 1 to 1024")


@dataclass(frozen=True, kw_only=True)
class TokenizerPart:
    """[tokenizer]: an existing one, or how to train one on the training texts."""

    path: str | None = None  # a tokenizer.json or a folder that holds one
    kind: Kind = "bpe"
    vocab_size: int | None = (
        8000  # control tokens included; 0 (words, characters): every one that is frequent enough
    )
    min_count: int = 2
    coverage: float = 0.9995  # part of the text whose characters get a piece of their own
    normalization: Normalization = "none"
    lowercase: bool = False
    texts: int = 1_000_000  # it learns from at most this many training texts, evenly spread


@dataclass(frozen=True, kw_only=True)
class Source:
    """[[data.sources]]: one file of examples, plain or gzipped (see text.corpus for what each format takes)."""

    path: str  # relative to data.folder
    format: Literal["tsv", "parallel", "jsonl", "text"] = "tsv"
    columns: tuple[
        str, ...
    ] = ()  # tsv: every column's name (none: the first line has them); parallel: the two
    other: str | None = None  # parallel: the file of the second column
    field: str = "text"  # jsonl without directions: the field that holds the text
    domain: str | None = None  # a name for all of its examples; a column `domain` names them one by one
    split: Split = "lines"  # text: what divides documents
    heading: int = 0  # text: lines at the start of every document that are left out, such as a poem's title
    errors: Errors = "strict"  # bad lines: stop, or go on and count them
    part: tuple[float, ...] = (
        0.0,
        1.0,
    )  # the stretch of its examples (split = "file": its characters) that is used

    def __post_init__(self) -> None:
        if self.heading < 0:
            raise ValueError(f"heading is {self.heading}, expected a number of lines, 0 or more")
        if len(self.part) != 2 or not 0 <= self.part[0] < self.part[1] <= 1:
            raise ValueError(f"part is {list(self.part)}, expected [from, to] with 0 <= from < to <= 1")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """[data.validation]: examples held out of the sources, or sources of their own."""

    hold_out: int = 0  # examples, the same for the same data whatever the seed
    domains: tuple[str, ...] = ()  # held out of these domains alone
    sources: tuple[Source, ...] = ()
    translations: int = 0  # per direction, translated for BLEU and chrF at every validation
    samples: int = 3  # shown


@dataclass(frozen=True, kw_only=True)
class DataPart:
    """[data]: where the examples come from and how they become batches."""

    folder: str = "."
    sources: tuple[Source, ...]
    weights: dict[str, float] = field(default_factory=dict)  # domain -> copies an epoch; "*": all others
    directions: tuple[str, ...] = ()  # seq2seq: "zh>en", …, by column names
    languages: dict[str, str] = field(
        default_factory=dict
    )  # column -> language: >>eng<< stands before the source
    max_source: int = 128  # tokens; longer examples are left out, counted and reported
    max_target: int = 128
    context: int | None = None  # causal, masked: tokens a row; None: the model's max_len
    validation: Validation = Validation()

    @property
    def one_text(self) -> bool:
        """Whether the sources are whole files, read as one long text without start or end."""
        return all(source.split == "file" and source.format == "text" for source in self.sources)

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("there are no sources; add a [[data.sources]] table with a path")
        for direction in self.directions:
            if direction.count(">") != 1:
                raise ValueError(f"direction {direction!r} is not of the form 'zh>en'")


@dataclass(frozen=True, kw_only=True)
class TrainPart:
    """[train]: how the weights are found."""

    objective: ObjectiveName
    steps: int | None = None  # exactly one of steps, tokens and minutes
    tokens: int | None = None
    minutes: float | None = None
    batch_tokens: int = 4096  # tokens of a batch (seq2seq: source plus target), padding included
    batch_rows: int | None = None  # causal, masked: rows of a batch instead
    accumulate: int = 1
    optimizer: OptimizerName = "adamw"
    lr: float = 1e-3
    betas: tuple[float, ...] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0
    momentum: float = 0.95
    schedule: ScheduleName = "inverse_sqrt"
    warmup: int = 400
    decay: float = 0.2
    end: float = 0.0
    clip: float | None = 1.0
    smoothing: float = 0.0
    masking: float = 0.15
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    compile: bool = False
    average: AverageName = "none"
    average_decay: float = 0.999
    average_count: int = 5
    average_every: int = 1000
    save_every: int = 1000
    save_every_seconds: float | None = None
    validate_every: int | None = None
    patience: int | None = None
    keep: int = 2
    max_bad_steps: int = 10
    init: str | None = None  # a checkpoint folder whose weights are the start
    tensorboard: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("steps", "tokens", "minutes") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"exactly one of steps, tokens and minutes says how long to train; given: {', '.join(given) or 'none'}"
            )
        for name in (
            "batch_tokens",
            "accumulate",
            "save_every",
            "keep",
            "max_bad_steps",
            "average_count",
            given[0],
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected more than 0")
        for name in ("lr", "eps", "clip", "save_every_seconds", "validate_every", "patience", "batch_rows"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}, expected a number above 0")
        if not 0 <= self.average_decay < 1:
            raise ValueError(f"average_decay is {self.average_decay}, expected 0 <= average_decay < 1")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}, expected 0 <= smoothing < 1")
        if not 0 < self.masking < 1:
            raise ValueError(f"masking is {self.masking}, expected a part of the tokens: 0 < masking < 1")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas is {list(self.betas)}, expected two numbers from 0 to below 1")
        if self.patience is not None and self.validate_every is None:
            raise ValueError("patience needs validate_every: early stop looks at validations")
        _ = self.rate

    @property
    def rate(self) -> Schedule:
        """The schedule of the learning rate. Raises ValueError for values out of range."""
        return Schedule(name=self.schedule, warmup=self.warmup, decay=self.decay, end=self.end)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run."""

    run: RunPart
    model: dict[
        str, bool | int | float | str
    ]  # preset and/or ModelConfig fields; the vocabulary is filled in
    tokenizer: TokenizerPart = TokenizerPart()
    data: DataPart
    train: TrainPart

    @property
    def folder(self) -> Path:
        return Path(self.run.folder or os.path.join("runs", self.run.name))


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a TOML file with `key=value` assignments applied (`train.steps=100`; a key without a table
    is one of [train]'s or [run]'s). Raises CutawayError naming file, key and what was expected."""
    spelled = [_spell_out(assignment) for assignment in overrides]
    return parse(Recipe, override(read_toml(path), spelled, str(path)), str(path))


def _spell_out(assignment: str) -> str:
    key = assignment.partition("=")[0].strip()
    if "." in key:
        return assignment
    table = "run" if key in RunPart.__dataclass_fields__ else "train"
    return f"{table}.{assignment}"


# What may change between stopping and resuming without making the past a different past.
FREE = {
    "run": {"name", "folder", "device", "threads"},
    "train": {
        "steps", "tokens", "minutes", "save_every", "save_every_seconds", "validate_every", "patience", "keep",
        "max_bad_steps", "tensorboard",
    },
    "data": {"folder", "validation"},
}  # fmt: skip


def changes(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Fields that differ between two recipes (as plain values) and may not: `table.field: old -> new`. A field
    that the older one does not know had its default."""
    found = []
    before, now = _completed(before), _completed(now)
    for table in sorted({*before, *now}):
        old, new = before.get(table), now.get(table)
        old, new = old if isinstance(old, dict) else {}, new if isinstance(new, dict) else {}
        for key in sorted({*old, *new}):
            if key not in FREE.get(table, set()) and old.get(key) != new.get(key):
                found.append(f"{table}.{key}: {old.get(key)!r} -> {new.get(key)!r}")
    return found


def _completed(recipe: Mapping[str, object]) -> Mapping[str, object]:
    try:
        return to_dict(parse(Recipe, recipe, "the run's recipe"))
    except CutawayError:  # a version with other fields wrote it: what differs is named as it stands
        return recipe


def refuse_changes(before: Mapping[str, object], now: Mapping[str, object], folder: Path) -> None:
    """Raises CutawayError naming every field in which a run that is to be resumed differs from its past."""
    if found := changes(before, now):
        raise CutawayError(
            "{folder} holds a run with another recipe: {found}. Change it back to resume, or give "
            "this run another run.name (train.init can start it from the old weights)",
            folder=folder,
            found="; ".join(found),
        )


def fingerprint(recipe: Recipe) -> dict[str, object]:
    """The recipe as plain values, as it is kept with every checkpoint."""
    return to_dict(recipe)
