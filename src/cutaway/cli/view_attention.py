"""`cutaway inspect … --show attention`: one head's weights token by token, or what all heads measure."""

from typing import TYPE_CHECKING

from cutaway.cli.alignment import draw
from cutaway.cli.terminal import columns, reads_chinese, shows_unicode, write, write_table
from cutaway.cli.view_page import heading, remark, title
from cutaway.cli.view_request import Answer, Request

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.inspection.attention.head_scores import HeadScores, Measures
    from cutaway.inspection.attention.patterns import Patterns

# A measure's field and its column.
MEASURES = (
    ("entropy", "entropy"), ("first", "first"), ("special", "ctrl"), ("punctuation", "punct"),
    ("distance", "dist."), ("previous", "prev"), ("same", "same"), ("next", "next"),
    ("induction", "induct"),
)  # fmt: skip
LEGENDS = ("query down, key across", "每行一个查询词块，每列一个键词块")


def attention(request: Request) -> Answer:
    from cutaway.inspection.attention.head_scores import head_scores
    from cutaway.inspection.attention.patterns import patterns
    from cutaway.inspection.runs.sides import sides

    run, options = request.run(), request.options
    side = request.side or sides(run.model)[-1]
    layers = None if options.layer is None else [options.layer]
    heads = None if options.head is None else [options.head]
    scores = head_scores(run, side, layers, heads)
    single = layers is not None and heads is not None
    weights = patterns(run, side, layers, heads) if single or request.complete else None
    return Answer({"scores": scores, "patterns": weights}, lambda: _show(scores, weights if single else None))


def _show(scores: "HeadScores", weights: "Patterns | None") -> None:
    if weights is not None:
        title(f"{scores.side} attention, layer {scores.layers[0]}, head {scores.heads[0]}")
        lines = draw(
            scores.keys.pieces,
            scores.queries.pieces,
            weights.values[0, 0].tolist(),
            columns=columns(),
            unicode=shows_unicode(),
            chinese=reads_chinese(),
        )
        for line in lines[:-1]:
            write(line)
        legend = lines[-1]
        if scores.side != "cross":  # one text on both sides, which is never drawn the other way round
            legend = f"{LEGENDS[reads_chinese()]};{legend.partition(';')[2]}"
        write(legend)
    (title if weights is None else heading)(f"What the heads of {scores.side} attention measure on this text")
    names = [(field, title) for field, title in MEASURES if getattr(scores.scores, field) is not None]
    rows = []
    for i, layer in enumerate(scores.layers):
        for j, head in enumerate(scores.heads):
            rows.append((f"{layer}.{head}", *_row(scores.scores, [field for field, _ in names], i, j)))
        rows.append((f"{layer} even", *_row(scores.uniform, [field for field, _ in names], i)))
    titles = [title for _, title in names]
    write_table(("head", *titles), rows, right=titles)
    remark(
        "Means over the text: entropy in nats, dist. in tokens, the rest weight from 0 to 1: on the first token, on "
        "control tokens (ctrl), punctuation, the token before (prev), the same, the next, and those after earlier "
        "copies of it (induct). 'even': a head that weighs all keys alike. Scores of this text, not what a head is for."
    )
    if weights is None:
        remark("The weights of one head: --layer N --head N.")


def _row(measures: "Measures", fields: list[str], *place: int) -> list[str]:
    found: list[str] = []
    for field in fields:
        values: Tensor = getattr(measures, field)
        found.append(f"{float(values[place]):.2f}")
    return found
