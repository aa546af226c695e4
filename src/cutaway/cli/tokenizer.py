"""`cutaway tokenizer train`: learn a vocabulary from text."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.help import Command, Group, in_chinese
from cutaway.errors import CutawayError
from cutaway.page.locale import told
from cutaway.text.plan import Kind, Normalization

tokenizer = typer.Typer(cls=Group, no_args_is_help=True)


@tokenizer.callback()
@in_chinese("学词表。")
def group() -> None:
    """Learn vocabularies."""


@tokenizer.command(cls=Command)
@in_chinese("从文本文件学出一个词表，写成 tokenizer.json，transformers 也能打开。")
def train(
    files: Annotated[
        list[Path],
        typer.Argument(
            help=told(
                "Plain text files, one text a line; .gz is read too.",
                "纯文本文件，每行一段文字；也能读 .gz。",
            )
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help=told(
                "Folder for tokenizer.json and tokenizer_config.json.",
                "存放 tokenizer.json 和 tokenizer_config.json 的文件夹。",
            ),
        ),
    ],
    kind: Annotated[Kind, typer.Option(help=told("What pieces are.", "词块是什么。"))] = "bpe",
    vocab_size: Annotated[
        int,
        typer.Option(
            min=0,
            help=told(
                "Number of ids in all; 0, for words and characters, keeps every one.",
                "编号总数；按词或按字切分时可为 0，即全部保留。",
            ),
        ),
    ] = 8000,
    language: Annotated[
        list[str] | None,
        typer.Option(
            help=told(
                "Add a control token >>LANGUAGE<< (eng, zho); may be repeated.",
                "加一个控制词块 >>LANGUAGE<<（如 eng、zho）；可多次给出。",
            )
        ),
    ] = None,
    normalization: Annotated[
        Normalization,
        typer.Option(help=told("Unicode normal form of the text.", "文字采用的 Unicode 规范化形式。")),
    ] = "none",
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help=told("Fold the text to lower case.", "把文字统一成小写。"))
    ] = False,
    min_count: Annotated[
        int,
        typer.Option(
            min=1,
            help=told("How often a word or character must occur to be kept.", "词或字至少出现几次才保留。"),
        ),
    ] = 2,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help=told("Replace a tokenizer that is there already.", "覆盖已有的分词器。")
        ),
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
    size, controls = f"{learned.vocab_size:,}", len(learned.controls)
    typer.echo(
        told(
            f"{out}: {kind}, {size} ids, {controls} of them control tokens",
            f"{out}：{kind}，{size} 个编号，其中 {controls} 个是控制词块",
        )
    )
    typer.echo(f'{told("look at it: ", "看一看：")}cutaway tokenize --tokenizer {out} "我爱机器学习"')
