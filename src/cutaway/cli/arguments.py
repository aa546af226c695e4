"""Arguments that several commands take alike."""

from typing import Annotated

import typer

from cutaway.words import told

OneText = Annotated[
    str | None, typer.Argument(help=told("The text; without it and --file, lines from standard input."))
]
ModelName = Annotated[
    str, typer.Option("--model", "-m", help=told("A bundled model's name, or a model's folder."))
]
EmbedderName = Annotated[
    str | None, typer.Option("--model", "-m", help=told("A model's folder, or a bundled model's name."))
]
OneObjectEach = Annotated[bool, typer.Option("--json", help=told("One JSON object a text, with everything."))]

# How a translation is searched for.
Beam = Annotated[int, typer.Option(help=told("Hypotheses kept side by side; 1 is greedy."))]
Alpha = Annotated[
    float,
    typer.Option(
        "--length-penalty",
        help=told("Exponent of the length penalty (GNMT); larger favours longer translations."),
    ),
]

# How a token is drawn.
Temperature = Annotated[float, typer.Option(help=told("0 takes the likeliest token; 1 draws as learned."))]
TopK = Annotated[int, typer.Option(help=told("Draw from the k likeliest tokens; 0: from all."))]
TopP = Annotated[float, typer.Option(help=told("Draw from the fewest tokens that have this mass."))]
MinP = Annotated[float, typer.Option(help=told("Leave out tokens below this share of the likeliest."))]
RepetitionPenalty = Annotated[
    float, typer.Option(help=told("Above 1: make tokens less likely that stand there already."))
]
Seed = Annotated[int, typer.Option(help=told("The same seed gives the same text."))]
