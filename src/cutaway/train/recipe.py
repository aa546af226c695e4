"""A recipe: one TOML file that says everything a run depends on, checked before anything is read or computed."""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Literal

from cutaway.config import PIECES, ModelConfig, checked, key, parse, to_dict
from cutaway.errors import CutawayError, nearest
from cutaway.files import override, read_toml
from cutaway.models.build import preset_values
from cutaway.text.corpus import Errors, Split
from cutaway.text.tokens.plan import Kind, Normalization
from cutaway.words import Text, names_of, say

ObjectiveName = Literal["seq2seq", "causal", "masked"]
OptimizerName = Literal["adamw", "muon"]
AverageName = Literal["none", "ema", "mean"]
ScheduleName = Literal["constant", "inverse_sqrt", "cosine", "wsd"]

# Of what lies in memory at once: more is a mistake.
MOST = 100_000_000

# The family that an objective trains.
FAMILY = {"seq2seq": "encoder-decoder", "causal": "decoder-only", "masked": "encoder-only"}


@checked
class RunPart:
    """[run]: what the run is called, where it goes, what it runs on."""

    name: str = key("the run's name, and its folder's")
    folder: str | None = key(
        "the run's folder; not given: runs/NAME, from where cutaway is started", default=None
    )
    seed: int = key("seed of every random choice", default=1, ge=0, lt=2**63)
    device: str = key("auto, cpu or cuda; auto is CUDA where there is one", default="auto")
    threads: int | None = key("CPU threads; not given: torch's choice", default=None, ge=1, le=1024)

    def __post_init__(self) -> None:
        if not self.name or self.name in (".", "..") or any(mark in self.name for mark in "/\\"):
            raise CutawayError(
                "name is {name!r}, expected a plain folder name; run.folder can be any path", name=self.name
            )


@checked
class ModelPart(ModelConfig):
    """[model]: a preset, the keys of a model's config, or both. What only a tokenizer can tell is filled in later."""

    preset: str | None = key("named values to start from", default=None)
    vocab_size: int = key("token ids; not given: the tokenizer's", default=PIECES, ge=1, le=PIECES)

    def filled(self, found: Mapping[str, int | None]) -> ModelConfig:
        """The model's config, with what was `found` in the tokenizer (vocabulary size, ids) where the recipe does not
        say it. Raises CutawayError for an id of the recipe outside the vocabulary, and for a vocabulary smaller than
        the tokenizer's."""
        if (found["vocab_size"] or 0) > self.vocab_size:
            raise CutawayError(
                "model.vocab_size is {size:,}, fewer than the tokenizer has pieces ({pieces:,}); leave it out, or make "
                "tokenizer.vocab_size smaller",
                size=self.vocab_size,
                pieces=found["vocab_size"],
            )
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(ModelConfig)}
        unsaid = {name: value for name, value in found.items() if values[name] in (None, PIECES)}
        return ModelConfig(**{**values, **unsaid})


@checked
class TokenizerPart:
    """[tokenizer]: an existing one, or how to learn one from the training texts."""

    path: str | None = key("an existing tokenizer.json, or a folder with one", default=None)
    kind: Kind = key("what pieces are", default="bpe")
    vocab_size: int = key(
        "ids, control tokens included; 0 (words, characters): all that are frequent",
        default=8000,
        ge=0,
        le=PIECES,
    )
    min_count: int = key("how often a piece must occur", default=2, ge=1)
    coverage: float = key("part of the text whose characters are pieces", default=0.9995, gt=0, le=1)
    normalization: Normalization = key("Unicode normal form of the text", default="none")
    lowercase: bool = key("fold the text to lower case", default=False)
    texts: int = key("the most training texts it learns from", default=1_000_000, ge=1)

    def __post_init__(self) -> None:
        if self.path is None and self.vocab_size == 0 and self.kind not in ("words", "characters"):
            raise CutawayError(
                "vocab_size is 0, expected a number of ids for a {kind} vocabulary", kind=self.kind
            )


