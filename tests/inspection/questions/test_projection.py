"""Tokens in a plane: what is really near each of them is not read off the drawing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese

from cutaway import CutawayError, find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.inspection.principal_axes import pca
from cutaway.inspection.questions.neighbours import neighbours
from cutaway.inspection.questions.projection import projection
from cutaway.inspection.vectors import VectorTable, table_of
from cutaway.page.blocks import Points
from cutaway.zoo import TRANSLATOR

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("translator", None, {"tokens": ["今天", 30, 31], "around": 2, "k": 1}),
]


@pytest.fixture(scope="module")
def bundled() -> Loaded:
    return load(find(TRANSLATOR))


def test_true_neighbours_are_those_of_the_whole_table(bundled: Loaded) -> None:
    table = table_of(bundled)
    found = projection(bundled, ("猫", "狗", "书", "king"), listed=5)
    assert found.ids == found.named and found.pieces == tuple(table.label(id) for id in found.ids)
    rows = torch.nn.functional.normalize(table.vectors.detach().double(), dim=1)
    for id, near in zip(found.ids, found.neighbours, strict=True):
        cosines = rows @ rows[id]
        cosines[id] = -torch.inf
        best = cosines.topk(5)
        assert [each.id for each in near] == best.indices.tolist()
        assert [each.value for each in near] == pytest.approx(best.values.tolist())


def test_neighbours_of_the_named_ones_are_drawn_once_each(bundled: Loaded) -> None:
    found = projection(bundled, ("书", "图书"), around=6)
    around = [[each.id for each in neighbours(bundled, piece, top=6).items] for piece in ("书", "图书")]
    assert set(found.ids) == {*found.named, *around[0], *around[1]}
    assert len(set(found.ids)) == len(found.ids) and list(found.ids[:2]) == list(found.named)
    for id, group in zip(found.ids[2:], found.groups[2:], strict=True):
        assert id in around[group] and (group == 0 or id not in around[0])
    assert len(projection(bundled, ("书",)).ids) == 31


def test_the_drawing_is_of_directions(bundled: Loaded) -> None:
    found = projection(bundled, ("书",), around=20, k=5)
    rows = table_of(bundled).vectors.detach()[list(found.ids)].double()
    rows = rows / rows.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found.axes.coordinates, pca(rows, k=5).coordinates)
    assert found.axes.labels == found.pieces
    distances = torch.cdist(rows, rows).fill_diagonal_(torch.inf)
    assert found.nearest.tolist() == distances.argmin(dim=1).tolist()
    (drawn,) = (block for block in found.page().blocks if isinstance(block, Points))
    assert [tuple(path) for path in drawn.paths] == list(enumerate(found.nearest.tolist()))
    np.testing.assert_allclose([(point.x, point.y) for point in drawn.points], found.axes.coordinates.numpy())


def test_what_cannot_be_drawn_is_refused(bundled: Loaded) -> None:
    for tokens, options, message in (
        (("书", "书"), {}, "tokens to draw: 1, expected at least 3"),
        (("书",), {"around": -1}, "around is -1, expected at least 0"),
        (("书",), {"listed": 0}, "listed is 0, expected at least 1"),
        (("书",), {"k": 0}, "k is 0, expected at least 1"),
        ((), {}, "tokens to draw: 0"),
    ):
        given: Any = options
        with pytest.raises(CutawayError, match=message):
            projection(bundled, tokens, **given)
    empty = VectorTable("embedding", torch.eye(5)[[0, 1, 2, 3]] * torch.tensor([1.0, 0, 1, 1, 1]), None)
    with pytest.raises(CutawayError, match=r"the vector of ⟨1⟩ \(id 1\) is 0"):
        projection(empty, (0, 1, 2))
    damaged = VectorTable("embedding", torch.eye(6) * torch.inf, None)
    with pytest.raises(CutawayError, match="values that are not finite"):
        projection(damaged, (0, 1, 2))


def test_the_page_says_what_the_drawing_is_worth(cutaway: command.Run) -> None:
    asked = ("projection", "书", "--around", "12")
    lines, found = shown(cutaway, *asked).splitlines(), result(cutaway, *asked)
    assert lines[0] == "13 tokens of the embedding table in a plane"
    shares = next(line.split() for line in lines if line.startswith("variance "))
    assert [shares[3], shares[6]] == [f"{each:.3f}" for each in found["axes"]["variance_kept"]]
    trust = next(line.split() for line in lines if line.startswith("trust "))
    assert trust[1:] == [f"{found['axes']['trustworthiness']:.3f}", "(k", "=", "6)"]
    first = lines[next(place for place, line in enumerate(lines) if line.startswith("piece ")) + 2]
    near = found["neighbours"][0]
    assert first.split() == [
        "书",
        *(word for each in near for word in (each["piece"], f"{each['value']:.3f}")),
    ]
    page = page_of(cutaway, *asked)
    assert page.count("<polyline") == 13 and all(piece in page for piece in found["pieces"])


def test_as_a_command_in_both_languages(cutaway: command.Run) -> None:
    found = result(cutaway, "projection", "猫", "狗", "书", "#437", "国王", "--table", "unembedding")
    # 书 is token 437
    assert found["pieces"] == ["猫", "狗", "书", "国王"]
    assert found["table"] == "unembedding" and len(found["axes"]["coordinates"]) == 4
    two = ("projection", "猫", "国王", "--around", "4")
    assert set(result(cutaway, *two)["groups"]) == {0, 1}
    assert "• 猫 and its nearest  × 国王 and its nearest" in shown(cutaway, *two)
    assert shown_in_chinese(cutaway, *two).startswith("嵌入表中 10 个词元的平面图\n")
    assert "cutaway inspect projection needs tokens; see" in refused(cutaway, "projection")
    assert "tokens to draw: 2, expected at least 3" in refused(cutaway, "projection", "猫", "狗")
    assert "--around is -1, expected at least 0" in refused(cutaway, "projection", "猫", "--around", "-1")


def test_no_pass_at_all(passes: Callable[[], int], translator: Path) -> None:
    projection(load(translator), ("今天",), around=5).page()
    assert passes() == 0
