"""`cutaway tokenizer train`: learn a vocabulary from text."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.help import Command, Group, argument, described, option
from cutaway.cli.terminal import tell
from cutaway.errors import CutawayError
from cutaway.text.tokens.plan import Kind, Normalization

tokenizer = typer.Typer(cls=Group, no_args_is_help=True)


@tokenizer.callback()
@described("Learn vocabularies.")
def group() -> None:
    pass


@tokenizer.command(cls=Command)
@described(
    "Learn a vocabulary from text files and write it as a tokenizer.json, which transformers opens too."
)
def train(
    files: Annotated[list[Path], argument("Plain text files, one text a line; .gz is read too.")],
    out: Annotated[Path, option("Folder for tokenizer.json and tokenizer_config.json.", "--out", "-o")],
    kind: Annotated[Kind, option("What pieces are.")] = "bpe",
    vocab_size: Annotated[
        int, option("Number of ids in all; 0, for words and characters, keeps every one.", min=0)
    ] = 8000,
    language: Annotated[
        list[str] | None, option("Add a control token >>LANGUAGE<< (eng, zho); may be repeated.")
    ] = None,
    normalization: Annotated[Normalization, option("Unicode normal form of the text.")] = "none",
    lowercase: Annotated[bool, option("Fold the text to lower case.", "--lowercase")] = False,
    min_count: Annotated[int, option("How often a word or character must occur to be kept.", min=1)] = 2,
    force: Annotated[bool, option("Replace a tokenizer that is there already.", "--force")] = False,
) -> None:
    if (out / "tokenizer.json").exists() and not force:
        raise CutawayError(
            "{path} exists; give another --out, or --force to replace it", path=out / "tokenizer.json"
        )
    if out.exists() and not out.is_dir():
        raise CutawayError("{path}: a file, expected a folder to write to", path=out)

    from cutaway.text.tokens.tokenizer import Tokenizer

    learned = Tokenizer.train(
        files,
        kind,
        vocab_size or None,
        languages=language or [],
        normalization=normalization,
        lowercase=lowercase,
        min_count=min_count,
    )
    learned.save(out)
    tell(
        "{path}: {kind}, {size:,} ids, {controls} of them control tokens",
        path=out,
        kind=kind,
        size=learned.vocab_size,
        controls=len(learned.controls),
    )
    command = f'cutaway tokenize --tokenizer {out} "我爱机器学习"'
    tell("look at it: {command}", command=command)
