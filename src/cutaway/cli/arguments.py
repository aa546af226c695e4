"""Arguments that several commands take alike."""

from typing import Annotated, Any

from cutaway.cli.help import argument, option

OneText = Annotated[str | None, argument("The text; without it and --file, lines from standard input.")]
ModelName = Annotated[str, option("A bundled model's name, or a model's folder.", "--model", "-m")]
EmbedderName = Annotated[str | None, option("A model's folder, or a bundled model's name.", "--model", "-m")]
OneObjectEach = Annotated[bool, option("One JSON object a text, with everything.", "--json")]


def own(usual: object) -> str:
    """The default of what models have settings of their own for, as `help` shows it; `usual` is that of all others."""
    return f"{usual}"


# How a translation is searched for.
Beam = Annotated[int | None, option("Hypotheses kept side by side; 1 is greedy.", show_default=own(4))]
Alpha = Annotated[
    float | None,
    option(
        "Exponent of the length penalty (GNMT); larger favours longer translations.",
        "--length-penalty",
        show_default=own(0.6),
    ),
]

# How a token is drawn.
TopK = Annotated[int | None, option("Draw from the k likeliest tokens; 0: from all.", show_default=own(0))]
TopP = Annotated[
    float | None, option("Draw from the fewest tokens that have this mass.", show_default=own(0.95))
]
MinP = Annotated[
    float | None, option("Leave out tokens below this share of the likeliest.", show_default=own(0))
]
RepetitionPenalty = Annotated[
    float | None,
    option("Above 1: make tokens less likely that stand there already.", show_default=own(1)),
]
Seed = Annotated[int, option("The same seed gives the same text.")]


def drawing(usual: float) -> Any:
    """The option of a temperature; commands have it with different defaults."""
    return option("0 takes the likeliest token; 1 draws as learned.", show_default=own(usual))
