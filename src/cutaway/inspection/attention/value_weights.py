"""Attention weights times the size of what they weigh: a large weight on a small value moves little."""

# Shapes: l layers and h heads that were asked for, T queries, S keys, K key/value heads, E head width, D width.

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.inspection.attention.patterns import only, place
from cutaway.inspection.pages.attention import value_weights_page
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.wiring import Side
from cutaway.nn.attention import Attention
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit


@dataclass(frozen=True, repr=False)
class ValueWeights(Drawn):
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

    def page(self) -> Page:
        return value_weights_page(self)


def value_weights(
    run: Run,
    side: Side | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    through_output: bool = True,
) -> ValueWeights:
    """Weigh patterns by the norms of their values; `side`, `layers` and `heads` as in `patterns.place`.

    Raises CutawayError for a side, layer or head that there is not.
    """
    where = place(run, side, layers, heads)
    watch: dict[str, Edit] = {}
    for path, module in where.modules:
        watch[f"{path}.v"] = _norms(module, where.heads, through_output)
        watch[f"{path}.pattern"] = only(where.heads)
    _, trace = run.hidden(watch)
    norms = torch.stack([trace[name] for name in where.taps("v")])
    weights = torch.stack([trace[name] for name in where.taps("pattern")]) * norms[..., None, :]
    return ValueWeights(
        where.side, where.layers, where.heads, weights, norms, through_output, where.queries, where.keys
    )


def _norms(module: Attention, heads: Sequence[int], through_output: bool) -> Callable[[Tensor], Tensor]:
    """A reducer for the tap `v`: (1, K, S, E) -> (h, S)."""

    def reduce(v: Tensor) -> Tensor:
        rows: list[Tensor] = []
        for head in heads:
            written = v[0, head // module.groups].float()  # (S, E)
            if through_output:
                columns = slice(head * module.d_head, (head + 1) * module.d_head)
                written = written @ module.o_proj.weight[:, columns].float().mT  # (S, D)
            rows.append(written.norm(dim=-1))
        return torch.stack(rows)

    return reduce
