"""`cutaway tokenizer train`: learn a vocabulary from text."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.errors import CutawayError
from cutaway.text.plan import Kind, Normalization

tokenizer = typer.Typer(help="Learn vocabularies.", no_args_is_help=True)


@tokenizer.callback()
def group() -> None:
    """Learn vocabularies."""


@tokenizer.command()
def train(
    files: Annotated[list[Path], typer.Argument(help="Plain text files, one text a line; .gz is read too.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for tokenizer.json and tokenizer_config.json.")
    ],
    kind: Annotated[Kind, typer.Option(help="What pieces are.")] = "bpe",
    vocab_size: Annotated[
        int, typer.Option(min=0, help="Number of ids in all; 0, for words and characters, keeps every one.")
    ] = 8000,
    language: Annotated[
        list[str] | None, typer.Option(help="Add a control token >>LANGUAGE<< (eng, zho); may be repeated.")
    ] = None,
    normalization: Annotated[Normalization, typer.Option(help="Unicode normal form of the text.")] = "none",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Fold the text to lower case.")] = False,
    min_count: Annotated[
        int, typer.Option(min=1, help="How often a word or character must occur to be kept.")
    ] = 2,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a tokenizer that is there already.")
    ] = False,
) -> None:
    """Learn a vocabulary from text files and write it as a tokenizer.json, which transformers opens too."""
    if (out / "tokenizer.json").exists() and not force:
        raise CutawayError(f"{out / 'tokenizer.json'} exists; give another --out, or --force to replace it")
    if out.exists() and not out.is_dir():
        raise CutawayError(f"{out}: a file, expected a folder to write to")

    from cutaway.text.tokenizer import Tokenizer

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
    typer.echo(f"{out}: {kind}, {learned.vocab_size:,} ids, {len(learned.controls)} of them control tokens")
    typer.echo(f'look at it: cutaway tokenize --tokenizer {out} "我爱机器学习"')
