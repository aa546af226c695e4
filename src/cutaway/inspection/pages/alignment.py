"""Pages of alignments: where a translation looked, and what it depends on."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cutaway.inspection.pages.attention import heads_of
from cutaway.inspection.terms import PROBABILITY, SOURCE, TARGET, TOKEN, WEIGHT, left, right
from cutaway.page.blocks import Block, Heading, Line, Matrix, Page, Remark, Table, page
from cutaway.page.numbers import nats, share
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, say

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.inspection.alignment.hypotheses import Alignment
    from cutaway.inspection.alignment.source_effect import Agreement, SourceEffect


def alignment_map(weights: "Tensor", target: Sequence[str], source: Sequence[str]) -> Matrix:
    """A heat map of weights (T, S) of source pieces for target pieces."""
    return Matrix(weights.detach().cpu().double().numpy(), target, source, TARGET, SOURCE, WEIGHT)


def alignment_page(found: "Alignment") -> Page:
    """The best hypothesis with its heat map, in a drawing also each head's; all hypotheses with their scores."""
    blocks: list[Block] = [Line(SOURCE, found.source.pieces)]
    for place, each in enumerate(found.hypotheses, start=1):
        if each.alignment is None or each.cross_attention is None:
            continue
        if len(found.hypotheses) > 1:
            blocks.append(Heading(f"{place}. {each.text}"))
        blocks.append(alignment_map(each.alignment, each.pieces, found.source.pieces))
    return page(
        say("Where each hypothesis looked (mean of all heads)"),
        blocks,
    ).then(search_page(found))


def search_page(found: "Alignment") -> Page:
    """What greedy and beam search wrote."""
    listed: list[tuple[Text, str, str]] = [
        (say("beam {place}", place=place), f"{each.score:.3f}", each.text)
        for place, each in enumerate(found.hypotheses, start=1)
    ]
    greedy: tuple[Text, str, str] = (say("greedy"), f"{found.greedy.score:.3f}", found.greedy.text)
    columns = (left(say("search")), right(say("score")), left(say("translation")))
    return page(
        say("What the search found"),
        [
            Table(columns, [*listed, greedy]),
            Remark(say("score: the sum of the tokens' log-probabilities, divided by the length penalty.")),
        ],
    )


def source_effect_page(found: "SourceEffect") -> Page:
    return page(
        say("What each token depends on"),
        [
            _effect_map(found),
            Remark(_DEPENDS),
        ],
    )


def agreement_page(found: "Agreement") -> Page:
    def shown(rho: float | None) -> str:
        return "–" if rho is None else f"{rho:.2f}"

    return page(
        say("How far weights and effects agree (Spearman's ρ)"),
        [
            Line(say("mean of rows"), [shown(found.mean)]),
            Line(say("all cells"), [shown(found.pooled)]),
            Line(say("each token"), [shown(rho) for rho in found.rows]),
            Remark(say("1: the same order of source tokens, -1: the reverse, –: one side is constant.")),
        ],
    )


def _effect_map(found: "SourceEffect", drawn: bool = False) -> Matrix:
    values = found.effect.detach().cpu().double().numpy()
    hidden = say("source token hidden")
    return Matrix(values, found.outcome.pieces, found.source.pieces, TARGET, hidden, _FALL, "signed", drawn)


_FALL = say("fall of log-probability, nats")
_DEPENDS = say(
    "How far a token's log-probability falls when a source token is hidden by the mask; "
    "dependence, not purpose."
)


def looked_page(
    weights: "Tensor",
    effect: "SourceEffect",
    agree: "Agreement",
    layer: int | None,
    head: int | None,
    cross_attention: "Tensor | None",
) -> Page:
    """Attention beside its measured effect: weights (T, S) of the heads that were asked for; `cross_attention`
    (L, H, T, S) of all heads, for an atlas."""
    source, outcome = effect.source.pieces, effect.outcome.pieces
    rows = []
    for t, piece in enumerate(outcome):
        looked, needed = _best(source, weights[t], share), _best(source, effect.effect[t], nats)
        rows.append((truncate(piece, 14), share(float(effect.log_probs[t].exp())), looked, needed))
    columns = (
        left(TOKEN),
        right(PROBABILITY),
        left(say("looked at")),
        left(say("depends on (nats)")),
    )
    atlas = None
    if cross_attention is not None:
        n_layers, n_heads = cross_attention.shape[:2]
        layers, heads = range(n_layers), range(n_heads)
        atlas = heads_of(
            cross_attention, layers, heads, effect.outcome, effect.source, down=TARGET, across=SOURCE
        )
    correlation = None
    if agree.mean is not None:
        correlation = Remark(
            say(
                "The two put the source tokens in the same order by ρ = {mean:.2f} (Spearman, mean of rows).",
                mean=agree.mean,
            )
        )
    return page(
        _title(layer, head),
        [
            alignment_map(weights, outcome, source),
            Heading(say("What each token depends on")),
            Table(columns, rows),
            Remark(
                say(
                    "looked at: the source tokens with most cross-attention. depends on: how far the "
                    "token's log-probability falls when a source token is hidden by the mask; dependence, "
                    "not purpose."
                )
            ),
            correlation,
            _effect_map(effect, drawn=True),
            None if atlas is None else Heading(say("Every head")),
            atlas,
        ],
    )


def _title(layer: int | None, head: int | None) -> Phrase:
    where = say("all layers") if layer is None else say("layer {layer}", layer=layer)
    which = say("mean of all heads") if head is None else say("head {head}", head=head)
    return say("Where the decoder looked ({where}, {which})", where=where, which=which)


def _best(pieces: Sequence[str], values: "Tensor", shown: Callable[[float], str]) -> str:
    """The two source pieces of greatest value."""
    best = values.topk(min(2, len(pieces)))
    return "  ".join(
        f"{truncate(pieces[int(place)], 12)} {shown(value)}"
        for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )
