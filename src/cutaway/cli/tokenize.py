"""`cutaway tokenize`: a text as its pieces, ids, one-hot vectors and bytes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import note, tell, texts_from, write, write_table
from cutaway.text.display import visible
from cutaway.words import told
from cutaway.zoo import TRANSLATOR, bundled, find

if TYPE_CHECKING:
    from cutaway.text.tokens.tokenizer import Tokenizer


@described("Show how a text is cut into pieces: piece, id, the place of the 1 in its one-hot vector, bytes.")
def tokenize(
    text: Annotated[str | None, argument("The text; without it, lines from standard input.")] = None,
    tokenizer: Annotated[
        str,
        option("A bundled model, a folder with a tokenizer, its file, or a GGUF file.", "--tokenizer", "-t"),
    ] = TRANSLATOR,
) -> None:
    texts = texts_from(text)
    opened = open_tokenizer(tokenizer)
    for number, line in enumerate(texts):
        if number:
            write()
        _show(line, opened)


def open_tokenizer(name_or_path: str) -> "Tokenizer":
    """The tokenizer of a bundled model, of a folder, of a tokenizer's file or a GGUF file; what a reader should know of
    it is noted."""
    path = Path(name_or_path).expanduser()
    if name_or_path in {folder.name for folder in bundled()} or not path.exists():
        path = find(name_or_path)

    from cutaway.checkpoint.folder import open_tokenizer as opened

    tokenizer = opened(path)
    for remark in tokenizer.notes:
        note(remark)
    return tokenizer


def _show(text: str, tokenizer: "Tokenizer") -> None:
    """A row for every piece; the pieces of a character that was split stand under it, with its bytes."""
    encoding = tokenizer.encode(text)
    rows = []
    for group in encoding.characters:
        start, end = encoding.offsets[group[0]][0], encoding.offsets[group[-1]][1]
        covered = text[start:end]
        for place, index in enumerate(group):
            id = encoding.ids[index]
            shown = visible(covered) if place == 0 else "└" if place == len(group) - 1 else "│"
            split = covered.encode().hex(" ").upper() if place == 0 and len(group) > 1 else ""
            rows.append((shown, encoding.pieces[index], str(id), told("1 at {id}", id=id), split))
    long = f"{tokenizer.vocab_size:,}"
    headers = (
        told("text"),
        told("piece"),
        told("id"),
        told("one-hot, {long} long", long=long),
        told("bytes of a split character"),
    )
    write_table(headers, rows, right=(2,))
    points, size, pieces = len(text), len(text.encode()), len(encoding.ids)
    tell("code points: {points}, bytes: {size}, tokens: {pieces}", points=points, size=size, pieces=pieces)
