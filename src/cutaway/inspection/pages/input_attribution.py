"""Pages of gradients: which tokens of the input a prediction depends on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.inspection.pages.words import SOURCE, TARGET, TOKEN, left, right
from cutaway.page.blocks import Block, Heading, Page, Prose, Remark, Shaded, Table, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import nats, number

if TYPE_CHECKING:
    from cutaway.inspection.attribution.gradients import InputAttribution

_METHODS = {
    "gradient x input": Both("grad × input", "梯度 × 输入"),
    "integrated gradients": Both("integrated", "积分梯度"),
}
_QUANTITIES = {
    "logit": (Both("logit", "logit"), Both("logits", "logit")),
    "log_prob": (Both("log-probability", "对数概率"), Both("nats", "奈特")),
}
_NOT = Both(
    "A share tells of the way through the space of vectors, between whose ends lie no words; another start gives other "
    "shares.",
    "份额说的是向量空间里的一条路，路的两端之间没有词；换一个起点，份额也会不同。",
)


def input_attribution_page(found: "InputAttribution") -> Page:
    method = _METHODS[found.method]
    title = _title(found)
    shaded = [_shaded(found, name) for name in found.shares]
    return page(
        Both(f"{title.en}: {method.en}", f"{title.zh}：{method.zh}"),
        [*shaded, _sums(found), *_remarks([found])],
    )


def input_attributions_page(found: "Sequence[InputAttribution]") -> Page:
    """The same number by several methods, side by side."""
    first = found[0]
    blocks: list[Block] = []
    for name, tokens in first.tokens.items():
        if len(first.tokens) > 1:
            blocks.append(Heading(_reads(first, name)))
        blocks += [_shaded(each, name, _METHODS[each.method], drawn=True) for each in found]
        columns = (left(TOKEN), *(right(_METHODS[each.method]) for each in found))
        shares = [each.shares[name].tolist() for each in found]
        rows = [
            (piece, *(nats(values[place]) for values in shares))
            for place, piece in enumerate(tokens.pieces[: _read(first, name)])
        ]
        blocks.append(Table(columns, rows))
    return page(_title(first), [*blocks, *(_sums(each) for each in found), *_remarks(found)])


def _title(found: "InputAttribution") -> Both:
    what, _ = _QUANTITIES[found.quantity]
    piece = found.tokens[found.side].pieces[found.position]
    return Both(
        f"What the {what.en} of '{found.token}' at token {found.position}, '{piece}', depends on",
        f"第 {found.position} 个词块“{piece}”处，“{found.token}”的{what.zh}依赖什么",
    )


def _shaded(found: "InputAttribution", name: str, label: Text | None = None, drawn: bool = False) -> Shaded:
    _, unit = _QUANTITIES[found.quantity]
    shown = _reads(found, name) if label is None else label
    end = _read(found, name)
    greatest = max(float(shares.abs().max()) for shares in found.shares.values())  # one scale for both texts
    return Shaded(
        shown, found.tokens[name].pieces[:end], found.shares[name].tolist()[:end], unit, drawn, greatest
    )


def _read(found: "InputAttribution", name: str) -> int:
    """How many tokens of a side can count: a decoder's mask hides what stands after the predicting one."""
    return found.position + 1 if name == "decoder" else len(found.tokens[name])


def _reads(found: "InputAttribution", name: str) -> Both:
    """What the tokens of a side are to a reader."""
    if len(found.tokens) == 1:
        return TOKEN
    if name == "encoder":
        return SOURCE
    if _read(found, name) == len(found.tokens[name]):
        return TARGET
    last = found.position
    return Both(f"{TARGET.en}, up to token {last}", f"{TARGET.zh}，到第 {last} 个词块为止")


def _sums(found: "InputAttribution") -> Prose:
    """What the shares add up to, and what they should."""
    method, total, value = _METHODS[found.method], nats(found.total), number(found.value)
    if found.baseline_value is None or found.difference is None:
        return Prose(method, Both(f"sum {total}; value {value}", f"总和 {total}；数值 {value}"))
    start = (
        Both("zeros", "零向量")
        if found.baseline == "zero"
        else Both(f"{found.baseline}", f"{found.baseline}")
    )
    before, gain = number(found.baseline_value), nats(found.value - found.baseline_value)
    return Prose(
        method,
        Both(
            f"sum {total}; value {value} minus {before} at {start.en} is {gain}, and the sum misses "
            f"{nats(found.difference)} of it",
            f"总和 {total}；数值 {value} 减去起点（{start.zh}）的 {before} 得 {gain}，总和漏掉其中的 "
            f"{nats(found.difference)}",
        ),
    )


def _remarks(found: "Sequence[InputAttribution]") -> list[Remark]:
    told = [
        Remark(
            Both(
                f"{_METHODS[each.method].en}: {each.approximate.en}.",
                f"{_METHODS[each.method].zh}：{each.approximate.zh}。",
            )
        )
        for each in found
    ]
    return [*told, Remark(_NOT)]
