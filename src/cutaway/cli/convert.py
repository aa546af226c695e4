"""`cutaway convert`: any model that opens, written as a Hugging Face folder."""

import json
import re
from enum import StrEnum
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Annotated

from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import note, tell, write_table
from cutaway.errors import CutawayError
from cutaway.words import told
from cutaway.zoo import find

if TYPE_CHECKING:
    import torch


class Dtype(StrEnum):
    """The type that weights are written in."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


SENTENCE_SETTINGS = (
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "[0-9]_*/config.json",
)  # fmt: skip
UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMG", start=1)
    for suffix, base in (("", 1000), ("B", 1000), ("IB", 1024))
}


@described(
    "Write a model as a Hugging Face folder: config.json, model.safetensors and tokenizer.json.\n\nWord vectors become "
    "a folder too, or by the ending of OUT a file for other tools: .bin and .vec (word2vec's), .txt (GloVe's)."
)
def convert(
    model: Annotated[str, argument("A bundled model's name, a model's folder, or a GGUF file.")],
    out: Annotated[Path, argument("The folder to write; it must be empty, or not be there yet.")],
    dtype: Annotated[
        Dtype | None, option("Type of the weights; not given: that of the file (float32 if quantised).")
    ] = None,
    shard_size: Annotated[
        str | None, option("Most weights in one file, such as 500MB; not given: one file for all.")
    ] = None,
    top: Annotated[
        int | None, option("Word vectors: keep only so many words, the first of the file.", min=2)
    ] = None,
    onto: Annotated[
        str | None, option("Word vectors: turn them onto those of another language, by --dictionary.")
    ] = None,
    dictionary: Annotated[
        Path | None, option("Of both languages: CC-CEDICT, or two words a line with a tab between.")
    ] = None,
) -> None:
    most = None if shard_size is None else size_in_bytes(shard_size)
    if out.exists() and not out.is_dir():
        raise CutawayError("{out}: a file that is already there; give a new name", out=out)
    if out.is_dir() and any(out.iterdir()):
        raise CutawayError("{out}: holds files already; give a new or an empty folder", out=out)
    if not out.absolute().parent.is_dir():
        raise CutawayError(
            "{out}: there is no folder {parent} to write to; make it first", out=out, parent=out.parent
        )
    path = find(model)

    import torch

    from cutaway.checkpoint.word_vectors import holds_vectors

    if holds_vectors(path):
        if shard_size is not None:
            raise CutawayError("word vectors are written as one file: leave --shard-size out")
        if (onto is None) != (dictionary is None):
            raise CutawayError(
                "--onto and --dictionary belong together: the other vectors, and words of both languages"
            )
        turn = None if onto is None or dictionary is None else (find(onto), dictionary)
        convert_vectors(path, out, None if dtype is None else getattr(torch, dtype), top, turn)
        return
    if onto is not None or dictionary is not None:
        raise CutawayError("--onto and --dictionary belong to word vectors: leave them out")
    if top is not None:
        raise CutawayError("--top belongs to word vectors: a model keeps all of its words")

    from cutaway.checkpoint.folder import load, open_contents, read_config, save
    from cutaway.checkpoint.parameters import unread

    contents = open_contents(path)
    left_out = unread(contents.tensors, read_config(contents)[1])
    loaded = load(path, dtype=None if dtype is None else getattr(torch, dtype))
    save(
        out,
        loaded.model,
        loaded.tokenizer,
        loaded.generation,
        shard_size=most,
        chat_template=loaded.chat_template,
    )
    copy_settings(path, out)
    files = sorted(file for file in out.rglob("*") if file.is_file())
    rows = [(str(file.relative_to(out)), f"{file.stat().st_size:,}") for file in files]
    write_table((told("file"), told("bytes")), rows, right=(1,))
    written = json.loads((out / "config.json").read_text(encoding="utf-8"))
    tell(
        "{out}: {kind}, {parameters:,} parameters, {type_of_weights}",
        out=out,
        kind=written["model_type"],
        parameters=sum(weight.numel() for weight in loaded.model.parameters()),
        type_of_weights=written["dtype"],
    )
    if left_out:
        names = f"{', '.join(left_out[:6])}{' …' if left_out[6:] else ''}"
        note(told("left out, since no forward pass here reads them: ") + names)
    if loaded.tokenizer is None:
        note("the model has no tokenizer, so none was written")


def convert_vectors(
    path: Path, out: Path, dtype: "torch.dtype | None", top: int | None, turn: tuple[Path, Path] | None
) -> None:
    """Word vectors as a folder, or by the ending of `out` as a file of another tool; turned onto those of another
    language by a dictionary where both are given."""
    from cutaway.checkpoint.word_vectors import (
        first_words,
        load_vectors,
        names_file,
        save_vectors,
        stored_type,
        turned,
    )  # fmt: skip

    if dtype is not None and names_file(out):
        raise CutawayError("a file for other tools holds float32: leave --dtype out, or write a folder")
    opened = load_vectors(path)
    for remark in opened.notes:
        note(remark)
    if top is not None:
        opened = first_words(opened, top)
    if turn is not None:
        from cutaway.inspection.bilingual import read_dictionary, rotation

        target = load_vectors(turn[0])
        opened = turned(opened, rotation(opened, target, read_dictionary(turn[1], opened, target)))
    save_vectors(out, opened.model, opened.words, dtype or stored_type(path))
    tell(
        "{out}: {count:,} vectors of {width} numbers",
        out=out,
        count=len(opened.words),
        width=opened.config.d_model,
    )


def size_in_bytes(text: str) -> int:
    """`500MB`, `1.5 GiB` or `1000000` as a number of bytes."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) *([KMG]?I?B?)", text.strip().upper())
    if match is None or match[2] not in UNITS or (size := int(float(match[1]) * UNITS[match[2]])) < 1:
        raise CutawayError("shard size is {text!r}, expected a size such as 500MB or 2GB", text=text)
    return size


def copy_settings(source: Path, out: Path) -> None:
    """What sentence-transformers reads beside a model: how its vectors are pooled."""
    from cutaway.files import inside

    for pattern in SENTENCE_SETTINGS:
        for file in sorted(source.glob(pattern)) if source.is_dir() else ():
            name = file.relative_to(source)
            (out / name).parent.mkdir(exist_ok=True)
            copyfile(inside(source, str(name)), out / name)
