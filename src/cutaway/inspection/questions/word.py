"""One word and all heads: where every head looked when one token was written, or at one token of a text."""

# Shapes: L layers, H heads, S keys.

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cutaway.inspection.asked import AttentionSide, position_asked
from cutaway.inspection.options import Option
from cutaway.inspection.page_parts import array, greatest
from cutaway.inspection.patterns import heads_of
from cutaway.inspection.question import question
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.terms import ATTENTIONS, HEAD, KEY, LAYER, WEIGHT, left, right
from cutaway.inspection.wiring import Side
from cutaway.page.blocks import Bar, Heading, Matrix, Page, Table, Tinted, page
from cutaway.page.drawn import Drawn
from cutaway.words import Phrase, say

LISTED = 12  # heads in the ranking


@dataclass(frozen=True, repr=False)
class Word(Drawn):
    """The weights α (L, H, S) of every head at one query, softmax(q·k · scale + bias) over the keys (Vaswani et al.
    2017, §3.2.1): the numbers of this run's own forward pass. A row of a head sums to 1.

    `sharpness` (L, H) is 1 - entropy / ln n, n the keys that the query sees: 1 where all weight lies on one key, 0
    where it is spread evenly, nan where only one key is seen; a head with a large weight on a control token may be
    sharp and idle. `ranking` lists layer and head, the greatest weight on a single token of the text first, control
    tokens left out. Weights say where a head reads, not what depends on it.
    """

    side: Side
    position: int
    read: str  # the token read there
    written: str | None  # what the model writes after it; None where nothing is written
    keys: Tokens
    weights: Tensor  # (L, H, S)
    layer_means: Tensor  # (L, S), the mean of a layer's heads
    mean: Tensor  # (S,), of all heads
    sharpness: Tensor  # (L, H)
    special_keys: tuple[int, ...]
    ranking: tuple[tuple[int, int], ...]

    def page(self) -> Page:
        return _page(self)


@question(say("Where every head looked when one word was written."), "attention")
def word(
    run: Run,
    *,
    at: Annotated[
        int | None, Option(say("The position, from 0; -1 is the last; else the first word written."))
    ] = None,
    side: AttentionSide = None,
) -> Word:
    """All heads of all layers at one query, from one forward pass that keeps nothing else.

    Raises CutawayError for a side that this model lacks and for a position beyond the text.
    """
    where = heads_of(run, side)
    position = position_asked(run, where.queries, at)
    taps, masked = where.taps("pattern"), where.taps("masked")
    trace = run.seen({name: lambda value: value[0, :, position].clone() for name in (*taps, *masked)})
    weights = torch.stack([trace[name] for name in taps])
    # A layer with a window sees fewer keys than others.
    keys_seen = torch.stack([trace[name] for name in masked]).isfinite().sum(dim=-1)
    entropy = -torch.xlogy(weights.double(), weights.double()).sum(dim=-1)
    tokenizer = run.loaded.require_tokenizer()
    special = tuple(place for place, id in enumerate(where.keys.ids) if tokenizer.is_control(id))
    text = weights.clone()
    text[..., list(special)] = -1.0
    heads = weights.shape[1]
    order = text.amax(dim=-1).flatten().argsort(descending=True, stable=True).tolist()
    writes = where.side != "encoder" and run.target is not run.outcome
    return Word(
        side=where.side,
        position=position,
        read=where.queries.pieces[position],
        written=run.outcome.pieces[position] if writes else None,
        keys=where.keys,
        weights=weights,
        layer_means=weights.float().mean(dim=1),
        mean=weights.float().mean(dim=(0, 1)),
        sharpness=1 - entropy / keys_seen.double().log(),
        special_keys=special,
        ranking=tuple((n // heads, n % heads) for n in order),
    )


# Its page.


def _page(found: Word) -> Page:
    pieces = found.keys.pieces
    rows = []
    for layer, head in found.ranking[:LISTED]:
        weights, sharpness = found.weights[layer, head], f"{float(found.sharpness[layer, head]):.2f}"
        looked = "  ".join(greatest(pieces, weights, 3))
        rows.append((f"{layer}.{head}", looked, sharpness, Bar(float(weights.max()))))
    columns = (left(HEAD), left(say("looked at")), right(say("sharpness")), left(""))
    n_layers, n_heads = found.weights.shape[:2]
    names = [f"{layer}.{head}" for layer in range(n_layers) for head in range(n_heads)]
    mean = say("mean of all heads")
    return page(
        _title(found),
        [
            Table(columns, rows),
            say(
                "Heads by layer.head, the greatest weight on a token of the text first. sharpness: 1 where all "
                "weight lies on one token, 0 where it is spread evenly. Weights say where a head reads, not what "
                "depends on it."
            ),
            Heading(say("Every layer: the mean of its heads")),
            _by_layer(found),
            Heading(say("Every head")),
            Matrix(array(found.weights.flatten(0, 1)), names, pieces, HEAD, KEY, WEIGHT, drawn=True),
            Matrix(array(found.mean[None]), [mean], pieces, HEAD, KEY, WEIGHT, drawn=True),
        ],
    )


def _by_layer(found: Word) -> Table:
    """The keys that the heads of each layer weigh most, on average."""
    rows = []
    for layer, heads in enumerate(found.layer_means):
        best = greatest(found.keys.pieces, heads, 4)
        weights = heads.topk(len(best)).values.tolist()
        rows.append((str(layer), *map(Tinted, best, weights)))
    columns = [right(LAYER), left(say("looked at most")), *[left("")] * (len(rows[0]) - 2)]
    return Table(columns, rows, tint=WEIGHT, keep=1)


def _title(found: Word) -> Phrase:
    what = ATTENTIONS[found.side]
    if found.written is None:
        return say(
            "{what}: where every head looks from token {position}, '{read}'",
            what=what, position=found.position, read=found.read,
        )  # fmt: skip
    return say(
        "{what}: where every head looked when '{written}' was written (position {position}, after '{read}')",
        what=what, written=found.written, position=found.position, read=found.read,
    )  # fmt: skip
