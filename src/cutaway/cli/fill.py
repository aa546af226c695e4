"""`cutaway fill`: the words that belong into the gaps of a text."""

import json
from dataclasses import asdict
from typing import Annotated

from cutaway.cli.arguments import ModelName, OneObjectEach
from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import open_model, texts_from, write, write_table
from cutaway.words import told
from cutaway.zoo import MASKED


@described("Fill the gaps of a text, each written as [MASK], with the likeliest tokens.")
def fill(
    text: Annotated[
        str | None, argument("A text with [MASK] for each gap; without it, lines from standard input.")
    ] = None,
    model: ModelName = MASKED,
    top: Annotated[int, option("How many candidates for a gap to show.")] = 5,
    as_json: OneObjectEach = False,
) -> None:
    texts = texts_from(text)
    loaded = open_model(model)

    from cutaway.decode.gaps import fill

    for line in texts:
        filled = fill(loaded, line, top=top)
        if as_json:
            write(json.dumps(asdict(filled), ensure_ascii=False))
            continue
        write(filled.text)
        for number, gap in enumerate(filled.gaps, start=1):
            write()
            rows = [(candidate.piece, f"{candidate.probability:.3f}") for candidate in gap.candidates]
            write_table((told("gap {number}", number=number), told("probability")), rows, right=(1,))
