"""Opening and saving a model: a folder in Hugging Face's layout (config.json, safetensors, tokenizer.json and what
belongs to them), or a GGUF file.

Everything about a model's files is untrusted. Sizes are compared before memory is taken for them, pickles are refused,
and no code from a folder is ever run, whatever its config asks for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import torch

from cutaway.checkpoint.generation_keys import with_older
from cutaway.checkpoint.gguf_file import read_header
from cutaway.checkpoint.gguf_model import read_gguf
from cutaway.checkpoint.parameters import as_stored, fill, spread
from cutaway.checkpoint.published import OWN_TYPE, architecture_for, architecture_of
from cutaway.checkpoint.stored import Contents
from cutaway.checkpoint.strangers import about_file, about_folder, quantised_by
from cutaway.checkpoint.table import Architecture
from cutaway.checkpoint.weights import WEIGHTS, found_in, open_weights, write_weights
from cutaway.checkpoint.word_vectors import TYPE as VECTORS_TYPE
from cutaway.config import ModelConfig, parse, to_dict
from cutaway.errors import CutawayError, about, brief
from cutaway.files import check_links, inside, read_inside, read_text, write_json
from cutaway.models.build import Model, skeleton
from cutaway.text.tokens.gguf_vocabulary import from_gguf
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Phrase, names_of, say

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
TEMPLATE = "chat_template.jinja"
NAMELESS = ("model", "checkpoint", "weights")  # folder names that tell nothing
MOST_TEMPLATE_BYTES = 1_000_000
MOST_TABLE = 1_000_000  # numbers of a table of positions, whatever the weights; else an eighth of theirs


@dataclass(frozen=True, repr=False)
class Loaded:
    """An opened model. `generation` is its generation_config.json, with what config.json alone says of the same things,
    empty when there is neither; `path` the folder or file that it came from."""

    model: Model
    config: ModelConfig
    tokenizer: Tokenizer | None
    generation: Mapping[str, object]
    path: Path
    chat_template: str | None = None  # Jinja, untrusted

    @property
    def name(self) -> str:
        """What to call it: its folder's name, that of the folder above where the former says nothing (`model`), or its
        file's without the ending."""
        place = self.path.absolute()
        if place.is_file():
            return place.stem
        return place.parent.name if place.name in NAMELESS and place.parent.name else place.name

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return f"<{self.name}: {self.config.family} model of {parameters:,} parameters, from {self.path}>"

    def require_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise CutawayError(
                "{path}: no tokenizer there, so text cannot be read or written; "
                "lay the model's tokenizer.json or vocabulary files beside it",
                path=self.path,
            )
        return self.tokenizer


def load(path: Path | str, dtype: torch.dtype | None = torch.float32) -> Loaded:
    """Open a model's folder or GGUF file, ready for inference, its weights in `dtype`; None: as the files have them.

    Memory is taken for the weights once, and for one tensor beside them. The files may change or go afterwards.
    Raises CutawayError naming the file and what is wrong with it. Nothing from the folder is ever run.
    """
    contents = open_contents(path)
    config, architecture = read_config(contents)
    model = skeleton(config)
    kept, ends = contents.weights_type() if dtype is None else dtype, contents.config.get("eos_token_id")
    fill(model, architecture, contents.tensors, contents.weights_file, kept)
    return Loaded(
        model=model.eval(),
        config=config,
        tokenizer=contents.tokenizer,
        # The model's config keeps one end; where the file's has several, all of them end a text.
        generation={**({"eos_token_id": ends} if isinstance(ends, list) else {}), **contents.generation},
        path=Path(path),
        chat_template=contents.chat_template,
    )


