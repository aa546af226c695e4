"""`cutaway generate`: go on with a text, shown as it is written."""

import json
from typing import Annotated

from cutaway.cli.arguments import MinP, ModelName, RepetitionPenalty, Seed, TopK, TopP, drawing, own
from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import note, open_model, texts_from, write
from cutaway.zoo import POET


@described("Go on with a text, token by token; the beginning is printed first.")
def generate(
    prompt: Annotated[str | None, argument("The beginning; without it, standard input as one text.")] = None,
    model: ModelName = POET,
    max_new_tokens: Annotated[int | None, option("Most new tokens.", show_default=own(100))] = None,
    min_new_tokens: Annotated[
        int | None, option("Fewest new tokens before the model may end.", show_default=own(0))
    ] = None,
    temperature: Annotated[float | None, drawing(0.8)] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
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
    from cutaway.decode.own_settings import own_settings
    from cutaway.decode.sampling import Sampling
    from cutaway.decode.search import Search

    settings = own_settings(loaded)
    # a beam shows nothing before its end
    search = settings.search(
        Search(sampling=Sampling(temperature=0.8, top_p=0.95)),
        beam=1,
        repetition_penalty=repetition_penalty,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
    )
    limits = settings.limits(max_new_tokens, min_new_tokens)
    ready = prepare_prompt(loaded, text, limits=limits, truncate=truncate)
    for remark in (*settings.notes, *ready.notes):
        note(remark)
    tokens = stream_text(loaded, text, search=search, limits=limits, truncate=truncate)
    if as_json:
        for token in tokens:
            names = ("text", "id", "piece", "log_prob", "finish")
            write(json.dumps({name: getattr(token, name) for name in names}, ensure_ascii=False))
        return
    write(text, end="")
    for token in tokens:
        write(token.text, end="")
    write()
