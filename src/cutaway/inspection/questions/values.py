"""Attention weights times the size of what they weigh: a large weight on a small value moves little."""

# Shapes: l layers and h heads that were asked for, T queries, S keys, K key/value heads, E head width, D width.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cutaway.inspection.asked import AttentionSide, OneHead, OneLayer
from cutaway.inspection.options import Option
from cutaway.inspection.patterns import head_maps, heads_of, only
from cutaway.inspection.question import question
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.terms import ATTENTIONS, HEAD, left, one_head, right
from cutaway.inspection.wiring import Side
from cutaway.nn.attention import Attention
from cutaway.page.blocks import Page, Table, page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit
from cutaway.text.display import truncate
from cutaway.words import say


@dataclass(frozen=True, repr=False)
class Values(Drawn):
    """How large each summand of a head's result is, in the units of the residual stream.

    `weights[i, j, t, s]` = p(t, s) · `norms[i, j, s]`. The norm is ‖v_s W_O‖ with the head's part of the output matrix,
    v with its bias and W_O without (Kobayashi et al. 2020, §3: ‖α f(x)‖); or ‖v_s‖ alone where `through_output` is
    False. Rows do not sum to 1. Exact for what the attention adds up; approximate for the model, because summands may
    cancel out, and because post-norm and sandwich blocks normalise the sum after that.
    """

    side: Side
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weights: Tensor  # (l, h, T, S)
    norms: Tensor  # (l, h, S)
    through_output: bool
    queries: Tokens
    keys: Tokens
    rows: tuple[str, ...]

    def page(self) -> Page:
        return _page(self)


@question(
    say("How much of each token's value a head adds up: its weight times the value's length."), "attention"
)
def values(
    run: Run,
    *,
    side: AttentionSide = None,
    layer: OneLayer = None,
    head: OneHead = None,
    through_output: Annotated[
        bool, Option(say("Whether a value is measured after the head's part of the output matrix."))
    ] = True,
) -> Values:
    """Weigh patterns by the norms of their values, from one forward pass.

    Raises CutawayError for a side, layer or head that there is not.
    """
    where = heads_of(run, side, layer, head)
    watch: dict[str, Edit] = dict.fromkeys(where.taps("pattern"), only(where.heads))
    for place in where.places:
        watch[f"{place.attention_path}.v"] = _norms(place.attention, where.heads, through_output)
    trace = run.seen(watch)
    norms = torch.stack([trace[name] for name in where.taps("v")])
    weights = torch.stack([trace[name] for name in where.taps("pattern")]) * norms[..., None, :]
    of_heads = (where.side, where.layers, where.heads)
    return Values(*of_heads, weights, norms, through_output, where.queries, where.keys, where.rows)


def _norms(module: Attention, heads: Sequence[int], through_output: bool) -> Callable[[Tensor], Tensor]:
    """A reducer for the tap `v`: (1, K, S, E) -> (h, S)."""

    def reduce(v: Tensor) -> Tensor:
        written = [v[0, head // module.groups].float() for head in heads]  # (S, E) each
        if through_output:
            columns = module.o_proj.weight.float().split(module.d_head, dim=1)  # (D, E) each
            written = [each @ columns[head].mT for head, each in zip(heads, written, strict=True)]  # (S, D)
        return torch.stack([each.norm(dim=-1) for each in written])

    return reduce


# Its page.


def _longest(found: Values) -> Table:
    """For each head the key whose weighted vectors are longest, the one whose vector is longest, and the shortest."""
    pieces = [truncate(piece, 10) for piece in found.keys.pieces]
    rows = []
    for i, layer in enumerate(found.layers):
        for j, head in enumerate(found.heads):
            written, norms = found.weights[i, j].sum(dim=0), found.norms[i, j]
            weighed = (found.weights[i, j] / norms.clamp_min(1e-30)).sum(dim=0)
            most = [pieces[int(values.argmax())] for values in (weighed, written, norms)]
            longest, shortest = f"{float(norms.max()):#.3g}", f"{float(norms.min()):#.3g}"
            rows.append((f"{layer}.{head}", *most, longest, pieces[int(norms.argmin())], shortest))
    keys = (say("weighs most"), say("adds most"), say("longest value"))
    length = right(say("length"))
    return Table((left(HEAD), *map(left, keys), length, left(say("shortest")), length), rows)


def _page(found: Values) -> Page:
    what = ATTENTIONS[found.side]
    reach = float(found.weights.max()) or 1.0
    length = say("length, in shares of the longest, {reach:.3g}", reach=reach)
    drawn = head_maps(
        found.weights / reach, found.layers, found.heads, found.rows, found.keys.pieces, unit=length
    )
    return page(
        one_head(say("{what}: weight times length of the value", what=what), found.layers, found.heads),
        [
            drawn,
            _longest(found),
            say(
                "How long each vector is that a head adds up (Kobayashi et al. 2020): a large weight "
                "on a short vector moves little. Vectors may still cancel out. weighs most, adds most: the "
                "keys of the greatest weights and of the longest weighted vectors, summed over the queries. "
                "longest, shortest: the values themselves."
            ),
        ],
    )
