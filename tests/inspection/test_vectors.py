"""A model's tables of token vectors, and the rows nearest to any vector, against plain loops."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.decode.conftest import FAMILIES, VOCAB, tiny_model

from cutaway import CutawayError, find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.inspection.vectors import Measure, TableName, VectorTable, nearest_rows, space_of, table_of
from cutaway.zoo import MASKED, TRANSLATOR


def opened(kind: str, **changes: Any) -> Loaded:
    model = tiny_model(kind, **changes)
    return Loaded(model, model.config, None, {}, Path(f"tiny-{kind}"))


@pytest.fixture(scope="module")
def masked() -> Loaded:
    return load(find(MASKED))


def by_hand(rows: list[list[float]], query: list[float], measure: str) -> list[float]:
    """Every row's value, in plain Python."""
    found = []
    for row in rows:
        dot = math.fsum(x * y for x, y in zip(row, query, strict=True))
        lengths = math.hypot(*row) * math.hypot(*query)
        cosine = dot / lengths if lengths else 0.0
        found.append({"cosine": cosine, "dot": dot, "euclid": math.dist(row, query)}[measure])
    return found


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("measure", ["cosine", "dot", "euclid"])
def test_nearest_rows_are_those_of_a_plain_loop(
    kind: str, measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several blocks, the last one short.
    monkeypatch.setattr("cutaway.inspection.vectors._VALUES_AT_ONCE", 16 * 7)
    loaded = opened(kind)
    names: tuple[TableName, ...] = ("embedding", "unembedding")
    for name in names:
        table = table_of(loaded, name)
        rows = table.vectors.tolist()
        values = by_hand(rows, rows[5], measure)
        order = sorted(range(VOCAB), key=lambda id: values[id], reverse=measure != "euclid")
        best = [id for id in order if id != 5]
        (found,) = nearest_rows(table, table.rows([5]), top=VOCAB, measure=measure, left_out=(5,))
        assert [each.id for each in found] == best
        torch.testing.assert_close(
            [each.value for each in found], [values[id] for id in best], rtol=1e-9, atol=1e-9
        )
    assert table_of(loaded).tied == loaded.config.tied


def test_a_zero_row_has_cosine_0_and_equal_rows_stand_in_the_order_of_their_ids() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    table = VectorTable("embedding", rows, None)
    (found,) = nearest_rows(table, rows[:1], top=9, measure="cosine", left_out=(0,))
    assert [(each.id, each.value) for each in found] == [(2, 1.0), (3, 1.0), (1, 0.0), (4, -1.0)]


def test_near_points_keep_their_distance() -> None:
    """Distances by a difference of products would be lost to cancellation here."""
    rows = torch.tensor([[1e8, 0.0], [1e8, 1.0], [1e8, 3.0]], dtype=torch.float64)
    (found,) = nearest_rows(VectorTable("embedding", rows, None), rows[:1], top=3, measure="euclid")
    assert [(each.id, each.value) for each in found] == [(0, 0.0), (1, 1.0), (2, 3.0)]


def test_words_are_found_as_typed_as_spelled_and_as_shown(masked: Loaded) -> None:
    translator = load(find(TRANSLATOR))
    table, tokenizer = table_of(translator), translator.require_tokenizer()
    king = tokenizer.encode("king").ids
    assert [table.find("king")] == king == [table.find("▁king")] == [table.find(king[0])]
    assert table.find(tokenizer.piece(0)) == 0
    with pytest.raises(CutawayError, match=r"'美女' is 2 tokens in this vocabulary .美 女"):
        table.find("美女")
    with pytest.raises(CutawayError, match="not in the vocabulary"):
        table_of(masked).find("猫")
    assert table_of(masked).find("[UNK]") == masked.require_tokenizer().role("unk")
    with pytest.raises(CutawayError, match=r"id 8000 is not in the vocabulary, expected 0 to 7999"):
        table.find(8000)
    with pytest.raises(CutawayError, match="no tokenizer to find 'cat'"):
        table_of(opened("bert")).find("cat")


def test_what_is_no_table_or_measure_is_refused(masked: Loaded) -> None:
    table, wrong = table_of(masked), ("embeding", "cosin")
    misspelled: Any = wrong
    with pytest.raises(CutawayError, match=r"table is 'embeding' \(did you mean 'embedding'"):
        table_of(masked, misspelled[0])
    with pytest.raises(CutawayError, match=r"measure is 'cosin' \(did you mean 'cosine'"):
        nearest_rows(table, table.rows([5]), top=1, measure=misspelled[1])
    with pytest.raises(CutawayError, match="top is 0, expected at least 1"):
        nearest_rows(table, table.rows([5]), top=0, measure="dot")
    with pytest.raises(CutawayError, match="length 0 has no direction"):
        nearest_rows(table, torch.zeros(1, 192), top=1, measure="cosine")
    with pytest.raises(CutawayError, match="no output head, so there is no unembedding"):
        table_of(opened("bert", head="none", head_bias=False), "unembedding")
    assert space_of(table) is table and space_of(masked, "unembedding").name == "unembedding"


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_damaged_table_is_refused_with_its_row(value: float) -> None:
    vectors = torch.eye(6)
    vectors[4, 1] = value
    table = VectorTable("embedding", vectors, None)
    with pytest.raises(CutawayError, match=r"embedding table has values that are not finite.*⟨4⟩ \(id 4\)"):
        nearest_rows(table, vectors[:1], top=1, measure="cosine")


def test_at_a_prompt_a_table_tells_its_size(masked: Loaded) -> None:
    table = table_of(masked)
    assert repr(table) == table.to_text() and "8,000 vectors of 192 numbers" in repr(table)
    assert ("tied" in repr(table)) == table.tied and "tied" not in repr(replace(table, tied=False))
