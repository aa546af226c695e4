"""How a model folder wants sentence vectors to be made: the files that sentence-transformers writes into it.

`modules.json` lists the steps (Transformer, Pooling, Normalize), `1_Pooling/config.json` says how token vectors
become one, `sentence_bert_config.json` how much of a text is read. A step that is not known here is refused by
name: leaving it out would give other vectors than the model's makers meant.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from cutaway.checkpoint.folder import gguf_of
from cutaway.checkpoint.gguf_file import read_header
from cutaway.config import parse
from cutaway.errors import CutawayError, about, nearest
from cutaway.files import is_within, json_value, read_json, read_text
from cutaway.words import listed, say

T = TypeVar("T")
Pooling = Literal["mean", "cls", "max", "last"]
MODULES = "modules.json"
_POOLINGS: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"}
_GGUF_POOLINGS: dict[object, Pooling] = {1: "mean", 2: "cls", 3: "last"}  # llama.cpp's numbers
_LONGEST = 255  # bytes of a name in a path
_STEPS = ["Transformer", "Pooling", "Normalize"]  # the last one may be missing


@dataclass(frozen=True)
class SentenceSettings:
    """Pooling and what comes before and after it. The defaults are those for a folder without `modules.json`."""

    pooling: Pooling = "mean"
    normalise: bool = True
    max_tokens: int | None = None  # with the control tokens around a text; None: the model's own limit
    lowercase: bool = False
    prompt: str = ""  # stands before every text
    source: str = "defaults"  # or the file that said so

    def read(self, text: str) -> str:
        """A text as the model reads it: after the prompt, in lower case where the folder asks for that."""
        whole = self.prompt + text
        # Each character by itself, as the reference does: Σ becomes σ at a word's end too.
        return "".join(map(str.lower, whole)) if self.lowercase else whole


# What is read of each file; other keys do not bear on the vectors.


@dataclass(frozen=True)
class _Step:
    type: str
    path: str = ""


@dataclass(frozen=True)
class _TransformerFile:
    max_seq_length: int | None = None
    do_lower_case: bool | None = None


@dataclass(frozen=True)
class _TokenizerFile:
    model_max_length: int | float | None = None


@dataclass(frozen=True)
class _PoolingFile:
    # newer files name the ways, older ones have a truth value for each
    pooling_mode: str | tuple[str, ...] = ()
    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False
    include_prompt: bool = True

    def ways(self) -> list[str]:
        """How token vectors become one, as sentence-transformers names it; several are put side by side there."""
        if self.pooling_mode:
            return [self.pooling_mode] if isinstance(self.pooling_mode, str) else list(self.pooling_mode)
        flags = {
            "cls": self.pooling_mode_cls_token,
            "mean": self.pooling_mode_mean_tokens,
            "max": self.pooling_mode_max_tokens,
            "mean_sqrt_len_tokens": self.pooling_mode_mean_sqrt_len_tokens,
            "weightedmean": self.pooling_mode_weightedmean_tokens,
            "lasttoken": self.pooling_mode_lasttoken,
        }
        return [way for way, wanted in flags.items() if wanted] or ["mean"]


@dataclass(frozen=True)
class _PromptFile:
    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None

    def text(self, where: Path) -> str:
        """What stands before every text, unless the user of that library asks for another."""
        if self.default_prompt_name is None:
            return ""
        prompts = self.prompts or {}
        if self.default_prompt_name not in prompts:
            raise CutawayError(
                "{where}: default_prompt_name is {name!r}{hint}, expected one of the prompts there: {prompts}",
                where=where,
                name=self.default_prompt_name,
                hint=nearest(self.default_prompt_name, prompts),
                prompts=listed(prompts) if prompts else say("none"),
            )
        return prompts[self.default_prompt_name] or ""


def _of_gguf(file: Path) -> SentenceSettings:
    metadata = read_header(file).metadata
    kind = next((value for key, value in metadata.items() if key.endswith(".pooling_type")), None)
    if kind is None:
        return SentenceSettings()
    if kind not in _GGUF_POOLINGS:
        raise CutawayError(
            "{file}: pooling_type is {kind!r}, expected one of {known}",
            file=file,
            kind=kind,
            known=listed(map(str, _GGUF_POOLINGS)),
        )
    return SentenceSettings(pooling=_GGUF_POOLINGS[kind], source=file.name)


def read_settings(folder: Path) -> SentenceSettings:
    """The settings in the files of `folder`, or of a GGUF file; the defaults where there are none.

    Raises CutawayError naming the file for a step or a pooling that is not known here, or a malformed value.
    """
    if not (folder / MODULES).is_file():
        file = gguf_of(folder)
        return SentenceSettings() if file is None else _of_gguf(file)
    steps = _read_steps(folder)
    transformer, pooling = (_inside(folder, folder / step.path) for step in steps[:2])
    names = sorted(path.name for path in transformer.glob("sentence_*_config.json"))
    read = _read(_TransformerFile, folder, transformer / names[0]) if names else _TransformerFile()
    limit = read.max_seq_length
    # newer versions write it there
    if limit is None and (transformer / "tokenizer_config.json").is_file():
        limit = _read(_TokenizerFile, folder, transformer / "tokenizer_config.json").model_max_length
    if limit is not None and limit < 1:
        raise CutawayError(
            "{folder}: max_seq_length is {limit}, expected 1 or more", folder=transformer, limit=limit
        )
    file = pooling / "config.json"
    pooled = _read(_PoolingFile, folder, file)
    ways = pooled.ways()
    if len(ways) != 1 or ways[0] not in _POOLINGS:
        named = listed(map(repr, ways), say(" with "))
        raise CutawayError(
            "{file}: the pooling {ways} is not supported; supported: one of {known}",
            file=file,
            ways=named,
            known=listed(_POOLINGS),
        )
    beside = folder / "config_sentence_transformers.json"
    prompt = _read(_PromptFile, folder, beside).text(beside) if beside.is_file() else ""
    if prompt and not pooled.include_prompt:
        raise CutawayError(
            "{file}: include_prompt is false, which is not supported; set it to true", file=file
        )
    return SentenceSettings(
        _POOLINGS[ways[0]],
        len(steps) == len(_STEPS),
        None if limit is None else int(limit),
        bool(read.do_lower_case),
        prompt,
        MODULES,
    )


def _read_steps(folder: Path) -> list[_Step]:
    """The steps of `modules.json`, known ones in a known order."""
    file = folder / MODULES
    with about(file):
        entries = json_value(read_text(_inside(folder, file)))
    if not isinstance(entries, list):
        raise CutawayError(
            "{file}: expected a list of steps, got {kind}", file=file, kind=type(entries).__name__
        )
    steps = [_known(_Step, entry, f"{file}[{number}]") for number, entry in enumerate(entries)]
    kinds = [step.type.split(".") for step in steps]
    for step, kind in zip(steps, kinds, strict=True):
        if kind[0] != "sentence_transformers" or kind[-1] not in _STEPS:
            raise CutawayError(
                "{file}: the step {step!r} is not supported; supported: {known}",
                file=file,
                step=step.type,
                known=listed(_STEPS),
            )
    order = [kind[-1] for kind in kinds]
    if order not in (_STEPS[:2], _STEPS):
        raise CutawayError(
            "{file}: the steps are {steps}, expected {expected}",
            file=file,
            steps=listed(order) if order else say("none"),
            expected=listed(_STEPS),
        )
    return steps


def _read(cls: type[T], folder: Path, file: Path) -> T:
    return _known(cls, read_json(_inside(folder, file)), str(file))


def _known(cls: type[T], values: object, where: str) -> T:
    """The keys of `values` that `cls` has, checked."""
    assert dataclasses.is_dataclass(cls)
    if not isinstance(values, dict):
        raise CutawayError("{where}: expected an object, got {kind}", where=where, kind=type(values).__name__)
    names = {field.name for field in dataclasses.fields(cls)}
    return parse(cls, {key: value for key, value in values.items() if key in names}, where)


def _inside(folder: Path, path: Path) -> Path:
    """`path`, once it is clear that it does not lead out of `folder`."""
    shown = repr(str(path)[:_LONGEST])
    try:
        inside = is_within(folder, path)
        too_long = max(len(part.encode()) for part in path.parts) > _LONGEST
    # a NUL, a link to itself
    except (OSError, ValueError, RuntimeError) as error:
        raise CutawayError(
            "{folder}: {shown} is no path: {error}", folder=folder, shown=shown, error=error
        ) from error
    if not inside:
        raise CutawayError(
            "{folder}: {shown} leads out of the model folder; name a folder within it",
            folder=folder,
            shown=shown,
        )
    if too_long:
        raise CutawayError("{folder}: {shown} is too long for a path", folder=folder, shown=shown)
    return path
