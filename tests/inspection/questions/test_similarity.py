"""Shares of a similarity sum to what `embed` itself says, and each follows from the tokens' states."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese

from cutaway import CutawayError, find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.decode.sentence_vectors import cosine_similarity, embed
from cutaway.inspection.questions.similarity import similarity
from cutaway.inspection.runs import Run
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.page.blocks import Matrix, Shaded

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("headless", None, {"text": "今天很好。", "other": "- no -", "top": 3}),
]

A, B = "今天天气很好", "The weather is fine today."


@pytest.fixture(scope="module")
def bundled() -> Loaded:
    return load(find("bert-tiny"))


@pytest.mark.parametrize("structure", ["GPT-2", "Llama", "BERT", "no head", "experts"])
def test_shares_sum_to_the_cosine_of_the_vectors(run_of: Callable[..., Run], structure: str) -> None:
    loaded = replace(run_of(structure).loaded, path=Path("nowhere"))
    found = similarity(loaded, A, B)
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
    found = similarity(run_of("BERT").loaded, A, A)
    assert float(found.shares.sum()) == pytest.approx(1.0, abs=1e-6)
    assert torch.allclose(found.shares, found.shares.T, atol=1e-7)


def test_a_long_text_is_cut_as_embed_cuts_it(run_of: Callable[..., Run]) -> None:
    loaded = run_of("GPT-2").loaded
    found = similarity(loaded, B * 10, A)
    assert len(found.first) == loaded.config.max_len == len(found.shares)


def test_what_has_no_such_vectors_is_refused(run_of: Callable[..., Run]) -> None:
    with pytest.raises(CutawayError, match="the text '' has no token"):
        similarity(run_of("GPT-2").loaded, A, "")
    with pytest.raises(CutawayError, match="encoder-decoder"):
        similarity(run_of("T5").loaded, A, B)
    with pytest.raises(CutawayError, match="top is 0, expected at least 1"):
        similarity(run_of("GPT-2").loaded, A, B, top=0)


def test_a_bundled_model(bundled: Loaded) -> None:
    found = similarity(bundled, "The weather is fine.", "It is a sunny day.")
    vectors = embed(bundled, ["The weather is fine.", "It is a sunny day."], pooling="mean").vectors
    assert float(found.shares.sum()) == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    before, after = bundled.require_tokenizer().around
    assert found.first.ids[: len(before)] == before and found.first.ids[-len(after) :] == after


def test_another_pooling_of_the_folder_is_told(bundled: Loaded, tmp_path: Path) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},'
        ' {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]'
    )
    (tmp_path / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 192, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}'
    )
    found = similarity(replace(bundled, path=tmp_path), A, B)
    assert found.pooling == "cls"
    assert found.approximate is not None and "pools by 'cls'" in found.approximate.said("en")


def test_the_page_has_every_pair(bundled: Loaded) -> None:
    found = similarity(bundled, A, B)
    blocks = found.page().blocks
    (grid,) = (block for block in blocks if isinstance(block, Matrix))
    assert torch.equal(torch.from_numpy(grid.values), found.shares)
    assert (grid.rows, grid.columns) == (found.first.pieces, found.second.pieces)
    shaded = [block.values for block in blocks if isinstance(block, Shaded)]
    assert shaded == [found.first_shares.tolist(), found.second_shares.tolist()]


def test_as_a_command_in_both_languages(cutaway: command.Run, headless: Path, translator: Path) -> None:
    asked = ("similarity", "今天天气很好。", "好久不见。", "-m", headless)
    found, lines = result(cutaway, *asked, "--top", "2"), shown(cutaway, *asked, "--top", "2").splitlines()
    assert lines[0] == f"Why the cosine of the two texts is {found['cosine']:.4f}"
    pairs = [
        (abs(share), share, i, j) for i, row in enumerate(found["shares"]) for j, share in enumerate(row)
    ]
    start = next(n for n, line in enumerate(lines) if line.split()[:2] == ["share", "first"]) + 2
    for (_, share, i, j), line in zip(sorted(pairs, reverse=True)[:2], lines[start:], strict=False):
        assert line.split() == [f"{share:+.4f}", found["first"]["pieces"][i], found["second"]["pieces"][j]]
    assert f"of {len(pairs)} pairs" in " ".join(lines)
    chinese = shown_in_chinese(cutaway, *asked)
    assert chinese.startswith(f"为什么这两段文字的余弦是 {found['cosine']:.4f}\n")
    assert f'<td class="right">{found["shares"][2][3]:.3f}</td>' in page_of(cutaway, *asked)
    assert cutaway("inspect", *asked, "--save", "s.safetensors").code == 0
    arrays = load_file("s.safetensors")
    assert float(arrays["shares"].sum()) == pytest.approx(float(arrays["cosine"]), abs=1e-6)
    assert "cutaway inspect similarity needs other; see" in refused(
        cutaway, "similarity", "好", "-m", headless
    )
    assert "similarity needs a model with one stack" in refused(
        cutaway, "similarity", "好", "我", "-m", translator
    )


def test_one_pass_of_each_text(passes: Callable[[], int], headless: Path) -> None:
    similarity(load(headless), A, B).page()
    assert passes() == 2
