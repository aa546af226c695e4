"""Shares of a similarity sum to what `embed` itself says, and each follows from the tokens' states."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cutaway import CutawayError, find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.decode.sentence_vectors import cosine_similarity, embed
from cutaway.inspection.attribution.similarity import attribute_similarity
from cutaway.inspection.runs import Run
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.page.blocks import Matrix

A, B = "今天天气很好", "The weather is fine today."


@pytest.mark.parametrize("structure", ["GPT-2", "Llama", "BERT", "no head", "experts"])
def test_shares_sum_to_the_cosine_of_the_vectors(run_of: Callable[..., Run], structure: str) -> None:
    loaded = replace(run_of(structure).loaded, path=Path("nowhere"))
    found = attribute_similarity(loaded, A, B)
    vectors = embed(loaded, [A, B], pooling="mean").vectors
    assert float(found.shares.sum()) == pytest.approx(
        float(cosine_similarity(vectors)[0, 1]), rel=1e-5, abs=1e-6
    )
    assert found.cosine == pytest.approx(float(found.shares.sum()), abs=1e-6)
    assert found.difference == pytest.approx(0, abs=1e-6)
    states, model = [], loaded.model
    assert not isinstance(model, EncoderDecoder)
    for tokens in (found.first, found.second):
        with torch.no_grad():
            states.append(model.hidden(torch.tensor([tokens.ids]))[0].double())
    lengths = states[0].mean(dim=0).norm() * states[1].mean(dim=0).norm()
    for i, j in ((0, 0), (2, 4), (len(found.first) - 1, len(found.second) - 1)):
        share = float(states[0][i] @ states[1][j]) / len(states[0]) / len(states[1]) / float(lengths)
        assert float(found.shares[i, j]) == pytest.approx(share, rel=1e-4, abs=1e-7)
    assert torch.allclose(found.first_shares, found.shares.sum(dim=1))
    assert torch.allclose(found.second_shares, found.shares.sum(dim=0))
    assert found.approximate is None and found.pooling == "mean"


def test_a_text_with_itself_is_wholly_similar(run_of: Callable[..., Run]) -> None:
    found = attribute_similarity(run_of("BERT").loaded, A, A)
    assert float(found.shares.sum()) == pytest.approx(1.0, abs=1e-6)
    assert torch.allclose(found.shares, found.shares.T, atol=1e-7)


def test_a_long_text_is_cut_as_embed_cuts_it(run_of: Callable[..., Run]) -> None:
    loaded = run_of("GPT-2").loaded
    found = attribute_similarity(loaded, B * 10, A)
    assert len(found.first) == loaded.config.max_len == len(found.shares)


def test_what_has_no_such_vectors_is_refused(run_of: Callable[..., Run]) -> None:
    with pytest.raises(CutawayError, match="the text '' has no token"):
        attribute_similarity(run_of("GPT-2").loaded, A, "")
    with pytest.raises(CutawayError, match="encoder-decoder family, expected encoder-only or decoder-only"):
        attribute_similarity(run_of("T5").loaded, A, B)


@pytest.fixture(scope="module")
def masked() -> Loaded:
    return load(find("bert-tiny"))


def test_a_bundled_model(masked: Loaded) -> None:
    found = attribute_similarity(masked, "The weather is fine.", "It is a sunny day.")
    vectors = embed(masked, ["The weather is fine.", "It is a sunny day."], pooling="mean").vectors
    assert float(found.shares.sum()) == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    before, after = masked.require_tokenizer().around
    assert found.first.ids[: len(before)] == before and found.first.ids[-len(after) :] == after


def test_another_pooling_of_the_folder_is_told(masked: Loaded, tmp_path: Path) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},'
        ' {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]'
    )
    (tmp_path / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 192, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}'
    )
    found = attribute_similarity(replace(masked, path=tmp_path), A, B)
    assert found.pooling == "cls"
    assert found.approximate is not None and "pools by 'cls'" in found.approximate.en


def test_the_page_has_every_pair(masked: Loaded) -> None:
    found = attribute_similarity(masked, A, B)
    (grid,) = (block for block in found.page().blocks if isinstance(block, Matrix))
    assert torch.equal(torch.from_numpy(grid.values), found.shares)
    assert (grid.rows, grid.columns) == (found.first.pieces, found.second.pieces)
    assert f"{found.cosine:.4f}" in found.to_text().splitlines()[0]
    assert "余弦中的份额" in found.to_html("zh") and found.to_svg("zh").startswith("<svg ")
