"""Neighbours, analogies, drawings and paths through the layers, against plain loops and other ways to compute them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.decode.conftest import FAMILIES, VOCAB, tiny_model
from torch import Tensor

from cutaway.checkpoint.folder import Loaded, load
from cutaway.errors import CutawayError
from cutaway.inspection.geometry.analogy import analogy, plane
from cutaway.inspection.geometry.context_drift import context_drift, find_word
from cutaway.inspection.geometry.projection import pca, project_table
from cutaway.inspection.geometry.token_map import token_map
from cutaway.inspection.geometry.vectors import Measure, TableName, VectorTable, neighbours, table_of
from cutaway.inspection.runs import Run, Tokens, run
from cutaway.inspection.wiring import Side
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.stack import Stack
from cutaway.zoo import MASKED, POET, TRANSLATOR, find


def opened(kind: str, **changes: Any) -> Loaded:
    model = tiny_model(kind, **changes)
    return Loaded(model, model.config, None, {}, Path(f"tiny-{kind}"))


def tiny_run(loaded: Loaded, ids: Sequence[int]) -> Run:
    tokens = Tokens(list(ids), [f"t{id}" for id in ids])
    if isinstance(loaded.model, EncoderDecoder):
        return Run(loaded, tokens, tokens, tokens)
    return (
        Run(loaded, tokens, None, tokens)
        if isinstance(loaded.model, EncoderOnly)
        else Run(loaded, None, tokens, tokens)
    )


@pytest.fixture(scope="module")
def masked() -> Loaded:
    return load(find(MASKED))


@pytest.fixture(scope="module")
def translator() -> Loaded:
    return load(find(TRANSLATOR))


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
def test_neighbours_are_those_of_a_plain_loop(
    kind: str, measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cutaway.inspection.geometry.vectors._VALUES_AT_ONCE", 16 * 7
    )  # several blocks, the last one short
    loaded = opened(kind)
    names: tuple[TableName, ...] = ("embedding", "unembedding")
    for name in names:
        table = table_of(loaded, name)
        rows = table.vectors.tolist()
        values = by_hand(rows, rows[5], measure)
        best = sorted(
            (id for id in range(VOCAB) if id != 5), key=lambda id: values[id], reverse=measure != "euclid"
        )
        found = neighbours(table, 5, top=VOCAB, measure=measure)
        assert [each.id for each in found.items] == best
        torch.testing.assert_close(
            [each.value for each in found.items], [values[id] for id in best], rtol=1e-9, atol=1e-9
        )
        assert found.compared == VOCAB and found.piece == "⟨5⟩"
        of_vector = neighbours(table, table.vectors[5], top=VOCAB, measure=measure)
        assert of_vector.id is None and {each.id for each in of_vector.items} == set(range(VOCAB))
    assert table_of(loaded).tied == loaded.config.tied


def test_a_zero_row_has_cosine_0_and_equal_rows_stand_in_the_order_of_their_ids() -> None:
    table = VectorTable(
        "embedding", torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]), None
    )
    found = neighbours(table, 0, top=9)
    assert [(each.id, each.value) for each in found.items] == [(2, 1.0), (3, 1.0), (1, 0.0), (4, -1.0)]
    with pytest.raises(CutawayError, match="length 0 has no direction"):
        neighbours(table, 1)
    assert [each.id for each in neighbours(table, 1, measure="euclid").items][:2] == [0, 3]


def test_near_points_keep_their_distance() -> None:
    """Distances by a difference of products would be lost to cancellation here."""
    rows = torch.tensor([[1e8, 0.0], [1e8, 1.0], [1e8, 3.0]], dtype=torch.float64)
    found = neighbours(VectorTable("embedding", rows, None), 0, measure="euclid")
    assert [(each.id, each.value) for each in found.items] == [(1, 1.0), (2, 3.0)]


def test_words_are_found_as_typed_as_spelled_and_as_shown(masked: Loaded, translator: Loaded) -> None:
    table = table_of(translator)
    tokenizer = translator.require_tokenizer()
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


def test_bad_questions_are_refused_by_name(masked: Loaded) -> None:
    table = table_of(masked)
    misspelled: list[Any] = ["embeding", "cosin"]
    with pytest.raises(CutawayError, match=r"'embeding' \(did you mean 'embedding'"):
        table_of(masked, misspelled[0])
    with pytest.raises(CutawayError, match=r"'cosin' \(did you mean 'cosine'"):
        neighbours(table, "cat", measure=misspelled[1])
    with pytest.raises(CutawayError, match="top is 0"):
        neighbours(table, "cat", top=0)
    with pytest.raises(CutawayError, match=r"shape \(3,\), expected \(192,\)"):
        neighbours(table, torch.ones(3))
    with pytest.raises(CutawayError, match="not finite"):
        neighbours(table, torch.full((192,), torch.nan))
    with pytest.raises(CutawayError, match="no tokenizer to find 'cat'"):
        neighbours(table_of(opened("bert")), "cat")
    with pytest.raises(CutawayError, match="no output head, so there is no unembedding"):
        table_of(opened("bert", head="none", head_bias=False), "unembedding")


def test_neighbours_in_a_bundled_model(translator: Loaded) -> None:
    table = table_of(translator)
    found = neighbours(table, "king")
    rows = table.vectors.detach().double().numpy()
    query = rows[found.id]
    values = rows @ query / np.maximum(np.linalg.norm(rows, axis=1) * np.linalg.norm(query), 1e-300)
    values[found.id] = -np.inf
    best = np.argsort(-values, kind="stable")[:10]
    assert [each.id for each in found.items] == best.tolist()
    np.testing.assert_allclose([each.value for each in found.items], values[best], rtol=1e-12)


# Analogies.


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


def test_analogies_in_a_bundled_model_and_bad_ones(masked: Loaded) -> None:
    table = table_of(masked)
    found = analogy(table, "king", "man", "woman", expected="queen")
    rows = table.vectors.detach().double().numpy()
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    king, man, woman, queen = (table.find(word) for word in ("king", "man", "woman", "queen"))
    cosines = unit @ (unit[king] - unit[man] + unit[woman])
    order = np.argsort(-cosines, kind="stable").tolist()
    assert [each.rank for each in found.inputs] == [order.index(id) + 1 for id in (king, man, woman)]
    assert [each.id for each in found.answers] == [id for id in order if id not in (king, man, woman)][:10]
    assert found.expected is not None and found.expected.rank == order.index(queen) + 1
    assert [each.piece for each in found.inputs] == ["king", "man", "woman"]
    with pytest.raises(CutawayError, match="three different tokens"):
        analogy(table, "king", "man", "king")
    with pytest.raises(CutawayError, match="man is one of the inputs"):
        analogy(table, "king", "man", "woman", expected="man")
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    with pytest.raises(CutawayError, match="a and b have the same vector"):
        analogy(VectorTable("embedding", rows, None), 0, 1, 2)
    with pytest.raises(CutawayError, match="has 3 rows, expected a fourth"):
        analogy(VectorTable("embedding", rows[:3], None), 0, 1, 2)
    with pytest.raises(CutawayError, match="vector of ⟨3⟩ is 0"):
        analogy(VectorTable("embedding", rows, None), 0, 3, 2)


# Drawings.


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
    monkeypatch.setattr("cutaway.inspection.geometry.projection._ROWS", 17)
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
    monkeypatch.setattr("cutaway.inspection.geometry.projection._ALL", 100)
    monkeypatch.setattr("cutaway.inspection.geometry.projection._SAMPLE", 150)
    estimate = pca(points)
    assert (exact.trust_points, estimate.trust_points) == (400, 150)
    assert exact.trustworthiness is not None and estimate.trustworthiness is not None
    assert estimate.trustworthiness == pytest.approx(exact.trustworthiness, abs=0.02)
    assert estimate.trustworthiness != exact.trustworthiness
    assert pca(points[:20]).trustworthiness is None


def test_projections_of_tables_and_what_cannot_be_drawn(masked: Loaded) -> None:
    table = table_of(masked)
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
    with pytest.raises(CutawayError, match=r"shape \(2, 192\), expected at least 3 points"):
        project_table(table, ["cat", "dog"])
    with pytest.raises(CutawayError, match="k is 0"):
        project_table(table, k=0)
    with pytest.raises(CutawayError, match="all the same"):
        pca(torch.full((9, 4), 0.1))
    with pytest.raises(CutawayError, match="not finite"):
        pca(torch.tensor([[1.0, 2.0], [3.0, torch.inf], [0.0, 0.0]]))


# A word in two sentences.


@pytest.mark.parametrize(("kind", "side"), [(k, s) for k in FAMILIES for s in ("encoder", "decoder")])
def test_a_word_is_followed_through_every_layer(kind: str, side: Side) -> None:
    loaded = opened(kind)
    first, second = tiny_run(loaded, [4, 9, 11, 7]), tiny_run(loaded, [9, 11, 5, 8, 6])
    if not hasattr(loaded.model, side):
        with pytest.raises(CutawayError, match=f"side is '{side}'.*, expected .*coder in this model"):
            context_drift(first, second, ([1], [0]), side=side)
        return
    found = context_drift(first, second, ([1, 2], [0, 1]), side=side, top=3)
    streams = [streams_by_hand(each, side) for each in (first, second)]
    means = [stream[:, at].double().mean(dim=1) for stream, at in zip(streams, ([1, 2], [0, 1]), strict=True)]
    stages = len(means[0])
    assert len(found.stages) == stages and found.same_pieces
    assert found.stages[0].endswith("embed.embed") and found.stages[1] == f"{side}.layers.0.resid_pre"
    assert found.stages[-1] == f"{side}." + (
        "normed" if loaded.config.has_final_norm else "layers.1.resid_post"
    )
    table = table_of(loaded).vectors.detach().double()
    static = table[[9, 11]].mean(dim=0) * loaded.config.embed_scale
    for mean, path in zip(means, (found.first, found.second), strict=True):
        torch.testing.assert_close(path.vectors[0].double(), static, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(path.vectors.double(), mean, rtol=1e-5, atol=1e-6)
        distances = [math.dist(point, mean[0].tolist()) for point in mean.tolist()]
        torch.testing.assert_close(path.static_distances.tolist(), distances, rtol=1e-5, atol=1e-5)
        cosines = by_hand(mean.tolist(), mean[0].tolist(), "cosine")
        torch.testing.assert_close(path.static_cosines.tolist(), cosines, rtol=1e-5, atol=1e-6)
        for point, near in zip(mean.tolist(), path.neighbours, strict=True):
            values = by_hand(table.tolist(), point, "cosine")
            assert [each.id for each in near] == sorted(range(VOCAB), key=lambda id: -values[id])[:3]
    for a, b, cosine in zip(*(mean.tolist() for mean in means), found.cosines.tolist(), strict=True):
        assert cosine == pytest.approx(by_hand([a], b, "cosine")[0], abs=1e-5)
    assert float(found.cosines[0]) == pytest.approx(1) and float(found.cosines[-1]) < 0.99
    both = torch.cat(means).numpy()
    centred = both - both.mean(axis=0)
    drawn = torch.cat([found.first.path, found.second.path]).numpy()
    np.testing.assert_allclose(drawn, centred @ found.projection.axes.numpy().T, atol=1e-4)
    assert found.projection.k == stages - 1 and found.projection.trustworthiness is not None


def streams_by_hand(run: Run, side: str) -> Tensor:
    """(P, T, D): what goes into and out of each block, seen by torch's own hooks and not by taps."""
    model, inputs = run.model, run.inputs
    stack = model.get_submodule(side)
    assert isinstance(stack, Stack)
    kept: list[Tensor] = []

    def keep(_: object, given: tuple[Tensor, ...], out: Tensor) -> None:
        kept.extend([out] if kept else [given[0], out])

    hooks = [layer.register_forward_hook(keep) for layer in stack.layers]
    with torch.no_grad():
        model(**inputs)
        for hook in hooks:
            hook.remove()
        ids = inputs[{"encoder": "source", "decoder": "target"}[side] if "source" in inputs else "ids"]
        static = table_of(run.loaded).vectors[ids] * model.config.embed_scale
        final = [stack.norm(kept[-1])] if model.config.has_final_norm else []
    return torch.cat([static, *kept, *final])


