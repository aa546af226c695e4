"""`--show analogy`: a - b + c, where the words themselves stand, and the plane of the two differences."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import analogy, table_of
from cutaway.zoo import TRANSLATOR, find

KING = (TRANSLATOR, "国王 - 男人 + 女人")


def test_analogy(cutaway: Run, tmp_path: Path) -> None:
    out = shown(cutaway, View.ANALOGY, *KING)
    assert out.startswith("国王 - 男人 + 女人: nearest in the embedding table\n")
    best = result(cutaway, View.ANALOGY, *KING)["answers"]
    given = shown(cutaway, View.ANALOGY, TRANSLATOR, "国王 男人 女人", "--target", best[1]["piece"])
    row = next(line.split() for line in given.splitlines() if line.startswith("expected"))
    assert row[3] == "2"  # without a, b, c
    saved = tmp_path / "analogy.safetensors"
    assert cutaway("inspect", *KING, "--show", "analogy", "--save", saved).code == 0
    assert load_file(saved)["answers.id"].tolist() == [each["id"] for each in best]
    chinese = shown_in_chinese(cutaway, View.ANALOGY, *KING)
    assert chinese.startswith("国王 - 男人 + 女人：嵌入表中最近的词块\n") and "平行四边形" in chinese


def test_an_analogy_is_drawn_true_to_scale(cutaway: Run) -> None:
    _, texts = drawn(cutaway, View.ANALOGY, *KING)
    plane = analogy(table_of(load(find(TRANSLATOR))), "国王", "男人", "女人").plane
    assert {"a 国王", "b 男人", "c 女人", f"d {plane.corners[3].piece}", "a - b + c"} <= set(
        texts.split("\n")
    )
    svg = Path("page.svg").read_text(encoding="utf-8")
    lines = re.findall(r'<polyline points="([\d.]+),([\d.]+) ([\d.]+),([\d.]+)"', svg)
    arrows = torch.tensor([[float(number) for number in line] for line in lines], dtype=torch.float64)
    drawn_arrows = arrows[:, 2:] - arrows[:, :2]
    lengths = drawn_arrows.norm(dim=1)
    assert float(lengths[1] / lengths[0]) == pytest.approx(plane.lengths[1] / plane.lengths[0], rel=2e-3)
    angle = torch.nn.functional.cosine_similarity(drawn_arrows[0], drawn_arrows[1], dim=0)
    assert float(angle) == pytest.approx(plane.cosine, abs=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TRANSLATOR, "a b", "--show", "analogy"), "the text has 2 words, expected three"),
    ],
)  # fmt: skip
def test_what_is_refused(cutaway: Run, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, *arguments)
