"""The models that come with cutaway: each a Hugging Face folder with a model card beside its weights, and texts to try.

This module knows paths only; `cutaway.checkpoint` opens what it finds.
"""

import json
from pathlib import Path

from cutaway.errors import CutawayError, nearest
from cutaway.words import names_of

_HERE = Path(__file__).parent
TRANSLATOR, POET, MASKED = "translate-zh-en", "poet-zh", "bert-tiny"


VECTORS = (".bin", ".vec", ".txt")  # endings of files of word vectors


def bundled() -> list[Path]:
    """The folders of the bundled models, by name. Each holds a `config.json`."""
    return sorted(folder.parent for folder in _HERE.glob("*/config.json"))


def examples(name: str) -> list[dict[str, object]]:
    """Texts to try a bundled model on, the best first, each with options of the question `cover`, or words of bundled
    vectors, each with those of `analogy`: `text`, `options`. None for a model that is not bundled."""
    file = _HERE / name / "examples.json"
    if name not in (folder.name for folder in bundled()) or not file.is_file():
        return []
    return json.loads(file.read_text(encoding="utf-8"))


def find(name_or_path: str | Path) -> Path:
    """The folder of a model given by the name of a bundled one, or by its path, which may be a GGUF file or a file of
    word vectors too.

    A bundled name wins over a folder of that name in the working directory; write `./name` for the latter.

    Raises CutawayError when there is neither, naming the bundled models and the nearest of them, or when the
    path is another file, or a folder without `config.json` and without a GGUF file.
    """
    text = str(name_or_path)
    models = {folder.name: folder for folder in bundled()}
    if text in models:
        return models[text]
    path = Path(name_or_path).expanduser()
    if (path / "config.json").is_file() or any(path.glob("*.gguf")):
        return path
    if path.is_file() and Path(path.name.lower().removesuffix(".gz")).suffix in (".gguf", *VECTORS):
        return path
    if path.is_dir():
        raise CutawayError("{text}: a folder without config.json, expected a model's folder", text=text)
    if path.exists():
        raise CutawayError(
            "{text}: a file, expected a model's folder (with config.json and model.safetensors)", text=text
        )
    raise CutawayError(
        "no model {text!r}: neither a folder nor a bundled model{hint}; bundled: {names}",
        text=text,
        hint=nearest(text, models),
        names=names_of(models),
    )
