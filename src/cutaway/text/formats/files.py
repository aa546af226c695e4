"""Which tokenizer a model folder has, and every kind of it as a `tokenizer.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.files import read_json
from cutaway.text.formats import marian
from cutaway.text.formats import plain as vocabulary_files
from cutaway.text.formats import sentencepiece as sentencepiece_file
from cutaway.text.formats import tiktoken as tiktoken_file
from cutaway.text.formats.joint import JointVocabulary
from cutaway.text.rules import parts, unigram
from cutaway.text.rules.parts import Part

MOST_BYTES = 100_000_000  # three times the largest that is published
_SUFFIXES = (".json", ".txt", ".spm", ".model", ".bpe", ".tiktoken")
_SETTINGS = ("special_tokens_map.json", "tokenizer_config.json")
# Kind, names of its main file, and what must lie beside it; the first that fits is taken.
_KINDS = (
    ("json", "tokenizer.json", ()),
    ("marian", "source.spm", ("target.spm", "vocab.json")),
    ("m2m100", marian.BOTH, ("vocab.json",)),
    ("model", marian.BOTH, ()),
    ("model", "spiece.model", ()),
    ("model", "tokenizer.model", ()),
    ("bpe", "vocab.json", ("merges.txt",)),
    ("bpe", "encoder.json", ("vocab.bpe",)),
    ("wordpiece", "vocab.txt", ()),
    ("model", "*.tiktoken", ()),
    ("model", "*.spm", ()),
    ("model", "*.model", ()),
    ("model", "*.model.v[0-9]*", ()),
)
EXPECTED = (
    "tokenizer.json, a SentencePiece model, source.spm with target.spm and vocab.json, vocab.json with merges.txt, "
    "vocab.txt, or a tiktoken file"
)


@dataclass(frozen=True)
class Opened:
    """What a `Tokenizer` is made of."""

    source: str  # the text of a tokenizer.json
    settings: dict[str, object]
    where: str
    joint: JointVocabulary | None = None


def find(path: Path) -> tuple[str, Path] | None:
    """Kind and main file of the tokenizer in a folder, or of the file itself; None without one."""
    folder = path if path.is_dir() else path.parent
    names = sorted(file.name for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    candidates = names if path.is_dir() else [path.name] if path.is_file() else []
    for kind, pattern, beside in _KINDS:
        if not all(name in names for name in beside):
            continue
        for name in candidates:
            if fnmatchcase(name, pattern):
                kind = _kind_of_model(folder / name, pattern) if kind == "model" else kind
                if kind is not None:
                    return kind, folder / name
    return ("json", path) if candidates and not path.is_dir() else None


def _kind_of_model(file: Path, pattern: str) -> str | None:
    """What stands in a file of that name, which says little; None for a stranger in the folder."""
    if tiktoken_file.fits(file):
        return "tiktoken"
    return "sentencepiece" if sentencepiece_file.fits(file) or "*" not in pattern else None


def read(path: Path) -> Opened:
    """Read the tokenizer of a folder, or one file. CutawayError naming the file and what is wrong with it."""
    found = find(path)
    if found is None:
        folder = path if path.is_dir() else path.parent
        beside = sorted(other.name for other in folder.iterdir()) if folder.is_dir() else []
        holds = f"; the folder holds {', '.join(beside[:8])}" if beside else ""
        raise CutawayError(
            "{path}: no tokenizer there (expected {expected}){holds}",
            path=path,
            expected=EXPECTED,
            holds=holds,
        )
    kind, file = found
    for each in [file] if file == path else sorted(file.parent.glob("*")):
        if each.suffix in _SUFFIXES and each.stat().st_size > MOST_BYTES:
            raise CutawayError(
                "{each}: {st_size:,} bytes, expected a tokenizer's file of at most {most_bytes:,}",
                each=each,
                st_size=each.stat().st_size,
                most_bytes=MOST_BYTES,
            )
    settings: dict[str, object] = {}
    for name in _SETTINGS:
        if (file.parent / name).is_file():
            settings |= read_json(file.parent / name)
    if kind == "json":
        try:
            return Opened(file.read_bytes().decode("utf-8-sig"), settings, str(file))
        except UnicodeDecodeError as error:
            raise CutawayError(
                "{file}: not UTF-8 at byte {start}, expected a JSON file", file=file, start=error.start
            ) from error
    if kind == "marian":
        source, joint = marian.read(file.parent)
        return Opened(source, settings, str(file), joint)
    if kind == "m2m100":
        languages = sentencepiece_file.further_controls(settings)
        source, joint = marian.read_m2m100(file.parent, languages)
        return Opened(source, settings, str(file), joint)
    reader = {
        "tiktoken": tiktoken_file.read,
        "sentencepiece": sentencepiece_file.read,
        "bpe": vocabulary_files.read_bpe,
        "wordpiece": vocabulary_files.read_wordpiece,
    }[kind]
    description, roles = reader(file, settings)
    if not any(f"{role}_token" in settings for role in roles):
        settings = {f"{role}_token": content for role, content in roles.items()} | settings
    description = _with_added(description, settings, file)
    # A tokenizer.json holds all rules; the published class would make up its own.
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    model = description["model"]
    assert isinstance(model, dict)
    if kind == "sentencepiece" and model["type"] == "Unigram":
        settings[unigram.SETTING] = True
    if kind == "wordpiece":
        settings.setdefault("model_input_names", ["input_ids", "token_type_ids", "attention_mask"])
    return Opened(json.dumps(description), settings, str(file))


def _with_added(description: Part, settings: Mapping[str, object], file: Path) -> Part:
    """The description with the tokens that `tokenizer_config.json` or `added_tokens.json` adds."""
    added: dict[int, Part] = {}
    known = description["added_tokens"]
    assert isinstance(known, list)
    for token in known:
        added[token["id"]] = token
    for id, token in _listed(settings, file).items():
        content = token["content"]
        taken = next(
            (other for other, each in added.items() if each["content"] == content and other != id), None
        )
        if taken is not None:
            raise CutawayError(
                "{parent}: added token {content!r} has id {id}, in {name} it has {taken}",
                parent=file.parent,
                content=content,
                id=id,
                name=file.name,
                taken=taken,
            )
        added[id] = token
    return {**description, "added_tokens": [added[id] for id in sorted(added)]}


def _listed(settings: Mapping[str, object], file: Path) -> dict[int, Part]:
    listed: dict[int, Part] = {}
    beside = file.parent / "added_tokens.json"
    if beside.is_file():
        for content, id in read_json(beside).items():
            listed[_id(id, content, beside)] = parts.added_token(_id(id, content, beside), content)
    decoder = settings.get("added_tokens_decoder", {})
    where = file.parent / "tokenizer_config.json"
    if not isinstance(decoder, dict):
        raise CutawayError(
            "{where}: added_tokens_decoder is {name}, expected an object",
            where=where,
            name=type(decoder).__name__,
        )
    for key, token in decoder.items():
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not content:
            raise CutawayError("{where}: added_tokens_decoder[{key!r}] has no content", where=where, key=key)
        id = _id(int(key) if key.isdecimal() else None, content, where)
        flags = {name: token.get(name, default) for name, default in _FLAGS.items()}
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise CutawayError(
                "{where}: added_tokens_decoder[{key!r}]: expected true or false in {flags}",
                where=where,
                key=key,
                flags=", ".join(flags),
            )
        listed[id] = {"id": id, "content": content, **flags}
    return listed


_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}


def _id(value: object, content: str, where: Path) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**24:
        raise CutawayError(
            "{where}: added token {content!r} has id {value!r}, expected a whole number",
            where=where,
            content=content,
            value=value,
        )
    return value
