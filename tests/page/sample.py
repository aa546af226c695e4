"""A page with every kind of block, in two languages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np

from cutaway.page.blocks import (
    Atlas,
    Bar,
    Bars,
    Block,
    Caption,
    Code,
    Column,
    Diagram,
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
from cutaway.words import Locale, Phrase


@dataclass(frozen=True)
class Both(Phrase):
    """A text that brings its Chinese along."""

    zh: str = ""

    def said(self, locale: Locale, marks: Mapping[int, str] | None = None) -> str:
        return (self.zh if locale == "zh" else self.template).translate(marks or {})


def both(en: str, zh: str) -> Both:
    return Both(en, zh=zh)


SOURCE = [">>eng<<", "好久", "不见", "</s>"]
TARGET = ["▁Long", "▁time", "</s>"]
WEIGHTS = np.array([[0.1, 0.6, 0.24, 0.06], [0.0, 0.9, 0.1, 0.0], [0.0, 0.2, 0.3, 0.5]])
EFFECTS = np.array([[1.5, -0.25, 0.0, -np.inf], [-3.0, 0.004, np.nan, 2.0], [0.5, 0.5, 0.5, 0.5]])
DOWN, ACROSS, UNIT = both("target", "译文"), both("source", "原文"), both("weight", "权重")
NATS = both("nats", "奈特")
NASTY = 'a<b>&"c"'
ESCAPE = "\x1b[31mred\u202e\x00"
SPELLED = "⟨U+001B⟩[31mred⟨U+202E⟩⟨U+0000⟩"
MAP = Matrix(WEIGHTS, TARGET, SOURCE, DOWN, ACROSS, UNIT)
CAPTION = Caption(
    model="tiny", text=f"好久不见 {NASTY}", output="Long time no see", command="cutaway inspect align",
    python="import cutaway\nprint(1 < 2)", date="2026-11-30",
)  # fmt: skip


def sample() -> Page:
    made = page(
        both("Where it looked", "它看向哪里"),
        [
            Line(both("tokens", "词元"), SOURCE),
            Prose(both("text", "文字"), f"Long time no see. {NASTY}"),
            MAP,
            Heading(both("Effects", "影响")),
            Matrix(EFFECTS, TARGET, SOURCE, DOWN, ACROSS, NATS, "signed"),
            None,
            Table(
                [Column(both("token", "词元")), Column(both("probability", "概率"), "right"), Column("")],
                [["好久", "0.25", Bar(0.25)], [NASTY, "1.000", Bar(1.0)]],
            ),
            Line(both("writes", "写出"), [Tinted("▁Long", 0.25, hint="0.250"), "</s>"], both("chance", "可能")),
            Table(
                [Column(both("at", "在")), Column(both("reads", "读作"))],
                [["</s>", Tinted("好久", -0.5, "signed")]], both("change", "变化"), keep=1,
            ),
            Code(both("to copy", "可复制"), "print(1 < 2)"),
            Bars([3.0, 2.0, 0.5], both("singular value", "奇异值"), "σ"),
            Shaded(both("share", "份额"), ["▁Long", "▁time"], [0.5, -1.25], NATS),
            Edited([("equal", ["Long"], ["Long"]), ("delete", ["time"], []), ("insert", [], ["no"]),
                    ("replace", ["see"], ["sea"])]),
            Heading(both("Every head", "每一个头")),
            Atlas(["0.0", "0.1"], [MAP, Matrix(1 - WEIGHTS, TARGET, SOURCE, DOWN, ACROSS, UNIT)], 2),
            Heading(both("In a plane", "平面图")),
            Points(
                [Point(0, 0, "国王"), Point(2, 1, "女王"), Point(0, 1, "man", 1)],
                "PC1", "PC2", [[0, 1]], [both("Chinese", "中文"), both("English", "英文")],
            ),
            Remark(both("Weights, not purpose.", "这是权重，不是目的。")),
        ],
    )  # fmt: skip
    # A model's diagram has tests of its own.
    assert {type(block) for block in made.blocks} == set(get_args(Block)) - {Diagram}
    return made