@checked
class Source:
    """[[data.sources]]: one file of examples, plain or gzipped (see text.corpus for what each format takes)."""

    path: str = key("the file, from data.folder")
    format: Literal["tsv", "parallel", "jsonl", "text"] = key("how examples lie in it", default="tsv")
    columns: tuple[str, ...] = key(
        "tsv: the columns' names, else the first line has them; parallel: the two files'", default=()
    )
    other: str | None = key("parallel: the file of the second column", default=None)
    field: str = key("jsonl without directions: the field that holds the text", default="text")
    domain: str | None = key("a name for all its examples, else a column `domain` has them", default=None)
    split: Split = key("text: what divides documents", default="lines")
    heading: int = key(
        "text: lines left out at each document's start, such as a poem's title", default=0, ge=0
    )
    errors: Errors = key("bad lines: stop, or go on and count them", default="strict")
    part: tuple[float, ...] = key(
        "the stretch of its examples (split = file: characters) that is used", default=(0.0, 1.0), ge=0, le=1
    )

    def __post_init__(self) -> None:
        if len(self.part) != 2 or not self.part[0] < self.part[1]:
            raise CutawayError("part is {part}, expected [from, to] with from < to", part=list(self.part))
        if self.format == "parallel" and (self.other is None or len(self.columns) != 2):
            raise CutawayError(
                "{path}: a parallel source needs `other` (the second file) and two `columns`", path=self.path
            )

    def check_columns(self, source: str, target: str) -> None:
        """Raises CutawayError where it is clear that the file lacks the two columns of a pair."""
        if self.format == "text":
            raise CutawayError(
                "{path}: format text has no pairs; expected tsv, parallel or jsonl", path=self.path
            )
        for name in (source, target):
            if self.format != "jsonl" and self.columns and name not in self.columns:
                raise CutawayError(
                    "{path}: no column {name!r}{hint}; columns: {columns}",
                    path=self.path,
                    name=name,
                    hint=nearest(name, self.columns),
                    columns=names_of(self.columns),
                )


@checked
class Validation:
    """[data.validation]: examples held out of the sources, or sources of their own."""

    hold_out: int | None = key(
        "number of examples held out, the same whatever the seed; not given: with validate_every and without sources a "
        "twentieth of them, at most 500 (of one long text, its end)",
        default=None,
        ge=0,
    )
    domains: tuple[str, ...] = key("seq2seq: held out of these domains alone", default=())
    sources: tuple[Source, ...] = key("files of their own, as in data.sources", default=())
    translations: int = key(
        "seq2seq: sentences translated at every validation, for BLEU and chrF", default=0, ge=0
    )
    samples: int = key("seq2seq: translations shown at every validation", default=3, ge=0)


@checked
class DataPart:
    """[data]: where the examples come from and how they become batches."""

    folder: str = key("where the files lie", default=".")
    sources: tuple[Source, ...] = key("the files, a table each")
    weights: dict[str, float] = key(
        'seq2seq: times an epoch sees a domain; "*": any other', default_factory=dict, ge=0, le=1_000
    )
    directions: tuple[str, ...] = key('seq2seq: "zh>en", or both ways, by columns', default=())
    languages: dict[str, str] = key(
        "seq2seq: a column's language; sources then begin with >>eng<<", default_factory=dict
    )
    max_source: int = key("seq2seq: tokens; longer examples are left out", default=128, ge=2)
    max_target: int = key("seq2seq: tokens; longer examples are left out", default=128, ge=2)
    context: int | None = key("causal, masked: tokens a row; else model.max_len", default=None, ge=1)
    validation: Validation = key("what validation looks at", default=Validation())

    def __post_init__(self) -> None:
        if not self.sources:
            raise CutawayError("there are no sources; add a [[data.sources]] table with a path")

    @property
    def one_text(self) -> bool:
        """Whether the sources are whole files, read as one long text without start or end."""
        return all(source.split == "file" and source.format == "text" for source in self.sources)

    @property
    def all_sources(self) -> tuple[Source, ...]:
        return self.sources + self.validation.sources

    @property
    def ways(self) -> list[tuple[str, str]]:
        """The directions as (source column, target column): one, or both of one pair. Raises CutawayError."""
        ways = [tuple(name.strip() for name in direction.split(">")) for direction in self.directions]
        found = [(way[0], way[1]) for way in ways if len(way) == 2 and all(way)]
        if len(found) == len(ways) == 1 or (len(found) == len(ways) == 2 and found[0] == found[1][::-1]):
            return found
        raise CutawayError(
            "data.directions is {directions}, expected one direction or both of one pair of columns, such as "
            '["zh>en", "en>zh"]',
            directions=list(self.directions),
        )


