"""`cutaway similarity`: how near texts are in meaning."""

import json
from typing import TYPE_CHECKING, Annotated

from cutaway.cli.arguments import EmbedderName
from cutaway.cli.embed import beginning, embed_with_notes, open_embedder
from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import texts_from, write, write_table
from cutaway.errors import CutawayError
from cutaway.words import told

if TYPE_CHECKING:
    from torch import Tensor

_WHOLE = 24  # texts up to which every cosine is shown
_NEAREST = 3  # of more texts, those that are shown of each


@described(
    "Compare texts by the cosine of their vectors: 1 for the same direction, around 0 for nothing in common. Of many "
    "texts, each one's nearest are shown; --json has every cosine."
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

    cosines = cosine_similarity(found.vectors)
    if as_json:
        # row by row: of many texts they are more than fits in memory as numbers of Python
        write(f'{{"texts": {json.dumps(given, ensure_ascii=False)}, "cosine": [', end="")
        for place, row in enumerate(cosines):
            write((", " if place else "") + json.dumps(row.tolist()), end="")
        write("]}")
    elif len(given) == 2:
        write(f"{cosines[0, 1].item():.4f}")
    elif len(given) <= _WHOLE:
        numbers = [str(number) for number in range(1, len(given) + 1)]
        rows = [
            (number, *(f"{value:.3f}" for value in row), beginning(text))
            for number, row, text in zip(numbers, cosines.tolist(), given, strict=True)
        ]
        write_table(("", *numbers, told("text")), rows, right=range(len(given) + 1))
    else:
        write_table(("", told("nearest"), told("text")), _nearest(given, cosines), right=(0,))


def _nearest(texts: list[str], cosines: "Tensor") -> list[tuple[str, str, str]]:
    """For each text its number, and those of the nearest others with their cosines."""
    values, places = cosines.fill_diagonal_(-2.0).topk(_NEAREST)
    rows = zip(values.tolist(), places.tolist(), texts, strict=True)
    return [
        (
            str(number),
            "  ".join(f"{place + 1} {value:.3f}" for value, place in zip(near, where, strict=True)),
            beginning(text),
        )
        for number, (near, where, text) in enumerate(rows, start=1)
    ]
