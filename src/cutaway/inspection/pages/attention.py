"""Pages of attention: patterns, what heads measure, value-weighted patterns, rollout."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.inspection.pages.words import ATTENTIONS, HEAD, KEY, QUERY, TOKEN, WEIGHT, left, right
from cutaway.page.blocks import Atlas, Block, Matrix, Page, Remark, Scale, Table, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import share
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.inspection.attention.head_scores import HeadScores, Measures
    from cutaway.inspection.attention.patterns import Patterns
    from cutaway.inspection.attention.rollout import Rollout
    from cutaway.inspection.attention.value_weights import ValueWeights
    from cutaway.inspection.runs.run import Tokens

# A measure's field, its column, and what it measures.
MEASURES = (
    ("entropy", Both("entropy", "熵"), Both("entropy in nats", "熵的单位是奈特")),
    ("first", Both("first", "首词块"), Both("the first token", "首个词块")),
    ("special", Both("ctrl", "控制"), Both("control tokens (ctrl)", "控制词块")),
    ("punctuation", Both("punct", "标点"), Both("punctuation", "标点")),
    ("distance", Both("dist.", "距离"), Both("dist. in tokens", "距离的单位是词块")),
    ("previous", Both("prev", "前一"), Both("the token before (prev)", "前一个词块")),
    ("same", Both("same", "自身"), Both("the same", "自身")),
    ("next", Both("next", "后一"), Both("the next", "后一个词块")),
    (
        "induction",
        Both("induct", "归纳"),
        Both("those after earlier copies of it (induct)", "先前相同词块的后一个词块（归纳）"),
    ),
)
COUNTED = ("entropy", "distance")  # the others are weights
STAGES = {
    "scores": Both("scores q·k", "得分 q·k"),
    "scaled": Both("scaled scores", "缩放后的得分"),
    "masked": Both("scores after mask and position bias", "加掩码与位置偏置后的得分"),
    "pattern": Both("attention", "注意力"),
}


def patterns_page(found: "Patterns") -> Page:
    what, stage = ATTENTIONS[found.side], STAGES[found.stage]
    if found.stage == "pattern":
        title, scale, unit = what, "weight", WEIGHT
    else:
        title, scale, unit = Both(f"{what.en}: {stage.en}", f"{what.zh}：{stage.zh}"), "signed", stage
    return page(
        _of_one(title, found.layers, found.heads),
        [
            _most_weight(found) if found.stage == "pattern" else None,
            heads_of(
                found.values, found.layers, found.heads, found.queries, found.keys, scale=scale, unit=unit
            ),
            Remark(
                Both(
                    "A row is one query: what it weighs. In a decoder the query at a token predicts the next one. "
                    "Weights say where a head reads, not what it takes from there, nor what depends on it.",
                    "一行是一个查询给各个键的权重。在解码器里，某个词块处的查询用来预测下一个词块。权重说明头从哪里读，"
                    "不说明它读到了什么，也不说明输出是否依赖它。",
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
    return Table(
        [left(HEAD), left(Both("weighs most (mean over the queries)", "权重最大的键（对各查询平均）"))], rows
    )


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


def _of_one(title: Both, layers: Sequence[int], heads: Sequence[int]) -> Both:
    """The title with layer and head, where there is only one."""
    if len(layers) != 1 or len(heads) != 1:
        return title
    layer, head = layers[0], heads[0]
    return Both(f"{title.en}, layer {layer}, head {head}", f"{title.zh}，第 {layer} 层第 {head} 头")


def head_scores_page(found: "HeadScores") -> Page:
    what = ATTENTIONS[found.side]
    there = [each for each in MEASURES if getattr(found.scores, each[0]) is not None]
    fields = [field for field, _, _ in there]
    rows: list[list[Text]] = []
    for i, layer in enumerate(found.layers):
        for j, head in enumerate(found.heads):
            rows.append([f"{layer}.{head}", *_row(found.scores, fields, i, j)])
        rows.append([Both(f"{layer} even", f"{layer} 均匀"), *_row(found.uniform, fields, i)])
    return page(
        Both(f"What the heads of {what.en} measure on this text", f"{what.zh}各头在这段文字上的测量值"),
        [
            Table([left(HEAD), *(right(title) for _, title, _ in there)], rows),
            Remark(_measured(fields)),
        ],
    )


def _measured(fields: Sequence[str]) -> Both:
    """What the columns mean, of those that are there."""
    about = [(field, what) for field, _, what in MEASURES if field in fields]
    counted = [what for field, what in about if field in COUNTED]
    weights = [what for field, what in about if field not in COUNTED]
    units = Both(", ".join(each.en for each in counted), "，".join(each.zh for each in counted))
    on = Both(", ".join(each.en for each in weights), "、".join(each.zh for each in weights))
    return Both(
        f"Means over the text: {units.en}, the rest weight from 0 to 1 on: {on.en}. 'even': a head that weighs all "
        "keys alike. Scores of this text, not what a head is for.",
        f"对整段文字取平均：{units.zh}；其余是落在以下词块上的权重，0 到 1：{on.zh}。“均匀”指给所有键相同权重的头。"
        "这是在这段文字上测得的分数，不是头的用途。",
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
        left(Both("most weight", "权重最多")),
        left(Both("writes most", "写入最多")),
        left(Both("longest value", "值最长")),
        right(Both("length", "长度")),
        left(Both("shortest", "值最短")),
        right(Both("length", "长度")),
    )
    return Table(columns, rows)


def value_weights_page(found: "ValueWeights") -> Page:
    what = ATTENTIONS[found.side]
    reach = float(found.weights.max()) or 1.0
    length = Both(f"length, in shares of the longest, {reach:.3g}", f"长度，以最大值 {reach:.3g} 为 1")
    drawn = heads_of(found.weights / reach, found.layers, found.heads, found.queries, found.keys, unit=length)
    return page(
        _of_one(
            Both(f"{what.en}: weight times length of the value", f"{what.zh}：权重乘以值向量的长度"),
            found.layers,
            found.heads,
        ),
        [
            drawn,
            _longest(found),
            Remark(
                Both(
                    "How long each vector is that a head adds up (Kobayashi et al. 2020): a large weight on a short "
                    "vector moves little. Vectors may still cancel out. most weight, writes most: the keys of most "
                    "weight and of longest weighted vectors, over all queries.",
                    "一个头所累加的各个向量的长度（Kobayashi 等 2020）：权重大但向量短，影响仍然小。"
                    "向量之间还可能相互抵消。权重最多、写入最多：对所有查询求和，得到权重最多的键，以及加权后向量最长的键。",
                )
            ),
        ],
    )


def rollout_page(found: "Rollout") -> Page:
    side = ATTENTIONS[found.side]
    names = [Both(f"after layer {layer}", f"第 {layer} 层之后") for layer in range(len(found.weights))]
    array = found.weights.detach().cpu().double().numpy()
    pieces = found.tokens.pieces
    unit = Both("share", "份额")
    maps = [Matrix(each, pieces, pieces, TOKEN, Both("input token", "输入词块"), unit) for each in array]
    blocks: list[Block] = [maps[-1], Atlas(names, maps, min(8, len(maps)))]
    share = f"{found.residual:g}"
    return page(
        Both(
            f"Rollout of {side.en}, all {len(maps)} layers",
            f"{side.zh}的逐层展开（rollout），共 {len(maps)} 层",
        ),
        [
            *blocks,
            Remark(
                Both(
                    f"The mean patterns of all layers multiplied, the residual connection taken as a share of {share} "
                    "everywhere (Abnar & Zuidema 2020). Approximate by construction: it knows weights only, neither "
                    "values nor norms nor feed-forward networks.",
                    f"把各层的平均权重相乘，残差连接一律按 {share} 的份额计入（Abnar 与 Zuidema 2020）。"
                    "这种做法本身就是近似：它只用到权重，没有考虑值向量、归一化和前馈网络。",
                )
            ),
        ],
    )