@checked
class Schedule:
    """How large the learning rate is at each update, as a fraction of its peak.

    Every schedule rises linearly over `warmup` updates: the first is 1/warmup, never 0, and update `warmup` is
    the peak, 1. After it:

    * constant: stays 1.
    * inverse_sqrt: √(warmup / n), the paper's (Vaswani et al. 2017, §5.3) with the peak as its unit.
    * cosine: half a cosine down to `end` (Loshchilov & Hutter 2017).
    * wsd: stays 1, then falls linearly to `end` over the last `decay` part of all updates (Hu et al. 2024, §4),
      or over those that the warmup leaves.

    cosine and wsd reach `end` at update total + 1, the first that is not made, so that none is wasted on a rate
    of 0.
    """

    schedule: ScheduleName = key("how the learning rate goes on after its peak", default="inverse_sqrt")
    warmup: int = key("updates in which the learning rate rises to its peak", default=400, ge=0)
    decay: float = key("wsd: the last part of the run, in which the rate falls", default=0.2, gt=0, le=1)
    end: float = key("cosine, wsd: the last rate as a fraction of the peak", default=0.0, ge=0, le=1)

    def rate(self, n: int, total: float) -> float:
        """The factor, 0 to 1, for update `n` (counted from 1) of `total`, which may be an estimate that moves, as in a
        run limited by time."""
        if n < self.warmup:
            return n / self.warmup
        start = max(self.warmup, 1)
        if self.schedule == "inverse_sqrt":
            return math.sqrt(start / n)
        if self.schedule == "cosine":
            done = min(1.0, (n - start) / max(1.0, total + 1 - start))
            return self.end + (1 - self.end) * 0.5 * (1 + math.cos(math.pi * done))
        if self.schedule == "wsd":
            # the warmup is not cut short where both overlap
            length = max(1.0, min(self.decay * total, total + 1 - start))
            left = min(1.0, max(0.0, total + 1 - n) / length)
            return self.end + (1 - self.end) * left
        return 1.0


@checked
class Limits:
    """When a run stops, saves and validates. Exactly one of steps, tokens and minutes is given."""

    steps: int | None = key("updates of the whole run", default=None, ge=1)
    tokens: int | None = key("labels of the whole run, instead", default=None, ge=1)
    minutes: float | None = key("minutes of training, resumes included, instead", default=None, gt=0)
    save_every: int = key("steps between checkpoints", default=1000, ge=1)
    save_every_seconds: float | None = key("seconds between checkpoints, too", default=None, gt=0)
    validate_every: int | None = key("steps between validations; else none", default=None, ge=1)
    patience: int | None = key("validations without a better loss that end a run", default=None, ge=1)
    keep: int = key("newest checkpoints that are kept, besides the best", default=2, ge=1)
    max_bad_steps: int = key(
        "steps in a row without a finite loss or gradient that end a run", default=10, ge=1
    )

    def __post_init__(self) -> None:
        given = [name for name in ("steps", "tokens", "minutes") if getattr(self, name) is not None]
        if len(given) != 1:
            raise CutawayError(
                "exactly one of steps, tokens and minutes says how long to train; given: {given}",
                given=names_of(given) if given else say("none"),
            )
        if self.patience is not None and self.validate_every is None:
            raise CutawayError("patience needs validate_every: early stop looks at validations")

    @property
    def limit(self) -> str:
        """The key that says how long to train, and its value."""
        name = next(name for name in ("steps", "tokens", "minutes") if getattr(self, name) is not None)
        return f"train.{name} = {getattr(self, name)}"

    def total(self, step: int, tokens: int, seconds: float) -> float:
        """Updates in the whole run, estimated where it is limited by tokens or minutes."""
        if self.steps is not None:
            return self.steps
        if step == 0:
            return math.inf
        if self.tokens is not None:
            return step * self.tokens / max(tokens, 1)
        assert self.minutes is not None
        return step * self.minutes * 60 / max(seconds, 1e-9)

    def reached(self, step: int, tokens: int, seconds: float) -> bool:
        """Whether the run is over."""
        if self.steps is not None:
            return step >= self.steps
        if self.tokens is not None:
            return tokens >= self.tokens
        assert self.minutes is not None
        return seconds >= self.minutes * 60


