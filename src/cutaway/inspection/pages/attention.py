"""Pages of attention: patterns, what heads measure, value-weighted patterns, rollout."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.inspection.terms import ATTENTIONS, HEAD, KEY, QUERY, TOKEN, WEIGHT, left, right
from cutaway.page.blocks import Atlas, Block, Matrix, Page, Remark, Scale, Table, page
from cutaway.page.numbers import share
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, listed, say

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.inspection.attention.head_scores import HeadScores, Measures
    from cutaway.inspection.attention.patterns import Patterns
    from cutaway.inspection.attention.rollout import Rollout
    from cutaway.inspection.attention.value_weights import ValueWeights
    from cutaway.inspection.runs import Tokens

# A measure's field, its column, and what it measures.
MEASURES = (
    ("entropy", say("entropy"), say("entropy in nats")),
    ("first", say("first"), say("the first token")),
    ("special", say("ctrl"), say("control tokens (ctrl)")),
    ("punctuation", say("punct"), say("punctuation")),
    ("distance", say("dist."), say("dist. in tokens")),
    ("previous", say("prev"), say("the token before (prev)")),
    ("same", say("same"), say("the same")),
    ("next", say("next"), say("the next")),
    (
        "induction",
        say("induct"),
        say("those after earlier copies of it (induct)"),
    ),
)
COUNTED = ("entropy", "distance")  # the others are weights
STAGES = {
    "scores": say("scores q·k"),
    "scaled": say("scaled scores"),
    "masked": say("scores after mask and position bias"),
    "pattern": say("attention"),
}


def patterns_page(found: "Patterns") -> Page:
    what, stage = ATTENTIONS[found.side], STAGES[found.stage]
    if found.stage == "pattern":
        title, scale, unit = what, "weight", WEIGHT
    else:
        title, scale, unit = say("{what}: {stage}", what=what, stage=stage), "signed", stage
    return page(
        _of_one(title, found.layers, found.heads),
        [
            _most_weight(found) if found.stage == "pattern" else None,
            heads_of(
                found.values, found.layers, found.heads, found.queries, found.keys, scale=scale, unit=unit
            ),
            Remark(
                say(
                    "A row is one query: what it weighs. In a decoder the query at a token predicts the "
                    "next one. Weights say where a head reads, not what it takes from there, nor what "
                    "depends on it."
                )
            ),
        ],
    )


def _most_weight(found: "Patterns") -> Table | None:
    """Where several heads are asked for: the keys that each weighs most."""
    if found.values.shape[:2] == (1, 1):
        return None
    rows = []
    for i, layer in enumerate(found.layers):
        for j, head in enumerate(found.heads):
            means = found.values[i, j].float().mean(dim=0)
            best = means.topk(min(3, len(means)))
            listed = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            keys = "  ".join(
                f"{truncate(found.keys.pieces[int(s)], 12)} {share(value)}" for value, s in listed
            )
            rows.append((f"{layer}.{head}", keys))
    return Table([left(HEAD), left(say("weighs most (mean over the queries)"))], rows)


def heads_of(
    values: "Tensor",
    layers: Sequence[int],
    heads: Sequence[int],
    queries: "Tokens",
    keys: "Tokens",
    *,
    scale: Scale = "weight",
    unit: Text = WEIGHT,
    down: Text = QUERY,
    across: Text = KEY,
) -> Matrix | Atlas:
    """values (l, h, T, S): one heat map, or an atlas of the heads, a layer in a row."""
    array = values.detach().cpu().double().numpy()
    maps = [
        Matrix(array[i, j], queries.pieces, keys.pieces, down, across, unit, scale)
        for i in range(len(layers))
        for j in range(len(heads))
    ]
    if len(maps) == 1:
        return maps[0]
    return Atlas([f"{layer}.{head}" for layer in layers for head in heads], maps, len(heads))


def _of_one(title: Phrase, layers: Sequence[int], heads: Sequence[int]) -> Phrase:
    """The title with layer and head, where there is only one."""
    if len(layers) != 1 or len(heads) != 1:
        return title
    layer, head = layers[0], heads[0]
    return say("{title}, layer {layer}, head {head}", title=title, layer=layer, head=head)


def head_scores_page(found: "HeadScores") -> Page:
    what = ATTENTIONS[found.side]
    there = [each for each in MEASURES if getattr(found.scores, each[0]) is not None]
    fields = [field for field, _, _ in there]
    rows: list[list[Text]] = []
    for i, layer in enumerate(found.layers):
        for j, head in enumerate(found.heads):
            rows.append([f"{layer}.{head}", *_row(found.scores, fields, i, j)])
        rows.append([say("{layer} even", layer=layer), *_row(found.uniform, fields, i)])
    return page(
        say("What the heads of {what} measure on this text", what=what),
        [
            Table([left(HEAD), *(right(title) for _, title, _ in there)], rows),
            Remark(_measured(fields)),
        ],
    )


def _measured(fields: Sequence[str]) -> Phrase:
    """What the columns mean, of those that are there."""
    about = [(field, what) for field, _, what in MEASURES if field in fields]
    counted = [what for field, what in about if field in COUNTED]
    weights = [what for field, what in about if field not in COUNTED]
    units = listed(counted)
    on = listed(weights)
    return say(
        "Means over the text: {units}, the rest weight from 0 to 1 on: {on}. 'even': a head "
        "that weighs all keys alike. Scores of this text, not what a head is for.",
        units=units,
        on=on,
    )


def _row(measures: "Measures", fields: Sequence[str], *place: int) -> list[str]:
    return [f"{float(getattr(measures, field)[place]):.2f}" for field in fields]


def _longest(found: "ValueWeights") -> Table:
    """For each head the key whose weighted vectors are longest, the one whose vector is longest, and the shortest."""
    pieces = found.keys.pieces
    rows = []
    for i, layer in enumerate(found.layers):
        for j, head in enumerate(found.heads):
            written, norms = found.weights[i, j].sum(dim=0), found.norms[i, j]
            weighed = (found.weights[i, j] / norms.clamp_min(1e-30)).sum(dim=0)
            rows.append(
                (
                    f"{layer}.{head}",
                    *(truncate(pieces[int(values.argmax())], 10) for values in (weighed, written, norms)),
                    f"{float(norms.max()):#.3g}",
                    truncate(pieces[int(norms.argmin())], 10),
                    f"{float(norms.min()):#.3g}",
                )
            )
    columns = (
        left(HEAD),
        left(say("most weight")),
        left(say("writes most")),
        left(say("longest value")),
        right(say("length")),
        left(say("shortest")),
        right(say("length")),
    )
    return Table(columns, rows)


def value_weights_page(found: "ValueWeights") -> Page:
    what = ATTENTIONS[found.side]
    reach = float(found.weights.max()) or 1.0
    length = say("length, in shares of the longest, {reach:.3g}", reach=reach)
    drawn = heads_of(found.weights / reach, found.layers, found.heads, found.queries, found.keys, unit=length)
    return page(
        _of_one(
            say("{what}: weight times length of the value", what=what),
            found.layers,
            found.heads,
        ),
        [
            drawn,
            _longest(found),
            Remark(
                say(
                    "How long each vector is that a head adds up (Kobayashi et al. 2020): a large weight "
                    "on a short vector moves little. Vectors may still cancel out. most weight, writes "
                    "most: the keys of most weight and of longest weighted vectors, over all queries."
                )
            ),
        ],
    )


def rollout_page(found: "Rollout") -> Page:
    side = ATTENTIONS[found.side]
    names = [say("after layer {layer}", layer=layer) for layer in range(len(found.weights))]
    array = found.weights.detach().cpu().double().numpy()
    pieces = found.tokens.pieces
    unit = say("share")
    maps = [Matrix(each, pieces, pieces, TOKEN, say("input token"), unit) for each in array]
    blocks: list[Block] = [maps[-1], Atlas(names, maps, min(8, len(maps)))]
    share = f"{found.residual:g}"
    return page(
        say("Rollout of {side}, all {count} layers", side=side, count=len(maps)),
        [
            *blocks,
            Remark(
                say(
                    "The mean patterns of all layers multiplied, the residual connection taken as a share "
                    "of {share} everywhere (Abnar & Zuidema 2020). Approximate by construction: it knows "
                    "weights only, neither values nor norms nor feed-forward networks.",
                    share=share,
                )
            ),
        ],
    )
