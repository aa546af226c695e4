"""Spectra are those of numpy, and directions are read through the right table."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.inspection.tiny import opened, sides, tiny
from torch import Tensor

from cutaway.checkpoint.folder import load
from cutaway.errors import CutawayError
from cutaway.inspection.spectra import directions, spectrum
from cutaway.inspection.weight_matrices import WeightMatrix, parameter_matrix, w_ov, w_qk
from cutaway.page.blocks import Table
from cutaway.words import say
from cutaway.zoo import TRANSLATOR, find


def check_spectrum(matrix: WeightMatrix) -> None:
    """Against numpy's SVD of all entries."""
    found = spectrum(matrix)
    dense = matrix.dense().numpy()
    sigma = np.linalg.svd(dense, compute_uv=False)
    rank = len(found.singular_values)
    np.testing.assert_allclose(found.singular_values.numpy(), sigma[:rank], rtol=1e-8, atol=1e-10)
    assert not len(sigma[rank:]) or float(sigma[rank]) < 1e-10 * sigma[0]
    assert found.frobenius == pytest.approx(np.linalg.norm(dense))
    share = [value / sigma.sum() for value in sigma[:rank]]
    assert found.effective_rank == pytest.approx(math.exp(-sum(p * math.log(p) for p in share)), rel=1e-6)
    assert found.stable_rank == pytest.approx(np.linalg.norm(dense) ** 2 / np.linalg.norm(dense, 2) ** 2)
    assert found.condition == pytest.approx(sigma[0] / sigma[rank - 1], rel=1e-5)
    u, s, v = (part.numpy() for part in matrix.svd())
    np.testing.assert_allclose(u * s @ v.T, dense, atol=1e-9 * sigma[0])
    np.testing.assert_allclose(u.T @ u, np.eye(rank), atol=1e-9)
    np.testing.assert_allclose(v.T @ v, np.eye(rank), atol=1e-9)
    if found.symmetric_share is not None:
        assert matrix.kind == "W_QK" and "self_attn" in matrix.name
        symmetric = np.linalg.norm((dense + dense.T) / 2) ** 2 / np.linalg.norm(dense) ** 2
        assert found.symmetric_share == pytest.approx(symmetric)


@pytest.mark.parametrize("kind", ["post-norm, sinusoids", "Llama, grouped", "Mixtral", "BERT"])
def test_spectra_are_those_of_numpy(kind: str) -> None:
    model = tiny(kind)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and min(parameter.shape) > 2:
            check_spectrum(parameter_matrix(opened(model), name))
    for side in sides(model):
        check_spectrum(w_qk(opened(model), side, 1, 3))
        check_spectrum(w_ov(opened(model), side, 1, 3))
        assert (spectrum(w_qk(opened(model), side, 1, 3)).symmetric_share is None) == (side == "cross")
        assert spectrum(w_ov(opened(model), side, 1, 3)).symmetric_share is None


def shaped(left: Tensor, right: Tensor | None = None) -> WeightMatrix:
    name = "W_QK of decoder.layers.0.self_attn, head 0"
    kind = "parameter" if right is None else "W_QK"
    place = None if right is None else "decoder.layers.0.self_attn"
    return WeightMatrix(
        name,
        kind,
        say(""),
        left.double(),
        right if right is None else right.double(),
        "residual",
        "residual",
        (),
        place,
        0,
    )


def test_known_spectra() -> None:
    even = spectrum(shaped(torch.eye(5) * 3))
    assert (even.effective_rank, even.stable_rank, even.condition) == pytest.approx((5, 5, 1))
    single = spectrum(shaped(torch.outer(torch.arange(1.0, 5), torch.ones(3))))
    assert (single.effective_rank, single.stable_rank) == pytest.approx((1, 1))
    assert single.condition == math.inf
    nothing = spectrum(shaped(torch.zeros(4, 3)))
    assert (nothing.effective_rank, nothing.stable_rank, nothing.frobenius) == (0, 0, 0)
    keys = torch.randn(6, 2)
    assert spectrum(shaped(keys, keys)).symmetric_share == pytest.approx(1)
    turned = torch.stack([keys[:, 1], -keys[:, 0]], dim=1)
    assert spectrum(shaped(keys, turned)).symmetric_share == pytest.approx(0)


