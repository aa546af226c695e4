"""Tokens drawn flat: what is really near each of them is not read off the drawing."""

import pytest
import torch

from cutaway.checkpoint.folder import Loaded, load
from cutaway.errors import CutawayError
from cutaway.inspection.geometry.projection import pca
from cutaway.inspection.geometry.token_map import token_map
from cutaway.inspection.geometry.vectors import VectorTable, neighbours, table_of
from cutaway.zoo import TRANSLATOR, find


@pytest.fixture(scope="module")
def translator() -> Loaded:
    return load(find(TRANSLATOR))


def test_true_neighbours_are_those_of_the_whole_table(translator: Loaded):
    table = table_of(translator)
    found = token_map(table, ["猫", "狗", "书", "king"], listed=5)
    assert found.ids == found.named and found.pieces == tuple(table.label(id) for id in found.ids)
    rows = torch.nn.functional.normalize(
        translator.model.get_parameter("source_embed.tokens.weight").detach().double(), dim=1
    )
    for id, near in zip(found.ids, found.neighbours, strict=True):
        cosines = rows @ rows[id]
        cosines[id] = -torch.inf
        best = cosines.topk(5)
        assert [each.id for each in near] == best.indices.tolist()
        assert [each.value for each in near] == pytest.approx(best.values.tolist())


def test_neighbours_of_the_named_ones_are_drawn_once_each(translator: Loaded):
    table = table_of(translator)
    found = token_map(table, ["书", "图书"], around=6)
    around = [[each.id for each in neighbours(table, piece, top=6).items] for piece in ("书", "图书")]
    assert set(found.ids) == {*found.named, *around[0], *around[1]}
    assert len(set(found.ids)) == len(found.ids)
    assert list(found.ids[:2]) == list(found.named)
    for id, group in zip(found.ids[2:], found.groups[2:], strict=True):
        assert id in around[group] and (group == 0 or id not in around[0])


def test_the_drawing_is_of_directions(translator: Loaded):
    table = table_of(translator)
    found = token_map(table, ["书"], around=20, k=5)
    rows = table.vectors.detach()[list(found.ids)].double()
    rows = rows / rows.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found.projection.coordinates, pca(rows, k=5).coordinates)
    assert found.projection.labels == found.pieces
    distances = torch.cdist(rows, rows).fill_diagonal_(torch.inf)
    assert found.nearest.tolist() == distances.argmin(dim=1).tolist()


def test_what_cannot_be_drawn_is_refused(translator: Loaded):
    table = table_of(translator)
    with pytest.raises(CutawayError, match="1 token to draw, expected at least 3"):
        token_map(table, ["书", "书"])
    with pytest.raises(CutawayError, match="around is -1 and listed 3"):
        token_map(table, ["书"], around=-1)
    empty = VectorTable("embedding", torch.eye(5)[[0, 1, 2, 3]] * torch.tensor([1.0, 0, 1, 1, 1]), None)
    with pytest.raises(CutawayError, match=r"the vector of ⟨1⟩ \(id 1\) is 0"):
        token_map(empty, [0, 1, 2])
