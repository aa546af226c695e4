"""`--show projection`: tokens drawn flat, and what the drawing is worth."""

import re
from pathlib import Path

import pytest
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import neighbours, table_of, token_map
from cutaway.zoo import TRANSLATOR, find


def test_projection_around_one_token(cutaway: Run) -> None:
    asked = (TRANSLATOR, "书", "--top", "12")
    lines = shown(cutaway, View.PROJECTION, *asked).splitlines()
    found = token_map(table_of(load(find(TRANSLATOR))), ["书"], around=12)
    assert lines[0] == "13 tokens of the embedding table, drawn flat"
    kept = found.projection
    shares = next(line.split() for line in lines if line.startswith("variance "))
    assert [shares[3], shares[6]] == [f"{each:.3f}" for each in kept.variance_kept]
    trust = next(line.split() for line in lines if line.startswith("trust "))
    assert trust[1:] == [f"{kept.trustworthiness:.3f}", "(k", "=", "6)"]
    first = lines[next(place for place, line in enumerate(lines) if line.startswith("piece")) + 2]
    near = neighbours(table_of(load(find(TRANSLATOR))), "书", top=3).items
    assert first.split() == ["书", *(word for each in near for word in (each.piece, f"{each.value:.3f}"))]
    chinese = shown_in_chinese(cutaway, View.PROJECTION, *asked)
    assert chinese.startswith("嵌入表中 13 个词块的平面图\n")
    html, texts = drawn(cutaway, View.PROJECTION, *asked, lang="zh")
    assert set(found.pieces) <= set(re.findall("<title>(.*?)</title>", html))
    assert html.count("<polyline") == 13 and "它的近邻" in texts


def test_projection_of_several_tokens(cutaway: Run, tmp_path: Path) -> None:
    saved = tmp_path / "map.npz"
    asked = (TRANSLATOR, "猫 狗 书 #437 国王", "--name", "unembedding")
    assert cutaway("inspect", *asked, "--show", "projection", "--save", saved).code == 0
    found = result(cutaway, View.PROJECTION, *asked)
    assert found["pieces"] == ["猫", "狗", "书", "国王"]  # 书 is token 437
    assert found["table"] == "unembedding" and len(found["projection"]["coordinates"]) == 4
    both = result(cutaway, View.PROJECTION, TRANSLATOR, "猫 国王", "--top", "4")
    assert len(both["ids"]) == 10 and set(both["groups"]) == {0, 1}
    assert "• 猫 and its nearest  × 国王 and its nearest" in shown(
        cutaway, View.PROJECTION, TRANSLATOR, "猫 国王", "--top", "4"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TRANSLATOR, "书", "--show", "projection", "--name", "x"), "--name is 'x', expected embedding or"),
        ((TRANSLATOR, "猫 狗", "--show", "projection"), "the text names 2 tokens, expected one or at least 3"),
        ((TRANSLATOR, " ", "--show", "projection"), "the text is empty, expected tokens"),
        ((TRANSLATOR, "猫 狗 书", "--show", "projection", "--top", "0"), "--top is 0, expected at least 1"),
        ((TRANSLATOR, "书", "--show", "projection", "--layer", "1"), "--layer has no effect on --show proj"),
    ],
)  # fmt: skip
def test_what_is_refused(cutaway: Run, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, *arguments)
