"""Drawings of points, against the covariance and the definition of trustworthiness."""

import numpy as np
import pytest
import torch

from cutaway import CutawayError, find, load
from cutaway.inspection.principal_axes import MOST, pca, project_table
from cutaway.inspection.vectors import VectorTable, table_of
from cutaway.page.blocks import Points
from cutaway.zoo import MASKED


@pytest.fixture(scope="module")
def table() -> VectorTable:
    return table_of(load(find(MASKED)))


def naive_trustworthiness(points: np.ndarray, drawn: np.ndarray, k: int) -> float:
    """Venna and Kaski's definition, word for word."""
    n, total = len(points), 0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        true = sorted(others, key=lambda j: float(np.linalg.norm(points[i] - points[j])))
        seen = sorted(others, key=lambda j: float(np.linalg.norm(drawn[i] - drawn[j])))
        total += sum(true.index(j) + 1 - k for j in set(seen[:k]) - set(true[:k]))
    return 1 - 2 / (n * k * (2 * n - 3 * k - 1)) * total


@pytest.mark.parametrize("dims", [2, 3])
def test_a_projection_is_the_one_of_the_covariance_and_states_its_error(
    dims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutaway.inspection.principal_axes._ROWS", 17)
    generator = torch.Generator().manual_seed(8)
    points = torch.randn(60, 8, generator=generator, dtype=torch.float64) * torch.arange(1.0, 9.0) + 40
    found = pca(points, dims=dims)
    values, vectors = np.linalg.eigh(np.cov(points.numpy().T))
    values, axes = values[::-1], vectors.T[::-1]
    np.testing.assert_allclose(found.variance_kept, values[:dims] / values.sum(), rtol=1e-10)
    assert found.total_kept == pytest.approx(values[:dims].sum() / values.sum())
    for axis, expected in zip(found.axes.numpy(), axes, strict=False):
        assert abs(float(axis @ expected)) == pytest.approx(1, abs=1e-10)
        assert axis[np.abs(axis).argmax()] > 0
    centred = points.numpy() - points.numpy().mean(axis=0)
    np.testing.assert_allclose(found.coordinates.numpy(), centred @ found.axes.numpy().T, atol=1e-10)
    np.testing.assert_allclose(found.place(points[3:5]).numpy(), found.coordinates[3:5].numpy(), atol=1e-10)
    expected = naive_trustworthiness(points.numpy(), found.coordinates.numpy(), 10)
    assert found.trustworthiness == pytest.approx(expected, abs=1e-12)
    assert 0.5 < expected < 1 and (found.k, found.trust_points) == (10, 60)


def test_of_many_points_trustworthiness_is_an_estimate_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    points = torch.randn(400, 6, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    exact = pca(points)
    monkeypatch.setattr("cutaway.inspection.principal_axes._ALL", 100)
    monkeypatch.setattr("cutaway.inspection.principal_axes._SAMPLE", 150)
    estimate = pca(points)
    assert (exact.trust_points, estimate.trust_points) == (400, 150)
    assert exact.trustworthiness is not None and estimate.trustworthiness is not None
    assert estimate.trustworthiness == pytest.approx(exact.trustworthiness, abs=0.02)
    assert estimate.trustworthiness != exact.trustworthiness
    assert pca(points[:20]).trustworthiness is None


def test_projections_of_tables_and_what_cannot_be_drawn(table: VectorTable) -> None:
    found = project_table(table, ["cat", "dog", "king", "queen", "bank", "river"], k=2)
    ids = [table.find(word) for word in ("cat", "dog", "king", "queen", "bank", "river")]
    rows = table.vectors.detach().double().numpy()[ids]
    sigma = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(found.variance_kept, (sigma**2 / (sigma**2).sum())[:2], rtol=1e-9)
    whole = project_table(table)
    assert whole.coordinates.shape == (8000, 2) and whole.trust_points == 1000
    values = np.linalg.eigvalsh(np.cov(table.vectors.detach().double().numpy().T))[::-1]
    np.testing.assert_allclose(whole.variance_kept, values[:2] / values.sum(), rtol=1e-9)
    with pytest.raises(CutawayError, match="dims is 4, expected 2 or 3"):
        project_table(table, dims=4)
    with pytest.raises(
        CutawayError, match=r"shape \(2, 192\), expected at least 3 points of at least 2 numbers"
    ):
        project_table(table, ["cat", "dog"])
    with pytest.raises(CutawayError, match="k is 0, expected at least 1"):
        project_table(table, k=0)
    with pytest.raises(CutawayError, match="all the same"):
        pca(torch.full((9, 4), 0.1))
    with pytest.raises(CutawayError, match="not finite"):
        pca(torch.tensor([[1.0, 2.0], [3.0, torch.inf], [0.0, 0.0]]))


def test_a_whole_table_is_thinned_out_evenly_and_said_to_be(table: VectorTable) -> None:
    found = project_table(table)
    n = len(found.coordinates)
    every = -(-n // MOST)
    (plane,) = (block for block in found.page().blocks if isinstance(block, Points))
    assert [(each.x, each.y) for each in plane.points] == list(
        map(tuple, found.coordinates[::every].tolist())
    )
    html = found.to_html("zh")
    assert len(html.encode()) < 300_000
    assert f"{len(plane.points):,}" in html and f"{n:,}" in html and f"{found.trustworthiness:.3f}" in html


def test_the_third_axis_is_told_to_be_left_out(table: VectorTable) -> None:
    words = ["cat", "dog", "king", "queen"]
    flat, deep = (project_table(table, words, dims=dims, k=1).to_text() for dims in (2, 3))
    assert "The third axis is not drawn" in deep and "The third axis" not in flat
    assert all(word in flat for word in words)
