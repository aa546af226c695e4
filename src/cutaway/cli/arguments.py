"""Arguments that several commands take alike."""

from typing import Annotated

import typer

from cutaway.words import told

OneText = Annotated[
    str | None,
    typer.Argument(help=told("The text; without it and --file, lines from standard input.")),
]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help=told("A model's folder, or a bundled model's name."),
    ),
]