def save(
    path: Path | str,
    model: Model,
    tokenizer: Tokenizer | None = None,
    generation: Mapping[str, object] | None = None,
    dtype: torch.dtype | None = None,
    shard_size: int | None = None,
    chat_template: str | None = None,
) -> None:
    """Write a model folder that `load`, and where the architecture is a published one `transformers`, opens.

    `dtype` None keeps the weights' own type; with `shard_size`, weights of more bytes are written as several files of
    at most that size. The folder is made; files in it of the same name, and weights that lay there, are replaced.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config
    architecture = architecture_for(config)
    kept = dtype or next(model.parameters()).dtype
    if kept not in DTYPES:
        known = ", ".join(DTYPES.values())
        raise CutawayError("weights are written as {known}, not as {dtype}", known=known, dtype=kept)
    values: dict[str, object] = {"model_type": OWN_TYPE, **to_dict(config)}
    if architecture is not None:
        values = architecture.write_config(config)
    values["dtype"] = DTYPES[kept]
    # first, so that a folder whose weights were refused is none that opens
    write_weights(folder, spread(model, architecture), kept, shard_size)
    write_json(folder / "config.json", values)
    ids = {role: getattr(config, f"{role}_id") for role in ("pad", "bos", "eos", "decoder_start")}
    defaults = {f"{role}_token_id": id for role, id in ids.items() if id is not None}
    write_json(folder / "generation_config.json", {**defaults, **(generation or {})})
    if tokenizer is not None:
        tokenizer.save(folder)
    if chat_template is not None:
        (folder / TEMPLATE).write_text(chat_template, encoding="utf-8", newline="\n")


def open_contents(path: Path | str) -> Contents:
    """What a model's folder, a GGUF file, or a folder with one GGUF file holds; of the weights, the headers only.

    Raises CutawayError naming the file and what is wrong with it.
    """
    path = Path(path)
    if path.is_dir():
        found = gguf_of(path)
        if found is None:
            return _open_folder(path)
        path = found
    if not path.is_file():
        raise CutawayError(
            "{path}: no such model folder; "
            "give a folder with config.json, a GGUF file or a bundled model (cutaway models lists them)",
            path=path,
        )
    if path.suffix.lower() != ".gguf":
        advice = about_file(path) or say("give the folder that it lies in: {folder}", folder=path.parent)
        raise CutawayError(
            "{path}: a file, expected a model's folder or a GGUF file; {advice}", path=path, advice=advice
        )
    return read_gguf(path)


def gguf_of(path: Path) -> Path | None:
    """The GGUF file that a path names: itself, or the one in a folder without other weights. None where there is none.

    Raises CutawayError for a folder with several.
    """
    if not path.is_dir():
        return path if path.suffix.lower() == ".gguf" and path.is_file() else None
    found = sorted(file.name for file in path.iterdir() if file.suffix.lower() == ".gguf")
    if found_in(path) or not found:
        return None
    if len(found) > 1:
        raise CutawayError(
            "{path}: holds {count} GGUF files; give one of them: {names}",
            path=path,
            count=len(found),
            names=names_of(found[:9]),
        )
    return inside(path, found[0])


def open_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer of a folder, a tokenizer's file, or a GGUF file, of which no tensor is looked at.

    Raises CutawayError naming the file and what is wrong with it.
    """
    path = Path(path)
    found = None if path.is_dir() and Tokenizer.found_in(path) else gguf_of(path)
    return Tokenizer.open(path) if found is None else from_gguf(read_header(found).metadata, str(found))


def _open_folder(folder: Path) -> Contents:
    if not (folder / "config.json").exists() and (advice := about_folder(folder)):
        raise CutawayError("{folder}: no model there; {advice}", folder=folder, advice=advice)
    config = read_inside(folder, "config.json")
    if config.get("model_type") == VECTORS_TYPE:
        raise CutawayError(
            "{folder}: word vectors, and no model that reads texts; ask them with cutaway inspect neighbours, analogy, "
            "similarity or projection, or open them with load_vectors",
            folder=folder,
        )
    check_links(folder, [path for path in folder.iterdir() if path.is_symlink() and path.is_file()])
    if not found_in(folder) and (advice := _about_weights(folder)):
        raise CutawayError(
            "{folder}: {name} is missing; {advice}", folder=folder, name=WEIGHTS, advice=advice
        )
    tensors, weights_file = open_weights(folder)
    return Contents(
        config=config,
        config_file=str(folder / "config.json"),
        tensors=tensors,
        weights_file=weights_file,
        tokenizer=Tokenizer.open(folder) if Tokenizer.found_in(folder) else None,
        generation=with_older(read_inside(folder, "generation_config.json", optional=True), config),
        chat_template=_chat_template(folder),
    )


def _about_weights(folder: Path) -> Phrase | None:
    """What to do about a folder whose weights are not read."""
    advice = (about_file(file) for file in sorted(folder.iterdir()) if file.is_file())
    return next(filter(None, advice), None) or about_folder(folder)


