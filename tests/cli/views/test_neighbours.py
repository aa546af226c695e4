"""`--show neighbours`: the tokens that a model uses most alike."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import neighbours, table_of
from cutaway.zoo import TRANSLATOR, find

BOOK = (TRANSLATOR, "书", "--top", "4")


def test_neighbours(cutaway: Run, tmp_path: Path) -> None:
    out = shown(cutaway, View.NEIGHBOURS, *BOOK)
    found = neighbours(table_of(load(find(TRANSLATOR))), "书", top=4)
    assert out.startswith(f"Nearest to 书 (id {found.id}) in the embedding table\n")
    for line, item in zip(out.splitlines()[3:7], found.items, strict=True):
        assert line.split()[:3] == [item.piece, str(item.id), f"{item.value:.3f}"]
    items = result(cutaway, View.NEIGHBOURS, *BOOK)["items"]
    assert [each["piece"] for each in items] == [each.piece for each in found.items]
    saved = tmp_path / "near.safetensors"
    assert cutaway("inspect", *BOOK, "--show", "neighbours", "--save", saved).code == 0
    assert load_file(saved)["items.id"].tolist() == [each.id for each in found.items]
    chinese = shown_in_chinese(cutaway, View.NEIGHBOURS, *BOOK, "--name", "unembedding")
    assert chinese.startswith("解嵌入表（输出矩阵）中离 书（id ")
    html, texts = drawn(cutaway, View.NEIGHBOURS, *BOOK)
    assert f"width:{10 * found.items[0].value:.2f}em" in html and f"{found.items[0].value:.3f}" in texts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TRANSLATOR, "书", "--show", "neighbours", "--name", "embed"), "(did you mean 'embedding'?)"),
    ],
)  # fmt: skip
def test_what_is_refused(cutaway: Run, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, *arguments)
