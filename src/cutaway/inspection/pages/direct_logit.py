"""Pages of direct logit attribution: what wrote a logit."""

from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.pages.words import LAYER, left, right
from cutaway.page.blocks import Block, Heading, Matrix, Page, Prose, Remark, Table, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import number

if TYPE_CHECKING:
    from cutaway.inspection.attribution.direct_logit import Component, LogitAttribution

TOP = 10  # components that are listed
_KINDS = {
    "token": Both("token vector", "词块向量"),
    "position": Both("position vector", "位置向量"),
    "segment": Both("segment vector", "段向量"),
    "attention bias": Both("attention bias", "注意力偏置"),
    "feed-forward": Both("feed-forward", "前馈网络"),
    "norm bias": Both("norm bias", "归一化偏置"),
    "output bias": Both("output bias", "输出偏置"),
}
_SHARE = Both("logits", "logit")
_NOT = Both(
    "A share is what a component wrote into the residual stream, read by the token's row of the output matrix, with "
    "the scales of the norms held. It says what was written directly, not what the logit would lose without it: later "
    "layers read it too.",
    "份额：该组成部分写入残差流的内容，用输出矩阵中这个词块对应的行读出，各归一化的缩放保持不变。它说明直接写入了什么，"
    "不等于去掉它之后 logit 会减少多少：后面的层也会读取它。",
)


def logit_page(found: "LogitAttribution", top: int = TOP) -> Page:
    """The strongest components, and all heads and feed-forward networks by layer."""
    listed = sorted(found.components, key=lambda each: -abs(each.share))[:top]
    rest = found.total - sum(each.share for each in listed)
    others = len(found.components) - len(listed)
    rows: list[tuple[Text, Text, Text]] = [
        (f"{each.share:+.3f}", "" if each.layer is None else str(each.layer), _named(each)) for each in listed
    ]
    if others:
        rows.append((f"{rest:+.3f}", "", Both(f"the {others} others together", f"其余 {others} 项之和")))
    columns = (
        right(Both("share", "份额")),
        right(LAYER),
        left(Both("written by", "由谁写入")),
    )
    caveat = None
    if found.approximate is not None:
        caveat = Remark(
            Both(f"To keep in mind: {found.approximate.en}.", f"请注意：{found.approximate.zh}。")
        )
    return page(
        _title(found),
        [
            Prose(
                Both("sum", "总和"),
                Both(
                    f"{found.total:.4f} of {len(found.components)} shares; logit {found.logit:.4f}, difference "
                    f"{found.difference:.1e}",
                    f"{len(found.components)} 项份额共 {found.total:.4f}；logit 为 {found.logit:.4f}，"
                    f"相差 {found.difference:.1e}",
                ),
            ),
            _capped(found),
            Table(columns, rows),
            *_by_layer(found),
            Remark(_NOT),
            caveat,
        ],
    )


def _title(found: "LogitAttribution") -> Both:
    where = Both(
        f"at token {found.position}, '{found.piece}'", f"第 {found.position} 个词块“{found.piece}”处，"
    )
    if found.against is None:
        return Both(
            f"What wrote the logit of '{found.token}' {where.en}",
            f"{where.zh}“{found.token}”的 logit 由谁写成",
        )
    return Both(
        f"What wrote the logit of '{found.token}' minus that of '{found.against}' {where.en}",
        f"{where.zh}“{found.token}”与“{found.against}”的 logit 之差由谁写成",
    )


def _capped(found: "LogitAttribution") -> Prose | None:
    """The model's own logit, where a soft cap makes it another than the one explained."""
    if abs(found.model_logit - found.logit) <= 1e-4 * max(1.0, abs(found.logit)):
        return None
    after = number(found.model_logit)
    return Prose(
        Both("capped", "限幅后"),
        Both(f"{after} is what the model gives after its soft cap", f"模型平滑限幅之后给出 {after}"),
    )


def _named(each: "Component") -> Text:
    if each.number is not None:
        kind = Both("head", "头") if each.kind == "head" else Both("expert", "专家")
        return Both(
            f"{kind.en} {each.number} of {each.place}", f"{each.place} 的第 {each.number} 个{kind.zh}"
        )
    kind = _KINDS[each.kind]
    return Both(f"{kind.en}, {each.place}", f"{kind.zh}，{each.place}")


def _by_layer(found: "LogitAttribution") -> list[Block]:
    """Layers down; across every head of self-attention and cross-attention, the feed-forward network (its experts
    together), and the biases of the layer."""
    cells: dict[tuple[int, str], float] = {}
    cross = any(each.place.endswith("cross_attn") for each in found.components)
    for each in found.components:
        if each.layer is not None:
            name = _column(each, cross)
            cells[each.layer, name] = cells.get((each.layer, name), 0.0) + each.share
    layers = sorted({layer for layer, _ in cells})
    names = sorted({name for _, name in cells}, key=_order)
    values = np.array([[cells.get((layer, name), 0.0) for name in names] for layer in layers])
    heads = Both("h heads", "h 头")
    if cross:
        heads = Both("s self-attention, c cross-attention", "s 自注意力的头，c 交叉注意力的头")
    return [
        Heading(
            Both(
                f"By layer ({heads.en}, ff feed-forward, b biases)",
                f"按层（{heads.zh}，ff 前馈网络，b 偏置）",
            )
        ),
        Matrix(
            values,
            [str(layer) for layer in layers],
            names,
            LAYER,
            Both("component", "组成部分"),
            _SHARE,
            "signed",
        ),
    ]


def _column(each: "Component", cross: bool) -> str:
    if each.kind == "head":
        side = ("c" if each.place.endswith("cross_attn") else "s") if cross else "h"
        return f"{side}{each.number}"
    return "ff" if each.kind in ("feed-forward", "expert") else "b"


def _order(name: str) -> tuple[int, int]:
    """In the order of the data's way."""
    if name in ("ff", "b"):
        return ("ff", "b").index(name) + 2, 0
    return int(name[0] == "c"), int(name[1:])
