"""a - b + c: every row ranked, and the four points drawn true, against NumPy and least squares."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese

from cutaway import CutawayError, find, load
from cutaway.inspection.questions.analogy import analogy, plane
from cutaway.inspection.vectors import VectorTable, table_of
from cutaway.page.blocks import Points
from cutaway.zoo import MASKED, TRANSLATOR

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("translator", None, {"a": 30, "b": "今天", "c": 31, "expected": 40, "normalised": False}),
]

KING = ("国王", "男人", "女人")


def test_an_analogy_ranks_every_row_the_inputs_too() -> None:
    rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    table = VectorTable("embedding", rows, None)
    for normalised in (True, False):
        unit = [row / np.linalg.norm(row) if normalised else row for row in rows.numpy()]
        target = unit[4] - unit[7] + unit[9]
        cosines = [float(row @ target / np.linalg.norm(row) / np.linalg.norm(target)) for row in rows.numpy()]
        order = sorted(range(40), key=lambda id: -cosines[id])
        without = [id for id in order if id not in (4, 7, 9)]
        found = analogy(table, 4, 7, 9, expected=20, top=5, normalised=normalised)
        assert [each.id for each in found.answers] == without[:5]
        assert [each.rank for each in found.inputs] == [order.index(id) + 1 for id in (4, 7, 9)]
        assert [each.rank_without_inputs for each in found.inputs] == [None, None, None]
        assert found.expected is not None
        assert (found.expected.rank, found.expected.rank_without_inputs) == (
            order.index(20) + 1,
            without.index(20) + 1,
        )
        torch.testing.assert_close(
            [each.value for each in found.answers], [cosines[id] for id in without[:5]]
        )
        assert [corner.piece for corner in found.plane.corners] == ["⟨4⟩", "⟨7⟩", "⟨9⟩", "⟨20⟩", ""]


def test_the_plane_shows_true_arrows_and_what_lies_off_it() -> None:
    """Against least squares: the nearest point of the plane through b, and the distance to it."""
    corners = torch.randn(4, 9, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    a, b, c, d = corners.numpy()
    drawn = plane(corners, "abcd")
    span = np.stack([a - b, d - c], axis=1)
    for corner, point in zip(drawn.corners, (a, b, c, d, a - b + c), strict=True):
        nearest, residual, _, _ = np.linalg.lstsq(span, point - b, rcond=None)
        assert corner.off_plane == pytest.approx(math.sqrt(float(residual[0])), abs=1e-9)
        foot = span @ nearest
        assert [corner.x, corner.y] == pytest.approx((drawn.directions.numpy() @ foot).tolist(), abs=1e-9)
        assert math.hypot(corner.x, corner.y) == pytest.approx(float(np.linalg.norm(foot)), abs=1e-9)
    at = {corner.name: np.array([corner.x, corner.y]) for corner in drawn.corners}
    first, second = at["a"] - at["b"], at["d"] - at["c"]  # lengths and angle are the true ones
    assert drawn.lengths == pytest.approx((np.linalg.norm(first), np.linalg.norm(second)))
    assert drawn.lengths == pytest.approx((np.linalg.norm(a - b), np.linalg.norm(d - c)))
    cosine = float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))
    assert drawn.cosine == pytest.approx(cosine)
    assert drawn.miss == pytest.approx(np.linalg.norm(d - (a - b + c)))
    assert at["a"][1] == pytest.approx(0) and not drawn.flat


def test_a_true_parallelogram_is_drawn_as_one() -> None:
    a, b, c = torch.randn(3, 9, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    drawn = plane(torch.stack([a, b, c, a - b + c]))
    assert drawn.flat and drawn.miss == 0 and drawn.cosine == pytest.approx(1)
    assert max(corner.off_plane for corner in drawn.corners) == pytest.approx(0, abs=1e-12)
    at = {corner.name: np.array([corner.x, corner.y]) for corner in drawn.corners}
    np.testing.assert_allclose(at["a"] - at["b"], at["d"] - at["c"], atol=1e-12)
    assert math.dist(at["b"], at["c"]) == pytest.approx(float((b - c).norm()))
    line = torch.tensor([[2.0, 0, 0], [1, 0, 0], [5, 0, 0], [9, 0, 0]], dtype=torch.float64)
    assert [(corner.x, corner.y) for corner in plane(line).corners][:4] == [(1, 0), (0, 0), (4, 0), (8, 0)]


def test_an_analogy_of_a_bundled_model() -> None:
    loaded = load(find(MASKED))
    table = table_of(loaded)
    found = analogy(loaded, "king", "man", "woman", expected="queen")
    rows = table.vectors.detach().double().numpy()
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    king, man, woman, queen = (table.find(word) for word in ("king", "man", "woman", "queen"))
    order = np.argsort(-(unit @ (unit[king] - unit[man] + unit[woman])), kind="stable").tolist()
    assert [each.rank for each in found.inputs] == [order.index(id) + 1 for id in (king, man, woman)]
    assert [each.id for each in found.answers] == [id for id in order if id not in (king, man, woman)][:10]
    assert found.expected is not None and found.expected.rank == order.index(queen) + 1
    assert [each.piece for each in found.inputs] == ["king", "man", "woman"]


def test_what_is_no_analogy_is_refused() -> None:
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    table = VectorTable("embedding", rows, None)
    with pytest.raises(CutawayError, match="three different tokens"):
        analogy(table, 0, 2, 0)
    with pytest.raises(CutawayError, match="the expected answer ⟨2⟩ is one of the inputs"):
        analogy(table, 0, 2, 4, expected=2)
    with pytest.raises(CutawayError, match="a and b have the same vector"):
        analogy(table, 0, 1, 2)
    with pytest.raises(CutawayError, match="has 3 rows, expected a fourth"):
        analogy(VectorTable("embedding", rows[:3], None), 0, 1, 2)
    with pytest.raises(CutawayError, match="vector of ⟨3⟩ is 0"):
        analogy(table, 0, 3, 2)
    with pytest.raises(CutawayError, match="top is 0, expected at least 1"):
        analogy(table, 0, 2, 4, top=0)


def test_the_page_ranks_the_words_themselves(cutaway: command.Run) -> None:
    found = result(cutaway, "analogy", *KING)
    second = found["answers"][1]["piece"]
    text = shown(cutaway, "analogy", *KING, "--expected", second)
    assert text.startswith("国王 - 男人 + 女人: nearest in the embedding table\n")
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    for name, each in zip("abc", found["inputs"], strict=True):
        assert rows[name] == [each["piece"], f"{each['rank']:,}", "left", "out", f"{each['cosine']:.3f}"]
    assert (rows["expected"][0], rows["expected"][2]) == (second, "2")


def test_it_is_drawn_true_to_scale() -> None:
    found = analogy(load(find(TRANSLATOR)), *KING)
    (drawn,) = (block for block in found.page().blocks if isinstance(block, Points))
    at = [np.array([point.x, point.y]) for point in drawn.points]
    labels = [point.label for point in drawn.points]
    assert labels == ["a 国王", "b 男人", "c 女人", f"d {found.answers[0].piece}", "a - b + c"]
    (first, second) = (at[end] - at[start] for start, end in drawn.paths)
    assert np.linalg.norm(second) / np.linalg.norm(first) == pytest.approx(
        found.plane.lengths[1] / found.plane.lengths[0]
    )
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert cosine == pytest.approx(found.plane.cosine)


def test_as_a_command_in_both_languages(cutaway: command.Run, translator: Path) -> None:
    asked = ("analogy", "今天", "#30", "我", "-m", translator)
    found = result(cutaway, *asked)
    assert found["inputs"][1]["id"] == 30
    assert cutaway("inspect", *asked, "--save", "analogy.safetensors").code == 0
    assert load_file("analogy.safetensors")["answers.id"].tolist() == [
        each["id"] for each in found["answers"]
    ]
    assert shown_in_chinese(cutaway, *asked).startswith(f"今天 - {found['inputs'][1]['piece']} + 我：")
    assert page_of(cutaway, *asked).count("<figure") == 1
    bare = result(cutaway, *asked, "--no-normalised")
    assert bare["normalised"] is False and bare["plane"]["lengths"] != found["plane"]["lengths"]
    assert "cutaway inspect analogy needs c; see" in refused(
        cutaway, "analogy", "今天", "好", "-m", translator
    )


def test_no_pass_at_all(passes: Callable[[], int], translator: Path) -> None:
    analogy(load(translator), "今天", 30, "我").page()
    assert passes() == 0
