"""`cutaway inspect`: what a model is, on one screen, without loading its weights; with a text, what happens in it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.help import in_chinese
from cutaway.cli.screen import LABEL, screen
from cutaway.cli.terminal import columns, shows_unicode, write
from cutaway.cli.views.request import ABOUT, Options, SideName, View
from cutaway.errors import CutawayError
from cutaway.text.display import truncate, width
from cutaway.words import Locale, reader_locale, told
from cutaway.zoo import find

CONTEXT = 512  # tokens in view at which operations are counted when nothing else is asked for
_ASCII = str.maketrans("┌┐└┘├┤─│╞╡═▲►×–→±·…", "++++++-|++=^>x->~*.")


def _views(language: int) -> str:
    """Every view with what it answers."""
    between, colon = (("; ", ": "), ("；", "："))[language]
    return between.join(f"{view}{colon}{about[language]}" for view, about in ABOUT.items())


@in_chinese(
    "一屏看懂一个模型：结构图、尺寸、参数、内存、每个词块的运算量、词表与探点；"
    "给了文字，则看它在模型里怎样被处理。"
)
def inspect(
    model: Annotated[
        str,
        typer.Argument(help=told("A bundled model's name, or a model's folder or GGUF file.")),
    ],
    text: Annotated[
        str | None,
        typer.Argument(
            help=told(
                "A text to follow; for neighbours a token, for projection one or several, for analogy "
                "three ('king - man + woman')."
            )
        ),
    ] = None,
    show: Annotated[
        View | None,
        typer.Option(
            metavar="VIEW",
            help=told(
                "What to look at; with a text and without this: the overview. {views}",
                views=_views(0),
                views2=_views(1),
            ),
        ),
    ] = None,
    layer: Annotated[int | None, typer.Option(help=told("A layer, from 0."))] = None,
    head: Annotated[int | None, typer.Option(help=told("A head, from 0."))] = None,
    side: Annotated[
        SideName | None,
        typer.Option(help=told("Where: encoder, decoder, or the decoder's attention to the source.")),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help=told(
                "A translation to look at in the place of the model's; in analogy: the expected answer."
            )
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help=told("zh or en; not given: told by the text's characters.")),
    ] = None,
    top: Annotated[int | None, typer.Option(help=told("How many to list."))] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(help=told("In diff: one change as a JSON object, or a list; may be repeated.")),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help=told(
                "In explain a value's, in svd and rank a parameter's name; in neurons, logit and "
                "gradients the token whose logit is told of; in drift the word; in neighbours, analogy "
                "and projection embedding or unembedding."
            )
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            help=told(
                "In explain the place of one number (0,-1,5); in lens, neurons, logit and gradients of "
                "a token, from 0."
            )
        ),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(
            help=told(
                "In drift and similarity: the other text; in diff: what a change resid takes from "
                '("from": "other").'
            )
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help=told(
                "A second token: in logit its logit is taken off, in gradients the way to the text "
                "starts from it."
            )
        ),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(
            help=told("In align: links between words that people drew, source-target from 0: '0-0 1-2 2?1'.")
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(help=told("In rank: how many singular values are kept, such as 1,4,16.")),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            help=told("Without a text: tokens in view for operations and cache; else 512 and the limit.")
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help=told("Everything as one JSON object.")),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(help=told("Write the arrays of a view to a .safetensors, .npz or .csv file.")),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help=told("Draw a view into an .svg file."))] = None,
    html: Annotated[
        Path | None,
        typer.Option(help=told("Draw a view into an .html file that needs nothing beside it.")),
    ] = None,
    lang: Annotated[
        Locale | None,
        typer.Option(help=told("Language of what a view says; not given: the locale's.")),
    ] = None,
) -> None:
    """Show what a model is: its boxes, sizes, parameters, memory, work per token, tokens and taps; with a text, what
    happens to it inside."""
    options = Options(
        layer, head, side, target, to, top, tuple(change or ()), name, index, other, against, ranks, gold
    )
    if text is not None or show is not None:
        if context is not None:
            raise CutawayError("--context goes with the model alone; leave text and --show out")

        from cutaway.cli.views.registry import Outputs, show_view

        show_view(model, text, show, options, Outputs(as_json, save, svg, html), lang or reader_locale())
        return
    drawn = [name for name, path in (("save", save), ("svg", svg), ("html", html)) if path is not None]
    if options.given or drawn:
        first = [*options.given, *drawn][0]
        raise CutawayError("--{first} has no effect without a text or --show", first=first)
    path = find(model)

    from cutaway.checkpoint.folder import open_contents, read_config
    from cutaway.config import to_dict
    from cutaway.inspection.structure.anatomy import anatomy

    contents = open_contents(path)
    config, architecture = read_config(contents)
    if context is not None and not 1 <= context <= config.max_len:
        raise CutawayError(
            "--context is {context_}, expected 1 to {max_len}, this model's limit",
            context_=context,
            max_len=config.max_len,
        )
    found = anatomy(
        config,
        architecture=architecture,
        contents=contents,
        contexts=sorted({min(CONTEXT, config.max_len), config.max_len}) if context is None else [context],
    )
    if as_json:
        write(json.dumps({"model": model, **to_dict(found)}, ensure_ascii=False))
        return
    _print(screen(path.name, found, columns(), lang or reader_locale()))


def _print(lines: Sequence[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=max(columns(), *map(width, lines)), markup=False, highlight=False, emoji=False)
    for number, line in enumerate(lines):
        text = Text(line if shows_unicode() else line.translate(_ASCII))
        if number == 0:
            text.stylize("bold")
        elif line[:1].isalpha():
            text.stylize("bold", 0, len(truncate(line, LABEL, "")))
        text.highlight_regex(r"[┌┐└┘├┤─│╞╡═]+", "dim")
        console.print(text, soft_wrap=True)