@checked
class TrainPart(Limits, Schedule):
    """[train]: how the weights are found."""

    objective: ObjectiveName = key("what is learned: translations, the next token, or hidden tokens")
    batch_tokens: int = key(
        "tokens of a batch (source plus target), padding included", default=4096, ge=1, le=MOST
    )
    batch_rows: int | None = key("causal, masked: rows of a batch, instead", default=None, ge=1, le=MOST)
    accumulate: int = key("batches whose gradients make one update", default=1, ge=1, le=10_000)
    optimizer: OptimizerName = key("adamw, or muon for the matrices inside", default="adamw")
    lr: float = key("the peak of the learning rate", default=1e-3, gt=0, le=1_000)
    betas: tuple[float, ...] = key("adamw: decay of its two averages", default=(0.9, 0.98), ge=0, lt=1)
    eps: float = key("adamw: what is added to the divisor", default=1e-9, gt=0, le=1)
    weight_decay: float = key("decay of the matrices, times the rate", default=0.0, ge=0, le=1_000)
    momentum: float = key("muon: decay of its average", default=0.95, ge=0, lt=1)
    clip: float | None = key("greatest norm of a gradient; others are scaled to it", default=1.0, gt=0)
    smoothing: float = key("label smoothing", default=0.0, ge=0, lt=1)
    masking: float = key("masked: part of the tokens that is hidden", default=0.15, gt=0, lt=1)
    precision: Literal["auto", "bf16", "fp32"] = key(
        "type of matrix products; auto: bf16 where the hardware has it", default="auto"
    )
    compile: bool = key("compile the model", default=False)
    average: AverageName = key("average of the weights that is exported", default="none")
    average_decay: float = key("ema: decay of the average", default=0.999, ge=0, lt=1)
    average_count: int = key("mean: number of snapshots", default=5, ge=1, le=1_000)
    average_every: int = key("mean: updates between snapshots", default=1000, ge=1)
    init: str | None = key("a model folder whose weights are the start", default=None)
    tensorboard: bool = key("write the numbers for TensorBoard, too", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2:
            raise CutawayError("betas is {betas}, expected two numbers", betas=list(self.betas))


@checked
class Recipe:
    """A whole run."""

    run: RunPart = key("the run itself")
    model: ModelPart = key("what is built")
    tokenizer: TokenizerPart = key("the vocabulary", default=TokenizerPart())
    data: DataPart = key("what is learned from")
    train: TrainPart = key("how it is learned")

    def __post_init__(self) -> None:
        objective, data = self.train.objective, self.data
        if self.model.family != FAMILY[objective]:
            raise CutawayError(
                "train.objective {objective} trains the {expected} family, but model.family is {family}",
                objective=objective,
                expected=FAMILY[objective],
                family=self.model.family,
            )
        if self.model.head == "none":
            raise CutawayError(
                "model.head is none: a model without an output head cannot learn to predict words"
            )
        nothing_held = data.validation.hold_out == 0 and not data.validation.sources
        if self.train.validate_every is not None and nothing_held:
            raise CutawayError(
                "train.validate_every is set, but data.validation.hold_out is 0 and there are no sources: leave "
                "hold_out out, or give data.validation.sources"
            )
        if self.tokenizer.path is None and self.tokenizer.vocab_size > self.model.vocab_size:
            raise CutawayError(
                "tokenizer.vocab_size is {pieces:,}, expected at most model.vocab_size ({size:,})",
                pieces=self.tokenizer.vocab_size,
                size=self.model.vocab_size,
            )
        if objective == "seq2seq":
            self._check_pairs()
        else:
            self._check_texts()

    def _check_pairs(self) -> None:
        data, ways = self.data, self.data.ways
        if data.context is not None or self.train.batch_rows is not None:
            raise CutawayError(
                "data.context and train.batch_rows belong to texts (train.objective causal, masked)"
            )
        if len(ways) == 2 and not set(ways[0]) <= data.languages.keys():
            raise CutawayError(
                "data.directions has both ways of {source} and {target}: data.languages must name a language for "
                "each, so that the model is told which way to go",
                source=ways[0][0],
                target=ways[0][1],
            )
        for column, language in data.languages.items():
            if column not in ways[0]:
                raise CutawayError(
                    "data.languages.{column}: data.directions has no column {column!r}{hint}; it has {columns}",
                    column=column,
                    hint=nearest(column, ways[0]),
                    columns=names_of(ways[0]),
                )
            if not re.fullmatch(r"[\w-]+", language):
                raise CutawayError(
                    "data.languages.{column} is {language!r}, expected letters, digits, - and _, such as zho",
                    column=column,
                    language=language,
                )
        if len(set(data.languages.values())) < len(data.languages):
            raise CutawayError(
                "data.languages has {languages}, expected another language for each column",
                languages=names_of(data.languages.values()),
            )
        for source in data.all_sources:
            source.check_columns(*ways[0])
        longest = max(data.max_source, data.max_target)
        rounded = longest + longest % 2  # as PairBatches lays them out
        if rounded > self.model.max_len:
            raise CutawayError(
                "data.max_source or max_target is {longest}, in a batch {rounded} columns, beyond model.max_len "
                "({max_len} positions)",
                longest=longest,
                rounded=rounded,
                max_len=self.model.max_len,
            )

    def _check_texts(self) -> None:
        for name in ("weights", "directions", "languages", "validation.domains", "validation.translations"):
            key_of_pairs = f"data.{name}"
            if attrgetter(key_of_pairs)(self):
                raise CutawayError("{name} belongs to pairs (train.objective seq2seq)", name=key_of_pairs)
        for source in self.data.all_sources:
            if source.format not in ("text", "jsonl"):
                raise CutawayError(
                    "{path}: format {format} holds pairs; expected text or jsonl",
                    path=source.path,
                    format=source.format,
                )
        least = 3 if self.train.objective == "masked" else 1  # [CLS] a token [SEP]
        if not least <= self.context <= self.model.max_len:
            raise CutawayError(
                "data.context is {context}, expected {least} to model.max_len ({max_len})",
                context=self.context,
                least=least,
                max_len=self.model.max_len,
            )

    @property
    def folder(self) -> Path:
        return Path(self.run.folder or os.path.join("runs", self.run.name))

    @property
    def held_part(self) -> float:
        """The part that is held out for validation where the recipe does not say how much."""
        return 0.05 if self.train.validate_every is not None and not self.data.validation.sources else 0.0

    def held_out(self, count: int) -> int:
        """How many of `count` examples are held out for validation."""
        if self.data.validation.hold_out is not None:
            return self.data.validation.hold_out
        return min(500, math.ceil(self.held_part * count)) if count > 1 else 0

    @property
    def context(self) -> int:
        """Tokens that a row of text holds."""
        return self.model.max_len if self.data.context is None else self.data.context


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a TOML file with `key=value` assignments applied (`train.steps=100`; a key without a table
    is one of [train]'s or [run]'s). Raises CutawayError naming file, key and what was expected."""
    spelled = [spell_out(assignment) for assignment in overrides]
    return parse_recipe(override(read_toml(path), spelled, str(path)), str(path))


def parse_recipe(values: Mapping[str, object], where: Text) -> Recipe:
    """A recipe from plain values. Raises CutawayError naming `where`, key and what was expected."""
    model = values.get("model")
    if isinstance(model, Mapping) and "preset" in model:
        values = {**values, "model": {**preset_values(model["preset"], where), **model}}
    return parse(Recipe, values, where)


def spell_out(assignment: str) -> str:
    """An assignment of the command line with the table that its key is in."""
    name = assignment.partition("=")[0].strip()
    if "." in name:
        return assignment
    table = "run" if name in RunPart.__dataclass_fields__ else "train"
    return f"{table}.{assignment}"


# What may change between stopping and resuming without making the past a different past.
FREE = {
    "run": {"name", "folder", "device", "threads"},
    "train": {field.name for field in dataclasses.fields(Limits)} | {"tensorboard"},
    "data": {"folder", "validation"},
}


def refuse_changes(
    before: Mapping[str, object],
    now: object,
    folder: Path,
    read: Callable[[Mapping[str, object], Text], object] = parse_recipe,
) -> None:
    """Raises CutawayError naming every field in which a run that is to be resumed differs from its past, the recipe in
    the checkpoint (as plain values), which `read` reads. A field that the older one does not know had its default."""
    old = before
    # what a version with other fields wrote is compared as it stands
    with suppress(CutawayError):
        old = to_dict(read(before, say("the run's recipe")))
    found = []
    for table, values in to_dict(now).items():
        past = old.get(table)
        past, values = past if isinstance(past, dict) else {}, values if isinstance(values, dict) else {}
        for name in sorted({*past, *values} - FREE.get(table, set())):
            if past.get(name) != values.get(name):
                found.append(f"{table}.{name}: {past.get(name)!r} -> {values.get(name)!r}")
    if found:
        raise CutawayError(
            "{folder} holds a run with another recipe: {found}. Change it back to resume, or give this run another "
            "run.name{hint}",
            folder=folder,
            hint=say(" (train.init can start it from the old weights)") if isinstance(now, Recipe) else "",
            found="; ".join(found),
        )