# Directions.


def test_directions_are_read_through_the_right_table() -> None:
    model = tiny("Llama, grouped")  # whose tables are two
    loaded = opened(model)
    embedding = model.get_parameter("embed.tokens.weight").detach().double().numpy()
    output = model.get_parameter("head.unembed.weight").detach().double().numpy()
    for matrix, tables in (
        (w_qk(opened(model), "decoder", 0, 1), (embedding, embedding)),
        (w_ov(opened(model), "decoder", 0, 1), (embedding, output)),
        (parameter_matrix(opened(model), "decoder.layers.0.mlp.down.weight"), (None, output)),
        (parameter_matrix(opened(model), "decoder.layers.0.mlp.up.weight"), (embedding, None)),
    ):
        u, sigma, v = np.linalg.svd(matrix.dense().numpy(), full_matrices=False)
        for found in directions(loaded, matrix, first=1, count=2, top=4):
            assert found.sigma == pytest.approx(sigma[found.index])
            assert found.energy == pytest.approx(sigma[found.index] ** 2 / (sigma**2).sum())
            sign = np.sign(found.u.numpy() @ u[:, found.index])  # the pair may be turned, but only together
            assert found.u[found.u.abs().argmax()] > 0
            for reading, vector, table in zip((found.rows, found.columns), (u.T, v), tables, strict=True):
                if table is None:
                    assert reading is None
                    continue
                assert reading is not None
                values = table @ (sign * vector[found.index])
                order = np.argsort(values)
                assert [each.id for each in reading.negative] == order[:4].tolist()
                assert [each.id for each in reading.positive] == order[::-1][:4].tolist()
                np.testing.assert_allclose(
                    [each.value for each in reading.negative], values[order[:4]], rtol=1e-9
                )
        assert [found.index for found in directions(loaded, matrix, first=1, count=2)] == [1, 2]
    table = parameter_matrix(opened(model), "embed.tokens.weight")
    (found,) = directions(loaded, table, count=1, top=3)
    assert found.rows is not None and found.rows.table == "entries"
    assert found.columns is not None and found.columns.table == "unembedding"
    entries = found.u.numpy()
    assert [each.id for each in found.rows.positive] == np.argsort(-entries)[:3].tolist()
    assert [each.id for each in found.rows.negative] == np.argsort(entries)[:3].tolist()
    with pytest.raises(CutawayError, match=r"first is 24, expected 0 to 23: .* of embed\.tokens\.weight"):
        directions(loaded, table, first=24)
    with pytest.raises(CutawayError, match="count is 0"):
        directions(loaded, table, count=0)


def test_the_bundled_translator() -> None:
    loaded = load(find(TRANSLATOR))
    matrix = w_qk(loaded, "cross", 3, 2)
    check_spectrum(matrix)
    (found,) = directions(loaded, matrix, count=1, top=5)
    assert found.rows is not None and len(found.rows.positive) == 5


# Their pages.


def test_a_direction_lists_both_ends_of_both_sides(poet: Path) -> None:
    loaded = load(poet)
    (found,) = directions(loaded, w_ov(loaded, "decoder", 1, 1), count=1, top=3)
    (table,) = (block for block in found.page().blocks if isinstance(block, Table))
    assert [row[1] for row in table.rows] == ["+", "−", "+", "−"]
    assert found.rows is not None and found.columns is not None
    ends = [found.rows.positive, found.rows.negative, found.columns.positive, found.columns.negative]
    assert [row[2] for row in table.rows] == [
        "  ".join(f"{each.piece} {each.value:+.2f}" for each in end) for end in ends
    ]
    (half,) = directions(loaded, parameter_matrix(loaded, "decoder.layers.0.mlp.up.weight"), count=1)
    assert half.rows is not None and half.columns is None
    (table,) = (block for block in half.page().blocks if isinstance(block, Table))
    assert len(table.rows) == 2
