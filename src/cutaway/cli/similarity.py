"""`cutaway similarity`: how near texts are in meaning."""

import json
from typing import Annotated

from cutaway.cli.arguments import EmbedderName
from cutaway.cli.embed import beginning, embed_with_notes, open_embedder
from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import texts_from, write, write_table
from cutaway.errors import CutawayError
from cutaway.words import told


@described(
    "Compare texts by the cosine of their vectors: 1 for the same direction, around 0 for nothing in common."
)
def similarity(
    texts: Annotated[list[str], argument("Two texts, or more.", show_default=False)],
    model: EmbedderName = None,
    as_json: Annotated[
        bool, option("One JSON object: the texts, and the cosines as rows.", "--json")
    ] = False,
) -> None:
    if len(texts) < 2:
        raise CutawayError("similarity compares texts, but one was given; give at least two")
    given = [text for argument in texts for text in texts_from(argument)]
    found = embed_with_notes(open_embedder(model), given)

    from cutaway.decode.sentence_vectors import cosine_similarity

    cosines = cosine_similarity(found.vectors).tolist()
    if as_json:
        write(json.dumps({"texts": given, "cosine": cosines}, ensure_ascii=False))
    elif len(given) == 2:
        write(f"{cosines[0][1]:.4f}")
    else:
        numbers = [str(number) for number in range(1, len(given) + 1)]
        rows = [
            (number, *(f"{value:.3f}" for value in row), beginning(text))
            for number, row, text in zip(numbers, cosines, given, strict=True)
        ]
        write_table(("", *numbers, told("text")), rows, right=range(len(given) + 1))
