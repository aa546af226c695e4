"""`cutaway models`: what is bundled."""

import json
import re
from math import prod
from pathlib import Path

from cutaway.cli.help import described
from cutaway.cli.terminal import write, write_table
from cutaway.words import reader_locale, said, say, told
from cutaway.zoo import bundled

MEASURES = {  # what the cards of the bundled models call them
    "loss per hidden piece": say("loss per hidden piece"),
    "loss per character": say("loss per character"),
    "bits per byte": say("bits per byte"),
    "analogies": say("analogies"),
    "family analogies": say("family analogies"),
    "CA8 semantic": say("CA8 semantic"),
    "CA8 morphological": say("CA8 morphological"),
}


@described("List the bundled models: name, family, parameters, size on disk, scores from the model card.")
def models() -> None:
    folders = bundled()
    if not folders:
        write(told("no model is bundled; train one: ") + "cutaway train recipes/translate-zh-en.toml")
        return
    from cutaway.inspection.terms import FAMILIES

    rows = []
    for folder in folders:
        size = sum(file.stat().st_size for file in folder.iterdir())
        scores = "\n".join(card_scores(folder)) or told("none in its card")
        kind = said(FAMILIES[family(folder)], reader_locale())
        rows.append((folder.name, kind, f"{parameters(folder):,}", f"{size / 1e6:.1f}", scores))
    headers = (told("name"), told("family"), told("parameters"), "MB", told("scores"))
    write_table(headers, rows, right=(2, 3))


def family(folder: Path) -> str:
    """`encoder-decoder`, `decoder-only`, `encoder-only` or `word2vec`, read off the checkpoint's config.json."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") == "word2vec":
        return "word2vec"
    if config.get("is_encoder_decoder"):
        return "encoder-decoder"
    return "encoder-only" if "MaskedLM" in " ".join(config.get("architectures", ())) else "decoder-only"


def parameters(folder: Path) -> int:
    """The number of parameters in the folder's safetensors files, read off their headers."""
    total = 0
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        total += sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return total


def card_scores(folder: Path) -> list[str]:
    """The rows of the table under `## Scores` in the model card, their cells joined by spaces, measures in the
    reader's language."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    section = re.search(r"^## Scores\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    lines = section[1].splitlines() if section else []
    rows = [line.strip().strip("|").split("|") for line in lines if line.strip().startswith("|")]
    named = [
        [said(MEASURES.get(cell.strip(), cell.strip()), reader_locale()) for cell in cells] for cells in rows
    ]
    # after the head and its rule
    return [" ".join(cells) for cells in named[2:]]