def test_a_word_of_several_pieces_is_found_as_often_as_it_is_there(
    translator: Loaded, masked: Loaded
) -> None:
    tokenizer = translator.require_tokenizer()

    def tokens(text: str) -> Tokens:
        encoding = tokenizer.encode(text)
        return Tokens([3, *encoding.ids], ["</s>", *encoding.pieces])

    text = tokens("美女与野兽，美女和女人")
    assert text.pieces[1:3] == ["美", "女"]
    assert find_word(text, "美女", tokenizer) == (1, 2)
    second = find_word(text, "美女", tokenizer, 2)
    assert [text.pieces[position] for position in second] == ["美", "女"] and second != (1, 2)
    with pytest.raises(CutawayError, match="occurrence is 3, expected 1 to 2"):
        find_word(text, "美女", tokenizer, 3)
    with pytest.raises(CutawayError, match=r"'猫' is not in the text.*pieces: .*美 女"):
        find_word(text, "猫", tokenizer)
    with pytest.raises(CutawayError, match="is not in the text"):
        find_word(text, "", tokenizer)
    english = tokens("The king saw a cat.")
    assert find_word(english, "king", tokenizer) == (english.pieces.index("▁king"),)
    rare = tokens("鱻在这里")  # spelled in bytes
    assert find_word(rare, "鱻", tokenizer) == tuple(range(1, len(tokenizer.encode("鱻").ids) + 1))
    folded = run(masked, "She went to the bank.")
    assert folded.source is not None
    assert find_word(folded.source, "Bank", masked.require_tokenizer()) == (
        folded.source.pieces.index("bank"),
    )


