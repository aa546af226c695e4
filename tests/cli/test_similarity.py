import json
from pathlib import Path

import pytest

from cutaway import load
from cutaway.decode.sentence_vectors import cosine_similarity, embed

TEXTS = ["我爱机器学习。", "Long time no see.", "He bought a new book."]


@pytest.fixture(scope="module")
def cosines(masked: Path) -> list[list[float]]:
    return cosine_similarity(embed(load(masked), TEXTS).vectors).tolist()


def test_two_texts_are_one_number(cutaway, masked: Path, cosines: list[list[float]]):
    result = cutaway("similarity", *TEXTS[:2], "-m", masked)
    assert (result.code, result.err) == (0, "")
    assert result.out == f"{cosines[0][1]:.4f}\n"


def test_more_texts_are_a_matrix(cutaway, masked: Path, cosines: list[list[float]]):
    head, _, *rows = cutaway("similarity", *TEXTS, "-m", masked).out.splitlines()
    assert head.split() == ["1", "2", "3", "text"]
    for number, (row, values, text) in enumerate(zip(rows, cosines, TEXTS, strict=True), start=1):
        assert row.split() == [str(number), *(f"{value:.3f}" for value in values), *text.split()]


@pytest.mark.parametrize("count", [2, 3])
def test_json_has_the_texts_and_every_cosine(cutaway, masked: Path, cosines: list[list[float]], count: int):
    found = json.loads(cutaway("similarity", *TEXTS[:count], "-m", masked, "--json").out)
    assert found["texts"] == TEXTS[:count]
    for row, expected in zip(found["cosine"], cosines[:count], strict=True):
        assert row == pytest.approx(expected[:count], abs=1e-6)


def test_of_many_texts_the_nearest_are_shown_and_json_has_all(cutaway, masked: Path):
    texts = [f"{text} {number}" for number in range(10) for text in TEXTS]
    expected = cosine_similarity(embed(load(masked), texts).vectors)
    expected.fill_diagonal_(-2)
    head, _, *rows = cutaway("similarity", *texts, "-m", masked).out.splitlines()
    assert head.split() == ["nearest", "text"]
    assert len(rows) == len(texts)
    for number, row in enumerate(rows):
        parts = row.split()
        assert parts[0] == str(number + 1)
        for place, value in zip(parts[1:7:2], parts[2:7:2], strict=True):
            assert float(value) == pytest.approx(expected[number, int(place) - 1].item(), abs=6e-4)
        assert float(parts[2]) == pytest.approx(expected[number].max().item(), abs=6e-4)
    found = json.loads(cutaway("similarity", *texts, "-m", masked, "--json").out)
    assert found["texts"] == texts and [len(row) for row in found["cosine"]] == [30] * 30
