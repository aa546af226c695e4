"""The tokens nearest to one, against a plain calculation over the whole table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese

from cutaway import CutawayError, find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.inspection.questions.neighbours import nearest_to, neighbours
from cutaway.inspection.vectors import VectorTable, table_of
from cutaway.zoo import TRANSLATOR

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("poet", None, {"token": 20, "measure": "euclid", "table": "unembedding"}),
]


@pytest.fixture(scope="module")
def bundled() -> Loaded:
    return load(find(TRANSLATOR))


def test_the_nearest_of_the_whole_table(bundled: Loaded) -> None:
    found = neighbours(bundled, "king")
    rows = table_of(bundled).vectors.detach().double().numpy()
    assert found.id is not None and found.compared == len(rows)
    query = rows[found.id]
    values = rows @ query / np.maximum(np.linalg.norm(rows, axis=1) * np.linalg.norm(query), 1e-300)
    values[found.id] = -np.inf
    best = np.argsort(-values, kind="stable")[:10]
    assert [each.id for each in found.items] == best.tolist()
    np.testing.assert_allclose([each.value for each in found.items], values[best], rtol=1e-12)


def test_any_vector_has_a_nearest(bundled: Loaded) -> None:
    table = table_of(bundled)
    found = nearest_to(table, table.vectors[437], top=3, measure="dot")
    products = table.vectors.detach().double() @ table.vectors[437].detach().double()
    assert [each.id for each in found.items] == products.topk(3).indices.tolist()
    assert (found.id, found.piece) == (None, "")
    assert found.to_text().startswith("Nearest to the vector in the embedding table\n")
    with pytest.raises(CutawayError, match=r"shape \(3,\), expected \(256,\)"):
        nearest_to(table, torch.ones(3))
    with pytest.raises(CutawayError, match="values that are not finite: "):
        nearest_to(table, torch.full((256,), torch.nan))


def test_a_table_of_the_users_own() -> None:
    table = VectorTable("glove", torch.eye(5)[:4], None)
    found = neighbours(table, 0)
    assert found.to_text().startswith("Nearest to ⟨0⟩ (id 0) in the glove table\n")
    with pytest.raises(CutawayError, match="length 0 has no direction"):
        neighbours(VectorTable("glove", torch.zeros(4, 5), None), 0)


def test_what_is_not_there_is_refused(bundled: Loaded) -> None:
    for options, message in (
        ({"top": 0}, "top is 0, expected at least 1"),
        ({"measure": "cosin"}, r"measure is 'cosin' \(did you mean 'cosine'"),
        ({"table": "embed"}, r"table is 'embed' \(did you mean 'embedding'"),
        ({"token": 8000}, "id 8000 is not in the vocabulary"),
    ):
        given: Any = {"token": "书", **options}
        with pytest.raises(CutawayError, match=message):
            neighbours(bundled, **given)


def test_the_page_lists_them(cutaway: command.Run) -> None:
    asked = ("neighbours", "书", "--top", "4")
    items = result(cutaway, *asked)["items"]
    lines = shown(cutaway, *asked).splitlines()
    assert lines[0] == "Nearest to 书 (id 437) in the embedding table"
    for line, item in zip(lines[3:7], items, strict=True):
        assert line.split()[:3] == [item["piece"], str(item["id"]), f"{item['value']:.3f}"]
    assert f"width:{10 * items[0]['value']:.2f}em" in page_of(cutaway, *asked)
    assert result(cutaway, "neighbours", "#437", "--top", "4")["items"] == items
    chinese = shown_in_chinese(cutaway, *asked, "--table", "unembedding", "--measure", "euclid")
    assert chinese.startswith("解嵌入表")


def test_as_a_command(cutaway: command.Run, translator: Path) -> None:
    asked = ("neighbours", "今天", "-m", translator, "--top", "5")
    items = result(cutaway, *asked)["items"]
    assert cutaway("inspect", *asked, "--save", "near.safetensors").code == 0
    assert load_file("near.safetensors")["items.id"].tolist() == [each["id"] for each in items]
    assert "cutaway inspect neighbours needs token; see" in refused(cutaway, "neighbours", "-m", translator)
    assert "--table is embed (did you mean 'embedding'?), expected embedding or unembedding" in refused(
        cutaway, *asked, "--table", "embed"
    )
    assert "--top is 0, expected at least 1" in refused(cutaway, *asked, "--top", "0")


def test_no_pass_at_all(passes: Callable[[], int], translator: Path) -> None:
    neighbours(load(translator), "今天").page()
    assert passes() == 0
