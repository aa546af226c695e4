"""`cutaway generate`: go on with a text, shown as it is written."""

import json
from typing import Annotated

from cutaway.cli.arguments import MinP, ModelName, RepetitionPenalty, Seed, Temperature, TopK, TopP
from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import note, open_model, texts_from, write
from cutaway.zoo import POET


@described("Go on with a text, token by token; the beginning is printed first.")
def generate(
    prompt: Annotated[str | None, argument("The beginning; without it, standard input as one text.")] = None,
    model: ModelName = POET,
    max_new_tokens: Annotated[int, option("Most new tokens.")] = 100,
    min_new_tokens: Annotated[int, option("Fewest new tokens before the model may end.")] = 0,
    temperature: Temperature = 0.8,
    top_k: TopK = 0,
    top_p: TopP = 0.95,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = 0,
    truncate: Annotated[
        bool, option("Read only the end of a beginning that is too long, with a note.", "--truncate")
    ] = False,
    as_json: Annotated[
        bool, option("One JSON object a token: text, id, piece, log_prob, finish.", "--json")
    ] = False,
) -> None:
    text = "\n".join(texts_from(prompt))
    loaded = open_model(model)

    from cutaway.decode.complete import prepare_prompt, stream_text
    from cutaway.decode.sampling import Sampling
    from cutaway.decode.search import Limits, Search

    sampling = Sampling(repetition_penalty, temperature, top_k, top_p, min_p, seed)
    limits = Limits(max_new_tokens, min_new_tokens)
    for remark in prepare_prompt(loaded, text, limits=limits, truncate=truncate).notes:
        note(remark)
    tokens = stream_text(loaded, text, search=Search(sampling=sampling), limits=limits, truncate=truncate)
    if as_json:
        for token in tokens:
            names = ("text", "id", "piece", "log_prob", "finish")
            write(json.dumps({name: getattr(token, name) for name in names}, ensure_ascii=False))
        return
    write(text, end="")
    for token in tokens:
        write(token.text, end="")
    write()
