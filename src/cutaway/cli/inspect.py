"""`cutaway inspect`: what a model is, on one screen, without loading its weights; with a text, what happens in it."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cutaway.cli.boxes import draw
from cutaway.cli.parameter_table import table
from cutaway.cli.tap_lines import compressed, packed
from cutaway.cli.terminal import columns, shows_unicode, write
from cutaway.cli.views.request import Options, SideName, View
from cutaway.errors import CutawayError
from cutaway.page.locale import reader_locale
from cutaway.text.display import pad, truncate, visible, width
from cutaway.zoo import find

if TYPE_CHECKING:
    from cutaway.inspection.structure.anatomy import Anatomy, Control

CONTEXT = 512  # tokens in view at which operations are counted when nothing else is asked for
LONGEST = 32  # columns a control token may take
LABEL = 12  # columns of the words at the left
_ASCII = str.maketrans("┌┐└┘├┤─│╞╡═▲►×–→±·…", "++++++-|++=^>x->~*.")


def inspect(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model's folder or GGUF file.")],
    text: Annotated[
        str | None,
        typer.Argument(
            help="A text to follow; for neighbours a token, for projection one or several, for analogy three "
            "('king - man + woman')."
        ),
    ] = None,
    show: Annotated[
        View | None, typer.Option(help="What to look at; with a text and without this: the overview.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="A layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="A head, from 0.")] = None,
    side: Annotated[
        SideName | None,
        typer.Option(help="Where: encoder, decoder, or the decoder's attention to the source."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="A translation to look at in the place of the model's; in analogy: the expected answer."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="zh or en; not given: told by the text's characters.")
    ] = None,
    top: Annotated[int | None, typer.Option(help="How many to list.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(help="In diff: one change as a JSON object, or a list; may be repeated."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="In explain a value's, in svd and rank a parameter's name; in neurons, logit and gradients the token "
            "whose logit is told of; in drift the word; in neighbours, analogy and projection embedding or unembedding."
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            help="In explain the place of one number (0,-1,5); in lens, neurons, logit and gradients of a token, "
            "from 0."
        ),
    ] = None,
    other: Annotated[str | None, typer.Option(help="In drift and similarity: the other text.")] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="A second token: in logit its logit is taken off, in gradients the way to the text starts from it."
        ),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(help="In rank: how many singular values are kept, such as 1,4,16.")
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Without a text: tokens in view for operations and cache; else 512 and the limit."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON object.")] = False,
    save: Annotated[
        Path | None, typer.Option(help="Write the arrays of a view to a .safetensors, .npz or .csv file.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw a view into an .svg file.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Draw a view into an .html file that needs nothing beside it.")
    ] = None,
    lang: Annotated[
        Literal["zh", "en"] | None,
        typer.Option(help="Language of what a view says; not given: the locale's."),
    ] = None,
) -> None:
    """Show what a model is: its boxes, sizes, parameters, memory, work per token, tokens and taps; with a text, what
    happens to it inside."""
    options = Options(
        layer, head, side, target, to, top, tuple(change or ()), name, index, other, against, ranks
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
        raise CutawayError(f"--{first} has no effect without a text or --show")
    path = find(model)

    from cutaway.checkpoint.folder import open_contents, read_config
    from cutaway.config import to_dict
    from cutaway.inspection.structure.anatomy import anatomy

    contents = open_contents(path)
    config, architecture = read_config(contents)
    if context is not None and not 1 <= context <= config.max_len:
        raise CutawayError(f"--context is {context}, expected 1 to {config.max_len}, this model's limit")
    found = anatomy(
        config,
        architecture=architecture,
        contents=contents,
        contexts=sorted({min(CONTEXT, config.max_len), config.max_len}) if context is None else [context],
    )
    if as_json:
        write(json.dumps({"model": model, **to_dict(found)}, ensure_ascii=False))
        return
    _print(screen(path.name, found, columns()))


def _print(lines: Sequence[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=max(columns(), *map(width, lines)), markup=False, highlight=False, emoji=False)
    for number, line in enumerate(lines):
        text = Text(line if shows_unicode() else line.translate(_ASCII))
        if number == 0:
            text.stylize("bold")
        elif line[:1].isalpha():
            text.stylize("bold", 0, LABEL)
        text.highlight_regex(r"[┌┐└┘├┤─│╞╡═]+", "dim")
        console.print(text, soft_wrap=True)


def screen(name: str, found: "Anatomy", columns: int) -> list[str]:
    """The lines of the whole screen, each within `columns` terminal columns where no single word is longer. What is
    said about parameters stands beside the figure where there is room, else below."""
    figure = draw(found.config, columns)
    left = max(map(width, figure)) + 3
    beside = table(found, columns - left)
    title = f"{name} · {found.family} · {found.architecture} · {found.parameters:,} parameters"
    lines = [*wrap(title, columns), ""]
    if left + max(map(width, beside)) <= columns:
        above = max(0, (len(figure) - len(beside)) // 2)
        beside = [""] * above + beside + [""] * (len(figure) - above - len(beside))
        figure += [""] * (len(beside) - len(figure))
        lines += [f"{pad(drawn, left)}{line}" for drawn, line in zip(figure, beside, strict=True)]
    else:
        lines += [*figure, "", *table(found, columns)]
    taps = packed(compressed(found.taps), columns - LABEL)
    facts = [*_facts(found), (f"{len(found.taps):,} taps", taps)]
    lines += ["", *_laid_out(facts, columns)]
    return [line.rstrip() for line in lines]


def _laid_out(facts: Sequence[tuple[str, list[str]]], columns: int) -> list[str]:
    """Each label with its texts at its right, continued lines under them."""
    lines: list[str] = []
    for label, texts in facts:
        for text in texts:
            for line in _wrapped(text, columns - LABEL):
                lines.append(f"{pad(label, LABEL)}{line}")
                label = ""
    return lines


def _wrapped(text: str, columns: int) -> Iterator[str]:
    """Lines of at most `columns` terminal columns, broken at spaces and, where there is none, after commas."""
    line = ""
    for word in text.split(" "):
        if line and width(f"{line} {word}") > columns:
            yield line
            line = f"  {word}"
        else:
            line = f"{line} {word}" if line else word
        while width(line) > columns and "," in line.rstrip(",")[:columns]:
            cut = line.rstrip(",").rindex(",", 0, columns) + 1
            yield line[:cut]
            line = f"  {line[cut:]}"
    yield line


def _facts(found: "Anatomy") -> Iterator[tuple[str, list[str]]]:
    yield "sizes", [_sizes(found)]
    weights = [f"{dtype} {amount(size, 'B')}" for dtype, size in found.memory.items() if dtype != "bf16"]
    if found.active_parameters != found.parameters:
        chosen = f"{found.config.n_experts_per_token} of {found.config.n_experts} experts"
        yield "at work", [f"{found.active_parameters:,} parameters on each token ({chosen})"]
    yield "weights", [" · ".join(weights).replace("fp16", "fp16/bf16") + _stored(found)]
    if found.cache is not None:
        yield "cache", [_cache(found)]
    yield "operations", [_operations(found, n) for n in range(len(found.operations))]
    yield "context", [_context(found)]
    if found.tokenizer is None:
        yield "tokenizer", ["none among the files"]
        return
    controls = found.tokenizer.controls
    yield "tokenizer", [f"{found.tokenizer.size:,} pieces, {len(controls)} of them control tokens"]
    if controls:
        yield "control", [_controls(controls)]


def _sizes(found: "Anatomy") -> str:
    config = found.config
    layers = f"{config.n_layers} layers"
    if config.family == "encoder-decoder":
        layers = f"{config.encoder_layers} + {config.n_layers} layers"
    biases = {"attention": config.attn_bias, "feed-forward": config.mlp_bias, "output": config.head_bias}
    if config.attn_bias and not config.has_out_bias:
        biases = {"q, k, v" if name == "attention" else name: has for name, has in biases.items()}
    have = ", ".join(name for name, has in biases.items() if has)
    return f"{layers}, width {config.d_model:,}, biases: {have or 'none'}"


def _stored(found: "Anatomy") -> str:
    kinds = [
        kind.dtype if len(found.stored) == 1 else f"{kind.tensors} {kind.dtype}" for kind in found.stored
    ]
    return f"; stored as {', '.join(kinds)}" if kinds else ""


def _cache(found: "Anatomy") -> str:
    assert found.cache is not None
    token, source = found.cache.bytes_per_token["fp16"], found.cache.bytes_per_source_token["fp16"]
    longest = found.operations[-1].context
    if source:
        each = f"{amount(token, 'B')} a target, {amount(source, 'B')} a source token"
    else:
        each = f"{amount(token, 'B')} a token"
    return f"{each} in 16 bits; {amount((token + source) * longest, 'B')} at {longest:,}"


def _operations(found: "Anatomy", number: int) -> str:
    counted = found.operations[number]
    token, source = counted.per_token, counted.per_source_token
    view = f"at {counted.context:,} tokens"
    if source is not None:
        return f"{amount(token.total, 'FLOP')} a target token, {amount(source.total, 'FLOP')} a source token {view}"
    share = f"{100 * token.attention / token.total:.0f} % of it attention"
    return f"{amount(token.total, 'FLOP')} a token {view}, {share}"


def _context(found: "Anatomy") -> str:
    config = found.config
    of = {"learned": "table of learned positions", "sinusoidal": "table of sinusoids", "none": "no positions"}
    kind = of.get(config.position, f"{'ALiBi' if config.position == 'alibi' else config.position} positions")
    sides = " tokens of source and as many of target" if config.family == "encoder-decoder" else " tokens"
    return f"{found.max_len:,}{sides} ({kind})"


def _controls(controls: Sequence["Control"], most: int = 12) -> str:
    """Those with a role first."""
    ordered = sorted(controls, key=lambda control: not control.roles)
    shown = [_control(control) for control in ordered[:most]]
    more = [f"and {len(controls) - most} more"] if len(controls) > most else []
    return " · ".join([*shown, *more])


def _control(control: "Control") -> str:
    """A file may spell its control tokens in any way, so they are shown as a reader can see them."""
    piece = f"{control.id} {truncate(visible(control.piece), LONGEST)}"
    return f"{piece} ({', '.join(control.roles).replace('_', ' ')})" if control.roles else piece


def amount(number: float, unit: str) -> str:
    """Three digits and a decimal prefix: `18.8 MB`, `512 B`, `1.21 GFLOP`."""
    for prefix in ("", "k", "M", "G", "T"):
        if number < 999.5 or prefix == "T":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if not prefix else f"{number:.3g} {prefix}{unit}"
