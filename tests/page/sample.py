"""A page with every kind of block."""

from typing import get_args

import numpy as np

from cutaway.page.blocks import (
    Atlas,
    Bar,
    Bars,
    Block,
    Code,
    Column,
    Edited,
    Heading,
    Line,
    Matrix,
    Page,
    Point,
    Points,
    Prose,
    Remark,
    Shaded,
    Table,
    Tinted,
    page,
)  # fmt: skip
from cutaway.page.locale import Both

SOURCE = [">>eng<<", "好久", "不见", "</s>"]
TARGET = ["▁Long", "▁time", "</s>"]
WEIGHTS = np.array([[0.1, 0.6, 0.24, 0.06], [0.0, 0.9, 0.1, 0.0], [0.0, 0.2, 0.3, 0.5]])
EFFECTS = np.array([[1.5, -0.25, 0.0, -np.inf], [-3.0, 0.004, np.nan, 2.0], [0.5, 0.5, 0.5, 0.5]])
DOWN, ACROSS, UNIT = Both("target", "译文"), Both("source", "原文"), Both("weight", "权重")
NASTY = 'a<b>&"c"'
MAP = Matrix(WEIGHTS, TARGET, SOURCE, DOWN, ACROSS, UNIT)


def sample() -> Page:
    made = page(
        Both("Where it looked", "它看向哪里"),
        [
            Line(Both("tokens", "词块"), SOURCE),
            Prose(Both("text", "文字"), f"Long time no see. {NASTY}"),
            MAP,
            Heading(Both("Effects", "影响")),
            Matrix(EFFECTS, TARGET, SOURCE, DOWN, ACROSS, Both("nats", "奈特"), "signed"),
            None,
            Table(
                [Column(Both("token", "词块")), Column(Both("probability", "概率"), "right"), Column("")],
                [["好久", "0.25", Bar(0.25)], [NASTY, "1.000", Bar(1.0)]],
            ),
            Line(Both("writes", "写出"), [Tinted("▁Long", 0.25, hint="0.250"), "</s>"], Both("chance", "可能")),
            Table(
                [Column(Both("at", "在")), Column(Both("reads", "读作"))],
                [["</s>", Tinted("好久", -0.5, "signed")]], Both("change", "变化"), keep=1,
            ),
            Code(Both("to copy", "可复制"), "print(1 < 2)"),
            Bars([3.0, 2.0, 0.5], Both("singular value", "奇异值"), "σ"),
            Shaded(Both("share", "份额"), ["▁Long", "▁time"], [0.5, -1.25], Both("nats", "奈特")),
            Edited([("equal", ["Long"], ["Long"]), ("delete", ["time"], []), ("insert", [], ["no"]),
                    ("replace", ["see"], ["sea"])]),
            Heading(Both("Every head", "每一个头")),
            Atlas(["0.0", "0.1"], [MAP, Matrix(1 - WEIGHTS, TARGET, SOURCE, DOWN, ACROSS, UNIT)], 2),
            Heading(Both("In a plane", "平面图")),
            Points(
                [Point(0, 0, "国王"), Point(2, 1, "女王"), Point(0, 1, "man", 1)],
                "PC1", "PC2", [[0, 1]], [Both("Chinese", "中文"), Both("English", "英文")],
            ),
            Remark(Both("Weights, not purpose.", "这是权重，不是目的。")),
        ],
    )  # fmt: skip
    assert {type(block) for block in made.blocks} == set(get_args(Block))
    return made