def test_words_in_context_in_the_bundled_models(translator: Loaded, masked: Loaded) -> None:
    first = run(translator, "她是一个美女。", target="She is a beauty.")
    second = run(translator, "我昨天看了美女与野兽。", target="I saw Beauty and the Beast.")
    found = context_drift(first, second, "美女")
    assert found.same_pieces and found.first.pieces == ("美", "女") and found.side == "encoder"
    assert float(found.cosines[0]) == pytest.approx(1, abs=1e-6) and 0 < float(found.cosines[-1]) < 1
    assert found.first.neighbours[0][0].piece in ("美", "女")  # its own, before any context
    assert found.projection.total_kept <= 1
    river = run(masked, "She sat on the bank of the river.")
    money = run(masked, "The bank lent him money.")
    drift = context_drift(river, money, "bank", table="unembedding", measure="dot")
    assert drift.table == "unembedding" and len(drift.stages) == 2 + 4
    assert float(drift.cosines[-1]) < float(drift.cosines[0]) == pytest.approx(1)
    with pytest.raises(CutawayError, match="different models"):
        context_drift(river, first, "bank")
    with pytest.raises(CutawayError, match=r"positions are \[99\], expected one or more of 0 to"):
        context_drift(river, money, ([99], [1]))
    with pytest.raises(CutawayError, match=r"positions are \[\], expected one or more"):
        context_drift(river, money, ([], [1]))
    poem = run(load(find(POET)), "明月几时有，明月夜")
    again = replace(poem)
    same = context_drift(poem, again, "明月", occurrences=(1, 1))
    torch.testing.assert_close(same.cosines, torch.ones(len(same.stages), dtype=torch.float64))
    moved = context_drift(poem, again, "月", occurrences=(1, 2))
    assert same.side == "decoder" and moved.first.positions != moved.second.positions
    assert float(moved.cosines[-1]) < 1


def test_a_damaged_table_is_refused_with_its_row() -> None:
    for value in (torch.nan, torch.inf):
        vectors = torch.eye(6)
        vectors[4, 1] = value
        table = VectorTable("embedding", vectors, None)
        for ask in (
            lambda t: neighbours(t, 0),
            lambda t: analogy(t, 0, 1, 2),
            lambda t: token_map(t, [0, 1, 2]),
        ):
            with pytest.raises(
                CutawayError, match=r"embedding table has values that are not finite.*⟨4⟩ \(id 4\)"
            ):
                ask(table)
