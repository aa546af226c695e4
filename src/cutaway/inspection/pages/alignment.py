"""Pages of alignments: where a translation looked, and what it depends on."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cutaway.inspection.pages.attention import heads_of
from cutaway.inspection.pages.words import PROBABILITY, SOURCE, TARGET, TOKEN, WEIGHT, left, right
from cutaway.page.blocks import Block, Heading, Line, Matrix, Page, Remark, Table, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import nats, share
from cutaway.text.display import truncate

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
        Both("Where each hypothesis looked (mean of all heads)", "每个候选译文看向哪里（所有头的平均）"),
        blocks,
    ).then(search_page(found))


def search_page(found: "Alignment") -> Page:
    """What greedy and beam search wrote."""
    listed: list[tuple[Text, str, str]] = [
        (Both(f"beam {place}", f"束搜索 {place}"), f"{each.score:.3f}", each.text)
        for place, each in enumerate(found.hypotheses, start=1)
    ]
    greedy: tuple[Text, str, str] = (Both("greedy", "贪心"), f"{found.greedy.score:.3f}", found.greedy.text)
    columns = (left(Both("search", "搜索")), right(Both("score", "得分")), left(Both("text", "译文")))
    return page(
        Both("What the search found", "搜索找到的译文"),
        [
            Table(columns, [*listed, greedy]),
            Remark(
                Both(
                    "score: the sum of the tokens' log-probabilities, divided by the length penalty.",
                    "得分：各词块对数概率之和，除以长度惩罚。",
                )
            ),
        ],
    )


def source_effect_page(found: "SourceEffect") -> Page:
    return page(
        Both("What each token depends on", "每个词块依赖什么"),
        [
            _effect_map(found),
            Remark(_DEPENDS),
        ],
    )


def agreement_page(found: "Agreement") -> Page:
    def shown(rho: float | None) -> str:
        return "–" if rho is None else f"{rho:.2f}"

    return page(
        Both("How far weights and effects agree (Spearman's ρ)", "权重与影响的一致程度（Spearman ρ）"),
        [
            Line(Both("mean of rows", "各行平均"), [shown(found.mean)]),
            Line(Both("all cells", "所有格"), [shown(found.pooled)]),
            Line(Both("each token", "每个词块"), [shown(rho) for rho in found.rows]),
            Remark(
                Both(
                    "1: the same order of source tokens, -1: the reverse, –: one side is constant.",
                    "1：原文词块的次序相同；-1：次序相反；–：有一边全都相等。",
                )
            ),
        ],
    )


def _effect_map(found: "SourceEffect", drawn: bool = False) -> Matrix:
    values = found.effect.detach().cpu().double().numpy()
    hidden = Both("source token hidden", "被遮住的原文词块")
    return Matrix(values, found.outcome.pieces, found.source.pieces, TARGET, hidden, _FALL, "signed", drawn)


_FALL = Both("fall of log-probability, nats", "对数概率的下降，奈特")
_DEPENDS = Both(
    "How far a token's log-probability falls when a source token is hidden by the mask; dependence, not purpose.",
    "用掩码遮住某个原文词块时，该词块的对数概率下降多少；这是依赖，不是用途。",
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
        left(Both("looked at", "看向")),
        left(Both("depends on (nats)", "依赖（奈特）")),
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
            Both(
                f"The two put the source tokens in the same order by ρ = {agree.mean:.2f} (Spearman, mean of rows).",
                f"两者给原文词块的排序，相关系数 ρ = {agree.mean:.2f}（Spearman，各行平均）。",
            )
        )
    return page(
        _title(layer, head),
        [
            alignment_map(weights, outcome, source),
            Heading(Both("What each token depends on", "每个词块依赖什么")),
            Table(columns, rows),
            Remark(
                Both(
                    "looked at: the source tokens with most cross-attention. depends on: how far the token's "
                    "log-probability falls when a source token is hidden by the mask; dependence, not purpose.",
                    "看向：交叉注意力最多的原文词块。依赖：用掩码遮住某个原文词块后，该词块的对数概率下降多少；"
                    "这是依赖，不是用途。",
                )
            ),
            correlation,
            _effect_map(effect, drawn=True),
            None if atlas is None else Heading(Both("Every head", "每一个头")),
            atlas,
        ],
    )


def _title(layer: int | None, head: int | None) -> Both:
    where = Both("all layers", "所有层") if layer is None else Both(f"layer {layer}", f"第 {layer} 层")
    which = (
        Both("mean of all heads", "所有头的平均") if head is None else Both(f"head {head}", f"第 {head} 头")
    )
    return Both(
        f"Where the decoder looked ({where.en}, {which.en})", f"解码器看向哪里（{where.zh}，{which.zh}）"
    )


def _best(pieces: Sequence[str], values: "Tensor", shown: Callable[[float], str]) -> str:
    """The two source pieces of greatest value."""
    best = values.topk(min(2, len(pieces)))
    return "  ".join(
        f"{truncate(pieces[int(place)], 12)} {shown(value)}"
        for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )
