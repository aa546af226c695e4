"""Arguments that several commands take alike."""

from typing import Annotated

import typer

from cutaway.page.locale import told

OneText = Annotated[
    str | None,
    typer.Argument(
        help=told(
            "The text; without it and --file, lines from standard input.",
            "文字；不给它也不给 --file 时，逐行读标准输入。",
        )
    ),
]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help=told("A model's folder, or a bundled model's name.", "模型文件夹，或自带模型的名字。"),
    ),
]
