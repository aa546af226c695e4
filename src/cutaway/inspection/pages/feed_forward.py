"""Pages of feed-forward networks: neurons at work on a token, and one neuron over a text."""

from collections.abc import Sequence
from math import exp, isnan
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.pages.words import SIDES, TOKEN, WEIGHT, left, right
from cutaway.page.blocks import Atlas, Block, Column, Heading, Line, Matrix, Page, Remark, Shaded, Table, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import share
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from cutaway.inspection.layers.firing import NeuronFiring
    from cutaway.inspection.layers.memory import Memory, Neuron, Word

ACTIVATION = Both("activation", "激活值")
NEURON = Both("neuron", "神经元")
ACROSS = 64  # neurons in a row of the picture of all


def memory_page(found: "Memory") -> Page:
    side, words = SIDES[found.side], bool(found.before)
    columns: list[Column] = [left(NEURON), right(WEIGHT), right(Both("length", "长度"))]
    if words:
        promotes = Both("promotes (suppresses, where weight < 0)", "提升（权重 < 0 时为压低）")
        columns += [right("logit"), left(promotes)]
    written: list[Block] = [
        Remark(
            Both(
                "weight: what multiplies the neuron's value vector, length: of what it writes.",
                "权重：乘在该神经元值向量上的数；长度：它写入的向量的长度。",
            )
        )
    ]
    if words:
        written = [
            Heading(Both("What the model would say here", "模型在这里会说什么")),
            Line(Both("before", "之前"), _words(found.before)),
            Line(Both("after", "之后"), _words(found.after)),
            Remark(
                Both(
                    "weight: what multiplies the neuron's value vector, length: of what it writes, logit: its direct "
                    f"part in the logit of '{found.token}'. promotes: the tokens that one unit of it favours by the "
                    "way straight to the output; later layers are not in it.",
                    "权重：乘在该神经元值向量上的数；长度：它写入的向量的长度；logit：它对"
                    f"“{found.token}”的 logit 的直接贡献。提升：该神经元每增加一个单位，经直达输出的路径最抬高哪些"
                    "词块；不含后面各层的作用。",
                )
            ),
        ]
    kept = None
    if (reason := found.approximate) is not None:
        kept = Remark(Both(f"To keep in mind: {reason.en}.", f"请注意：{reason.zh}。"))
    return page(
        Both(
            f"Neurons of {side.en} layer {found.layer} that write most at token {found.position}, '{found.piece}'",
            f"{side.zh}第 {found.layer} 层中，在第 {found.position} 个词块“{found.piece}”处写入最多的神经元",
        ),
        [
            Table(columns, [_row(each, words) for each in found.neurons]),
            *written,
            kept,
            Heading(_of_all(found)),
            _all(found),
            Heading(Both("The listed neurons over the text", "上列神经元在整段文字上")),
            _over_text(found),
        ],
    )


def _row(each: "Neuron", words: bool) -> list[Text]:
    row: list[Text] = [name_of(each), f"{each.coefficient:#.4g}", f"{each.strength:#.4g}"]
    if words:
        assert each.logit is not None
        row += [f"{each.logit:+.3f}", "  ".join(truncate(word.piece, 12) for word in each.promotes)]
    return row


def name_of(neuron: "Neuron") -> str:
    """Its number, after that of its expert where there are experts."""
    return str(neuron.number) if neuron.expert is None else f"{neuron.expert}:{neuron.number}"


def _words(words: "Sequence[Word]") -> list[str]:
    return [f"{truncate(word.piece, 12)} {share(exp(word.value))} " for word in words]


def _of_all(found: "Memory") -> Both:
    if not found.experts:
        return Both("Every neuron of the layer at this token", "这一层的所有神经元在此词块处")
    return Both(
        "Every neuron of the experts at work at this token, expert by expert",
        "在此词块处工作的各专家的所有神经元，逐个专家",
    )


def _all(found: "Memory") -> Matrix | Atlas:
    """What multiplies each value vector, in rows of 64; where the last row is not full, nothing."""
    weight = Both("weight of the value vector", "值向量上的权重")
    coefficients = found.coefficients.detach().cpu().double().numpy()
    width = coefficients.shape[1]
    across = min(ACROSS, width)
    rows = -(-width // across)
    padded = np.pad(coefficients, ((0, 0), (0, rows * across - width)), constant_values=-np.inf)
    firsts = [str(row * across) for row in range(rows)]
    offsets = [f"+{n}" for n in range(across)]
    of_row = Both("number of the first", "行首编号")
    maps = [
        Matrix(each.reshape(rows, across), firsts, offsets, of_row, NEURON, weight, "signed", drawn=True)
        for each in padded
    ]
    if len(maps) == 1:
        return maps[0]
    return Atlas([str(expert) for expert in found.experts], maps, len(maps))


def _over_text(found: "Memory") -> Matrix:
    values = found.activations.double().numpy()  # (N, T)
    return Matrix(
        np.where(np.isnan(values), -np.inf, values),  # an expert that was not at work is shown as hidden
        [name_of(each) for each in found.neurons],
        found.pieces,
        NEURON,
        TOKEN,
        ACTIVATION,
        "signed",
        drawn=True,
    )


def neuron_firing_page(found: "NeuronFiring") -> Page:
    side, pieces = SIDES[found.side], found.tokens.pieces
    name = str(found.neuron) if found.expert is None else f"{found.expert}:{found.neuron}"
    values = found.activations.float().tolist()
    worked = [place for place, value in enumerate(values) if not isnan(value)]
    given = None
    if len(worked) < len(pieces):
        n, all_of = len(worked), len(pieces)
        given = Remark(
            Both(
                f"Its expert was given {n} of the {all_of} tokens; the others have no activation.",
                f"它所属的专家分到 {all_of} 个词块中的 {n} 个；其余词块处没有激活值。",
            )
        )
    return page(
        Both(
            f"Where neuron {name} of {side.en} layer {found.layer} fires",
            f"{side.zh}第 {found.layer} 层神经元 {name} 在何处激活",
        ),
        [
            Shaded(
                TOKEN, [pieces[place] for place in worked], [values[place] for place in worked], ACTIVATION
            )
            if worked
            else None,
            given,
        ],
    )
