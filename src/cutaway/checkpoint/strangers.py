"""What other tools' files and folders are, and what to do about them: nothing here is opened as a model."""

from collections.abc import Mapping
from pathlib import Path

from cutaway.errors import brief
from cutaway.files import read_inside
from cutaway.words import Phrase, names_of, say

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npz", ".npy")
_ADAPTER = "adapter_config.json"
_LLAMA2_C = 7  # whole numbers of four bytes, all sizes, at the beginning of a file
_SHOWN = 5


def about_file(path: Path) -> Phrase | None:
    """What to do about weights that are not read; None for a file that is none, by its name."""
    if path.suffix.lower() not in PICKLES:
        return None
    with path.open("rb") as file:
        start = file.read(64)
    if b"Spec\0" in start:
        return say(
            "{name} is a model of CTranslate2, whose numbers are laid out for it alone: open the model that it was "
            "converted from",
            name=path.name,
        )
    if start.startswith(b"24ka") or _are_sizes(start):
        return say(
            "{name} is a model of llama2.c: write it as a Hugging Face folder first (its export.py does, version -1)",
            name=path.name,
        )
    if start[:4] in (b"lmgg", b"fmgg", b"tjgg"):
        return say(
            "{name} is a GGML file, the form before GGUF: take or make a GGUF file of the model",
            name=path.name,
        )
    return say(
        "{name} is a pickle, which can run code and is not opened: convert it to safetensors first "
        "(if you trust it, open it with the library that wrote it; transformers writes a model with save_pretrained)",
        name=path.name,
    )


def _are_sizes(start: bytes) -> bool:
    numbers = [
        int.from_bytes(start[place : place + 4], "little", signed=True)
        for place in range(0, 4 * _LLAMA2_C, 4)
    ]
    dim, hidden, layers, heads, kv_heads, vocabulary, length = numbers
    plausible = 0 < layers < 1000 and 0 < kv_heads <= heads <= dim < 100_000 and dim % heads == 0
    return plausible and hidden > 0 and 0 < abs(vocabulary) < 10**7 and 0 < length < 10**7


def about_folder(folder: Path) -> Phrase | None:
    """What to do about a folder without a config.json that some tool is known to make; None for any other."""
    if (folder / _ADAPTER).is_file():
        base = read_inside(folder, _ADAPTER).get("base_model_name_or_path")
        return say(
            "it holds an adapter and not a model: merge it into its base model {base} first (peft's merge_and_unload, "
            "then save_pretrained)",
            base=brief(base),
        )
    for place, pattern in ((folder / "snapshots", "*"), (folder, "models--*"), (folder / "hub", "models--*")):
        found = sorted(str(each.relative_to(folder)) for each in place.glob(pattern) if each.is_dir())
        if found and pattern == "*":
            return say(
                "it is a download of Hugging Face's: give the folder of a version in it, {names}",
                names=names_of(found[:_SHOWN]),
            )
        if found:
            first = f"{found[0]}/snapshots/…"
            return say(
                "it is a cache of downloads: give a version of one of its models, such as {name}",
                name=first,
            )
    return None


def quantised_by(config: Mapping[str, object]) -> str | None:
    """How the weights of a config.json are quantised, None for plain ones."""
    given = config.get("quantization_config")
    if not isinstance(given, Mapping) or not given:
        return None
    return brief(given.get("quant_method", "?"))
