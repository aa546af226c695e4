"""`cutaway generate`: go on with a text, shown as it is written."""

import json
from typing import Annotated

import typer

from cutaway.cli.help import described
from cutaway.cli.terminal import note, texts_from, write
from cutaway.words import say, told
from cutaway.zoo import POET, find


@described(say("Go on with a text, token by token; the beginning is printed first."))
def generate(
    prompt: Annotated[
        str | None,
        typer.Argument(help=told("The beginning; without it, standard input as one text.")),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help=told("A bundled model's name, or a model's folder."),
        ),
    ] = POET,
    max_tokens: Annotated[int, typer.Option(help=told("Most new tokens."))] = 100,
    min_tokens: Annotated[
        int,
        typer.Option(help=told("Fewest new tokens before the model may end.")),
    ] = 0,
    temperature: Annotated[
        float,
        typer.Option(help=told("0 takes the likeliest token; 1 draws as learned.")),
    ] = 0.8,
    top_k: Annotated[
        int,
        typer.Option(help=told("Draw from the k likeliest tokens; 0: from all.")),
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(help=told("Draw from the fewest tokens that have this mass.")),
    ] = 0.95,
    min_p: Annotated[
        float,
        typer.Option(help=told("Leave out tokens below this share of the likeliest.")),
    ] = 0.0,
    repetition_penalty: Annotated[
        float,
        typer.Option(help=told("Above 1: make tokens less likely that stand there already.")),
    ] = 1.0,
    seed: Annotated[int, typer.Option(help=told("The same seed gives the same text."))] = 0,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate",
            help=told("Read only the end of a beginning that is too long, with a note."),
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help=told("One JSON object a token: text, id, piece, log_prob, finish."),
        ),
    ] = False,
) -> None:
    text = "\n".join(texts_from(prompt))
    folder = find(model)

    from cutaway.checkpoint.folder import load
    from cutaway.decode.complete import prepare_prompt, stream_text
    from cutaway.decode.sampling import Sampling

    loaded = load(folder)
    for remark in prepare_prompt(loaded, text, truncate=truncate).notes:
        note(remark)
    tokens = stream_text(
        loaded,
        text,
        max_new_tokens=max_tokens,
        min_new_tokens=min_tokens,
        sampling=Sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
        ),
        truncate=truncate,
    )
    if as_json:
        for token in tokens:
            names = ("text", "id", "piece", "log_prob", "finish")
            write(json.dumps({name: getattr(token, name) for name in names}, ensure_ascii=False))
        return
    write(text, end="")
    for token in tokens:
        write(token.text, end="")
    write()
