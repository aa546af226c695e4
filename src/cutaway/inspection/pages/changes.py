"""Pages of changes: what a run loses when something in it is changed, and what it writes then."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.pages.words import (
    ATTENTIONS,
    HEAD,
    LAYER,
    NATS,
    PROBABILITY,
    SIDES,
    TOKEN,
    left,
    right,
)
from cutaway.page.blocks import (
    Atlas,
    Bar,
    Block,
    Edit,
    Edited,
    Heading,
    Line,
    Matrix,
    Page,
    Prose,
    Remark,
    Table,
    Tinted,
    page,
)
from cutaway.page.locale import Both
from cutaway.page.numbers import nats, share
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from cutaway.inspection.changes.comparison import Comparison, Departure, VectorChange
    from cutaway.inspection.changes.output import Output
    from cutaway.inspection.changes.sweep import HeadEffect, HeadSweep, Unit

RANKED = 8  # heads
MOVED = 1e-5  # of its length: how far a residual stream must move to have moved
# What an effect is counted in, and how much of its own unit that is.
UNITS: "dict[Unit, tuple[Both, float]]" = {
    "nats": (NATS, 1.0),
    "1 - cosine": (Both("1 − cosine, ‰", "1 − 余弦，‰"), 1000.0),
}
POOLINGS = {
    "mean": Both("the mean of all tokens", "所有词块的平均"),
    "cls": Both("the first token's vector", "首个词块的向量"),
    "max": Both("the greatest of all tokens, number by number", "所有词块逐个分量的最大值"),
    "last": Both("the last token's vector", "最后一个词块的向量"),
}


def sweep_page(found: "HeadSweep", top: int = RANKED) -> Page:
    first, *others = effect_maps(found)
    done = Both("result set to 0", "结果清零")
    if found.set == "mean":
        done = Both("result replaced by its mean over the tokens", "结果换成它在各词块上的平均")
    if found.unit == "nats":
        what = Both(
            f"Fall of the output's log-probability ({found.base:.2f} in all) with one head's {done.en}. Below 0: more "
            "probable without it.",
            f"把一个头的{done.zh}后，输出的对数概率（总计 {found.base:.2f}）下降多少。小于 0：没有它，概率反而更大。",
        )
    else:
        what = Both(
            f"1 minus the cosine between the text's vector and what it is with one head's {done.en}, in thousandths: 0 "
            "where it points the same way.",
            f"这段文字的向量，与把一个头的{done.zh}之后的向量，二者的 1 减余弦，以千分之一计：0 表示方向不变。",
        )
    return page(
        first[0],
        [
            first[1],
            *(block for title, matrix in others for block in (Heading(title), matrix)),
            Heading(Both("The heads that the output depends on most", "输出最依赖的头")),
            ranking(found.ranking[:top], found.unit),
            Remark(
                Both(
                    f"{what.en} The output: {found.output.en}. Dependence on this one head, whose work others may take "
                    "over; not its purpose.",
                    f"{what.zh}输出指{found.output.zh}。这只说明输出对这一个头的依赖，别的头可能接替它的工作；这不是它的用途。",
                )
            ),
        ],
    )


def effect_maps(found: "HeadSweep", drawn: bool = False) -> list[tuple[Both, Matrix]]:
    """For each side a title and the effects of its heads, layers down, with one scale for all."""
    unit, scale = UNITS[found.unit]
    greatest = scale * max(float(grid.abs().max()) for grid in found.effects.values())
    maps = []
    for side, grid in found.effects.items():
        n_layers, n_heads = grid.shape
        title = Both(
            f"{ATTENTIONS[side].en}: what the output loses without each head ({unit.en})",
            f"{ATTENTIONS[side].zh}：关掉某个头，输出损失多少（{unit.zh}）",
        )
        values = scale * grid.detach().cpu().double().numpy()
        layers, heads = [str(layer) for layer in range(n_layers)], [f"h{head}" for head in range(n_heads)]
        maps.append(
            (title, Matrix(values, layers, heads, LAYER, HEAD, unit, "signed", drawn, greatest or None))
        )
    return maps


def effect_atlas(found: "HeadSweep") -> Matrix | Atlas:
    """The effects of all heads with one scale for all sides."""
    maps = [matrix for _, matrix in effect_maps(found, drawn=True)]
    if len(maps) == 1:
        return maps[0]
    strongest = list(found.effects).index(found.ranking[0].side)
    return Atlas([ATTENTIONS[side] for side in found.effects], maps, len(maps), strongest)


def ranking(heads: "Sequence[HeadEffect]", unit: "Unit") -> Table:
    """Heads with their effects, the strongest as the longest bar."""
    counted, scale = UNITS[unit]
    longest = max((each.effect for each in heads), default=0.0)
    rows = [
        (
            SIDES[each.side],
            f"{each.layer}.{each.head}",
            nats(scale * each.effect),
            Bar(each.effect / longest if longest > 0 else 0.0),
        )
        for each in heads
    ]
    effect = Both(f"effect ({counted.en})", f"影响（{counted.zh}）")
    columns = (left(Both("attention", "注意力")), right(Both("layer.head", "层.头")), right(effect), left(""))
    return Table(columns, rows)


def output_page(found: "Output") -> Page:
    words = [
        Tinted(piece, math.exp(log_prob), hint=share(math.exp(log_prob)))
        for piece, log_prob in zip(found.pieces, found.log_probs, strict=True)
    ]
    return page(
        Both("What the model writes", "模型写出的文字"),
        [
            Prose(Both("text", "文字"), found.text),
            Line(Both("tokens", "词块"), words, tint=PROBABILITY),
            Line(Both("score", "得分"), [f"{found.score:.3f}"]),
        ],
    )


def comparison_page(found: "Comparison", changes: Sequence[Mapping[str, object]]) -> Page:
    """`changes` as JSON objects."""
    blocks: list[Block] = [
        Prose(Both("change", "改动"), json.dumps(change, ensure_ascii=False)) for change in changes
    ]
    if found.base is not None and found.changed is not None:
        blocks += _written(found, found.base, found.changed)
    blocks += _fates(found, changes) if found.vector is None else _vector(found.vector)
    blocks += [_way(departure) for departure in found.departures]
    for departure in found.departures:
        blocks += _departure_map(departure)
    return page(Both("The same text without and with the changes", "同一段文字：改动前与改动后"), blocks)


def _written(found: "Comparison", base: "Output", changed: "Output") -> list[Block]:
    same = Both("the same, token by token", "逐个词块相同")
    edits: list[tuple[Edit, Sequence[str], Sequence[str]]] = [
        (edit.kind, edit.base_pieces, edit.changed_pieces) for edit in found.token_edits
    ]
    return [
        Heading(Both("What the model writes", "模型写出的文字")),
        Prose(Both("without", "改动前"), base.text),
        Prose(Both("with", "改动后"), changed.text),
        Remark(same) if base.ids == changed.ids else Edited(edits),
    ]


def _fates(found: "Comparison", changes: Sequence[Mapping[str, object]]) -> list[Block]:
    """The tokens of the unchanged output, each before and after."""
    differences: list[float] = found.difference.tolist()
    finite = [abs(each) for each in differences if math.isfinite(each)]
    reach = max(finite, default=0.0) or 1.0
    rows = []
    for piece, before, after, difference, divergence in zip(
        found.pieces,
        found.base_log_probs.exp().tolist(),
        found.changed_log_probs.exp().tolist(),
        differences,
        found.divergence.tolist(),
        strict=True,
    ):
        tint = max(-1.0, min(1.0, difference / reach))
        change = Tinted(nats(difference), tint, "signed")
        rows.append((truncate(piece, 20), share(before), share(after), change, f"{divergence:.3f}"))
    columns = (
        left(TOKEN),
        right(Both("without", "改动前")),
        right(Both("with", "改动后")),
        right(Both("change", "变化")),
        right("KL"),
    )
    total = nats(sum(differences))
    both_ways = all(departure.side == "encoder" for departure in found.departures)
    given = Both("those before it", "它前面的词块")
    opened = any((change["op"], change.get("set")) == ("mask", "open") for change in changes)
    if both_ways:
        given = Both("the whole text", "整段文字")
    return [
        Heading(Both("How the tokens of the unchanged output fare", "原输出各词块的概率变化")),
        Table(
            columns,
            rows,
            tint=Both(f"change of log-probability, ±{reach:.3g} nats", f"对数概率的变化，±{reach:.3g} 奈特"),
        ),
        Remark(
            Both(
                f"without, with: probability, given {given.en}; change: of its logarithm, in nats, {total} in all; KL: "
                "divergence of the whole distribution, in nats. A trained model has never met such changes: they show "
                "dependence, not purpose.",
                f"改动前、改动后：概率，以{given.zh}为条件；变化：对数概率的变化，单位奈特，总计 {total}；"
                "KL：整个分布的 KL 散度，单位奈特。模型训练时从未遇到过这样的改动：这里说明的是依赖，不是用途。",
            )
        ),
        *([Remark(_OPENED)] if opened else []),
    ]


_OPENED = Both(
    "With the mask open, a token sees itself and those after it here, where the whole text is given. What the model "
    "writes it writes word by word: there the mask can only open what stands in the prompt.",
    "掩码打开后，这里给定了整段文字，每个词块能看到自己和后面的词块。而模型写作是逐词写出的：那时掩码能打开的，"
    "只有提示里已有的内容。",
)


def _vector(found: "VectorChange") -> list[Block]:
    pooling = POOLINGS[found.pooling]
    size = len(found.base)
    return [
        Heading(Both("What becomes of the text's vector", "这段文字的向量有何变化")),
        Line(Both("1 − cosine", "1 − 余弦"), [f"{found.distance:.4g}"]),
        Remark(
            Both(
                f"The vector of {size:,} numbers is {pooling.en}. 0: it points the same way; 1: at a right angle. A "
                "trained model has never met such changes: they show dependence, not purpose.",
                f"向量有 {size:,} 个分量，取自{pooling.zh}。0：方向不变；1：成直角。模型训练时从未遇到过这样的改动："
                "这里说明的是依赖，不是用途。",
            )
        ),
    ]


def _way(departure: "Departure") -> Prose:
    """Where the residual stream parts from the unchanged one."""
    first = departure.first(MOVED)
    if first is None:
        where = Both("residual stream does not move", "残差流没有变化")
    else:
        farthest = f"{100 * float(departure.relative[-1].max()):.3g} %"
        at = Both("at its input", "输入处")
        if first > 0:
            at = Both(f"in layer {first - 1}", f"第 {first - 1} 层")
        where = Both(
            f"residual stream first moves {at.en}; at its end by up to {farthest} of its length",
            f"残差流从{at.zh}起变化；到末尾，变化最大处达其长度的 {farthest}",
        )
    return Prose(SIDES[departure.side], where)


def _departure_map(departure: "Departure") -> list[Block]:
    if departure.first(MOVED) is None:
        return []
    side, values = SIDES[departure.side], departure.relative.detach().cpu().double().numpy()
    borders = [str(border) for border in range(len(values))]
    return [
        Heading(
            Both(f"How far the residual stream of the {side.en} has moved", f"{side.zh}的残差流偏移了多远")
        ),
        Matrix(
            values,
            borders,
            departure.tokens.pieces,
            Both("layers passed", "经过的层数"),
            Both("token read", "读入的词块"),
            "‖x' − x‖ / ‖x‖",
            drawn=True,
            greatest=float(values.max(initial=1.0, where=np.isfinite(values))),
        ),
    ]
