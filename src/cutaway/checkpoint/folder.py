"""A model folder in Hugging Face's layout: config.json, model.safetensors, tokenizer.json and what belongs to them."""

import json
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save_file

from cutaway.checkpoint.bert import BERT
from cutaway.checkpoint.gpt2 import GPT2
from cutaway.checkpoint.llama import LLAMA
from cutaway.checkpoint.marian import M2M100, MARIAN
from cutaway.checkpoint.table import Architecture, Stored, aliases
from cutaway.config import ModelConfig, parse, read_json, to_dict
from cutaway.errors import CutawayError, nearest
from cutaway.models.build import Model, build
from cutaway.text.tokenizer import Tokenizer

ARCHITECTURES = {a.model_type: a for a in (MARIAN, M2M100, LLAMA, GPT2, BERT)}
OWN_TYPE = "cutaway"  # for models that no published architecture can express
WEIGHTS = "model.safetensors"
DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


@dataclass(frozen=True)
class Loaded:
    """An opened model folder. `generation` is its generation_config.json, empty when there is none."""

    model: Model
    config: ModelConfig
    tokenizer: Tokenizer | None
    generation: dict[str, object]
    path: Path

    def require_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise CutawayError(f"{self.path}: no tokenizer.json there, so text cannot be read or written")
        return self.tokenizer


def load(path: Path | str, dtype: torch.dtype = torch.float32) -> Loaded:
    """Open a model folder, ready for inference, its weights in `dtype`.

    Raises CutawayError naming the file and what is wrong with it. Nothing from the folder is ever run.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise CutawayError(f"{folder}: no such model folder")
    values = read_json(_inside(folder, "config.json"))
    config, architecture = _read_config(values, str(folder / "config.json"))
    model = build(config)
    tensors, keep_open = _stored(_inside(folder, WEIGHTS))
    with keep_open:
        if architecture is None:
            _fill_own(model, tensors, str(folder / WEIGHTS))
        else:
            architecture.fill(model, tensors, str(folder / WEIGHTS))
    generation = folder / "generation_config.json"
    tokenizer = Tokenizer.open(folder) if (folder / "tokenizer.json").exists() else None
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise CutawayError(
            f"{folder}: tokenizer.json has {tokenizer.vocab_size} pieces, "
            f"but config.json says vocab_size {config.vocab_size}"
        )
    return Loaded(
        model=model.to(dtype).eval(),
        config=config,
        tokenizer=tokenizer,
        generation=read_json(generation) if generation.exists() else {},
        path=folder,
    )


def save(
    path: Path | str,
    model: Model,
    tokenizer: Tokenizer | None = None,
    generation: dict[str, object] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a model folder that `load`, and where the architecture is a published one `transformers`, opens.

    `dtype` None keeps the weights' own type. The folder is made; files in it of the same name are replaced.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config
    architecture = architecture_for(config)
    kept = dtype or next(model.parameters()).dtype
    if architecture is None:
        values: dict[str, object] = {"model_type": OWN_TYPE, **to_dict(config)}
        tensors = {names[0]: model.get_parameter(names[0]).detach() for names in aliases(model)}
    else:
        values, tensors = architecture.write_config(config), architecture.spread(model)
    values["dtype"] = DTYPES[kept]
    _write_json(folder / "config.json", values)
    stored = {name: tensor.to("cpu", kept).contiguous().clone() for name, tensor in tensors.items()}
    save_file(stored, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / WEIGHTS).chmod(
        (folder / "config.json").stat().st_mode
    )  # safetensors writes for the owner alone
    ids = {"pad": config.pad_id, "bos": config.bos_id, "eos": config.eos_id}
    defaults: dict[str, object] = {f"{role}_token_id": i for role, i in ids.items() if i is not None}
    if config.decoder_start_id is not None:
        defaults["decoder_start_token_id"] = config.decoder_start_id
    _write_json(folder / "generation_config.json", defaults | (generation or {}))
    if tokenizer is not None:
        tokenizer.save(folder)


def architecture_for(config: ModelConfig) -> Architecture | None:
    """The published architecture that says everything this config says, or None when none does."""
    return next((a for a in ARCHITECTURES.values() if a.expresses(config)), None)


def _read_config(values: dict[str, object], where: str) -> tuple[ModelConfig, Architecture | None]:
    kind = values.get("model_type")
    if kind == OWN_TYPE:
        own = {key: value for key, value in values.items() if key not in ("model_type", "dtype")}
        return parse(ModelConfig, own, where), None
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        known = [*ARCHITECTURES, OWN_TYPE]
        raise CutawayError(
            f"{where}: model_type is {kind!r}{nearest(str(kind), known)}; supported: {', '.join(known)}"
        )
    architecture = ARCHITECTURES[kind]
    return architecture.read_config(values, where), architecture


def _stored(path: Path):
    """The tensors of a safetensors file, read when asked for, and what to close afterwards."""
    try:
        opened = safetensors.safe_open(path, framework="pt")
        names = list(opened.keys())
    except (safetensors.SafetensorError, OSError) as error:
        raise CutawayError(f"{path}: not a whole safetensors file: {error}") from error
    return {name: Stored(lambda name=name: opened.get_tensor(name)) for name in names}, opened


def _fill_own(model: Model, tensors: dict[str, Stored], where: str) -> None:
    names = {group[0] for group in aliases(model)}
    if missing := sorted(names - set(tensors)):
        raise CutawayError(f"{where}: tensor {missing[0]} is missing")
    if left := sorted(set(tensors) - names):
        raise CutawayError(f"{where}: tensor {left[0]!r} belongs to no part of this model")
    for name in names:
        target, value = model.get_parameter(name), tensors[name].read()
        if value.shape != target.shape:
            raise CutawayError(
                f"{where}: tensor {name!r} has the shape {list(value.shape)}, "
                f"the config asks for {list(target.shape)}"
            )
        with torch.no_grad():
            target.copy_(value)


def _inside(folder: Path, name: str) -> Path:
    """`folder/name`, which must exist there and not lead out of the folder by a link."""
    path = folder / name
    if not path.is_file():
        pickles = [p.name for p in folder.glob("*.bin")] + [p.name for p in folder.glob("*.pt")]
        advice = (
            f"; {pickles[0]} is a pickle, which can run code and is not opened: convert it to safetensors first"
            if name == WEIGHTS and pickles
            else ""
        )
        raise CutawayError(f"{folder}: {name} is missing{advice}")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise CutawayError(f"{path}: leads out of the model folder")
    return path


def _write_json(path: Path, values: dict[str, object]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
