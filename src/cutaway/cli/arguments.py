"""Arguments that several commands take alike."""

from typing import Annotated

from cutaway.cli.help import argument, option

OneText = Annotated[str | None, argument("The text; without it and --file, lines from standard input.")]
ModelName = Annotated[str, option("A bundled model's name, or a model's folder.", "--model", "-m")]
EmbedderName = Annotated[str | None, option("A model's folder, or a bundled model's name.", "--model", "-m")]
OneObjectEach = Annotated[bool, option("One JSON object a text, with everything.", "--json")]

# How a translation is searched for.
Beam = Annotated[int, option("Hypotheses kept side by side; 1 is greedy.")]
Alpha = Annotated[
    float,
    option("Exponent of the length penalty (GNMT); larger favours longer translations.", "--length-penalty"),
]

# How a token is drawn.
Temperature = Annotated[float, option("0 takes the likeliest token; 1 draws as learned.")]
TopK = Annotated[int, option("Draw from the k likeliest tokens; 0: from all.")]
TopP = Annotated[float, option("Draw from the fewest tokens that have this mass.")]
MinP = Annotated[float, option("Leave out tokens below this share of the likeliest.")]
RepetitionPenalty = Annotated[float, option("Above 1: make tokens less likely that stand there already.")]
Seed = Annotated[int, option("The same seed gives the same text.")]