def _chat_template(folder: Path) -> str | None:
    """chat_template.jinja, else what tokenizer_config.json has: one text, or named ones, of which `default`."""
    if (folder / TEMPLATE).exists():
        path = inside(folder, TEMPLATE)
        if path.stat().st_size > MOST_TEMPLATE_BYTES:
            raise CutawayError(
                "{path}: too large, expected at most {most:,} bytes", path=path, most=MOST_TEMPLATE_BYTES
            )
        return read_text(path)
    given = read_inside(folder, "tokenizer_config.json", optional=True).get("chat_template")
    if isinstance(given, list):
        named = {entry.get("name"): entry.get("template") for entry in given if isinstance(entry, dict)}
        given = named.get("default")
    if given is not None and not isinstance(given, str):
        path, value = folder / "tokenizer_config.json", brief(given)
        raise CutawayError("{path}: chat_template is {value}, expected a text", path=path, value=value)
    return given


def read_config(contents: Contents) -> tuple[ModelConfig, Architecture | None]:
    """The config of a checkpoint and its architecture, None for one of our own.

    Raises CutawayError for a key that is missing, wrong or not supported, and for sizes that what lies beside the
    config belies: nothing that big need be built to find out.
    """
    with about(contents.config_file):
        if method := quantised_by(contents.config):
            raise CutawayError(
                "the weights are quantised by {method}, which is not read; expected plain ones: take the model that "
                "they were made of, or a GGUF file of it",
                method=method,
            )
        architecture = architecture_of(contents.config, contents.tensors)
        if architecture is None:
            own = {key: value for key, value in contents.config.items() if key not in ("model_type", "dtype")}
            config = parse(ModelConfig, own, contents.config_file)
        else:
            config = architecture.read_config(contents.config, contents.config_file)
            config = as_stored(config, architecture, contents.tensors, contents.weights_file)
        _check_sizes(config, contents)
    return _with_roles(config, contents), architecture


def _with_roles(config: ModelConfig, contents: Contents) -> ModelConfig:
    """The config of a model that writes, with the tokenizer's beginning and end where it names none itself and does not
    say null; of a BERT's vocabulary those of a sentence."""
    tokenizer = contents.tokenizer
    if tokenizer is None or config.family == "encoder-only":
        return config
    ids = {"bos": config.bos_id, "eos": config.eos_id}
    for name, of_sentence in (("bos", "cls"), ("eos", "sep")):
        named = [id for role in (name, of_sentence) if (id := tokenizer.role(role)) is not None]
        if ids[name] is None and contents.config.get(f"{name}_token_id", "absent") is not None and named:
            ids[name] = named[0]
    return replace(config, bos_id=ids["bos"], eos_id=ids["eos"])


def _check_sizes(config: ModelConfig, contents: Contents) -> None:
    encoder_layers = config.encoder_layers if config.family == "encoder-decoder" else 0
    experts = config.n_experts * (config.n_layers - len(config.dense_layers))
    n_parts = config.n_layers + encoder_layers + experts
    if n_parts > len(contents.tensors):
        raise CutawayError(
            "asks for {parts:,} layers and experts, but {file} has only {tensors:,} tensors; "
            "one of the two files belongs to another model",
            parts=n_parts,
            file=contents.weights_file,
            tensors=len(contents.tensors),
        )
    rows = config.max_len + config.position_offset if config.position == "sinusoidal" else 0
    held = sum(prod(stored.shape) for stored in contents.tensors.values())
    if rows * config.d_model > max(held // 8, MOST_TABLE):
        raise CutawayError(
            "a table of {positions:,} positions has {numbers:,} numbers, expected a small part of those of the "
            "weights ({held:,})",
            positions=config.max_len,
            numbers=rows * config.d_model,
            held=held,
        )
    pieces = contents.tokenizer.vocab_size if contents.tokenizer is not None else 0
    rows = min(config.vocab_size, config.encoder_side.vocab_size)
    if pieces > rows:
        raise CutawayError(
            "vocab_size is {size}, but the tokenizer has {pieces} pieces; "
            "the tokenizer belongs to another model: take that of this one",
            size=rows,
            pieces=pieces,
        )
