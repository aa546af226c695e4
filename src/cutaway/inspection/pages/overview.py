"""The page of a text at a glance, which is the first that a reader sees."""

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

from cutaway.inspection.pages.changes import POOLINGS, effect_atlas, ranking
from cutaway.inspection.pages.explanation import line_map
from cutaway.inspection.pages.words import PROBABILITY, SOURCE
from cutaway.page.blocks import Block, Code, Heading, Line, Page, Prose, Remark, Tinted, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import number, share

if TYPE_CHECKING:
    from cutaway.inspection.runs.overview import Expected, Overview, Vector

TOKENS = Both("tokens", "词块")
SHOWN = 4  # numbers of a vector


def overview_page(found: "Overview", title: Text | None = None, steps: Sequence[Code] = ()) -> Page:
    """`steps`: what to look at next."""
    if title is None:
        title = Both(f"What {found.model} makes of this text", f"{found.model} 怎样处理这段文字")
    more: list[Block] = []
    if steps:
        more = [Heading(Both("What to look at next", "接下来可以看")), *steps]
    vector = [] if found.vector is None else _numbers(found.vector)
    every = Heading(Both("What the output loses without each head", "关掉某个头，输出损失多少"))
    return page(title, [*_tokens(found), *_heads(found), *more, *vector, every, effect_atlas(found.sweep)])


def _tokens(found: "Overview") -> list[Block]:
    """What the model read, and what it made of it."""
    probabilities = found.log_probs.exp().tolist()
    if found.source is not None and found.target is not None:
        least = found.expected[0]
        written = found.outcome.pieces[least.position]
        others = [word for word in least.words if word.id != found.outcome.ids[least.position]]
        doubted = Tinted(f"{written} {share(probabilities[least.position])}", probabilities[least.position])
        return [
            Line(SOURCE, found.source.pieces),
            Line(Both("writes", "写出"), _tinted(found.outcome.pieces, probabilities), tint=PROBABILITY),
            Prose(Both("translation", "译文"), found.text),
            Prose(PROBABILITY, _mean(found.log_probs.tolist())),
            Line(
                Both("least sure", "最没把握"),
                [doubted, Both("or", "或"), *(_word(word.piece, word.value) for word in others[:4])],
            ),
        ]
    read = found.source or found.target
    assert read is not None
    if found.vector is not None:
        return [Line(TOKENS, read.pieces), Prose(Both("gives", "得到"), _made(found.vector))]
    if found.source is not None:
        return [Line(TOKENS, read.pieces), *(_gap(expected) for expected in found.expected)]
    # What stands before position t is read there, so the first token has no probability and the last is not read.
    given = probabilities[: len(read) - 1]
    whole = [Prose(PROBABILITY, _mean(found.log_probs.tolist()[: len(given)]))] if given else []
    return [
        Line(TOKENS, [read.pieces[0], *_tinted(read.pieces[1:], given)], tint=PROBABILITY),
        *whole,
        *(
            Line(Both("next", "下一个"), [_word(word.piece, word.value) for word in expected.words])
            for expected in found.expected
        ),
    ]


def _gap(expected: "Expected") -> Line:
    place = Both(f"gap {expected.position}", f"空缺 {expected.position}")
    return Line(place, [_word(word.piece, word.value) for word in expected.words])


def _word(piece: str, log_prob: float) -> Tinted:
    return Tinted(f"{piece} {share(exp(log_prob))}", exp(log_prob))


def _tinted(pieces: Sequence[str], probabilities: Sequence[float]) -> list[Tinted]:
    return [Tinted(piece, p, hint=share(p)) for piece, p in zip(pieces, probabilities, strict=True)]


def _mean(log_probs: Sequence[float]) -> Both:
    """All tokens' probability together, and that of each in the mean."""
    total = sum(log_probs)
    each = share(exp(total / len(log_probs)))
    return Both(
        f"e^{total:.2f}, {each} a token (geometric mean)", f"e^{total:.2f}，平均每个词块 {each}（几何平均）"
    )


def _made(vector: "Vector") -> Both:
    pooling, size = POOLINGS[vector.pooling], len(vector.values)
    first = " ".join(map(number, vector.values[:SHOWN].tolist()))
    length = Both(", made 1 long", "，再归一化到长度 1") if vector.normalised else Both("", "")
    return Both(
        f"a vector of {size:,} numbers, {first} …: {pooling.en}{length.en}. This model has no output head, so it gives "
        "no words.",
        f"{size:,} 维向量 {first} …，取{pooling.zh}{length.zh}。这个模型没有输出头，不输出词。",
    )


def _heads(found: "Overview") -> list[Block]:
    effect = Both(
        "by how many nats the log-probability of the output falls with this head switched off",
        "关掉这个头后，输出的对数概率下降多少奈特",
    )
    if found.sweep.unit != "nats":
        effect = Both(
            "1 minus the cosine between the vector and what it is with this head switched off, in thousandths",
            "关掉这个头前后，两个向量的 1 减余弦，以千分之一计",
        )
    return [
        Heading(Both("The heads that this output depends on most", "输出最依赖的头")),
        ranking(found.heads, found.sweep.unit),
        Remark(
            Both(
                f"effect: {effect.en} (the output: {found.sweep.output.en}); dependence, not purpose.",
                f"影响：{effect.zh}（输出指{found.sweep.output.zh}）；这是依赖，不是用途。",
            )
        ),
    ]


def _numbers(vector: "Vector") -> list[Block]:
    name = Both("The vector, number by number", "向量，逐个分量")
    return [Heading(name), line_map(vector.values.double().numpy(), "v", Both("component", "分量"))]
