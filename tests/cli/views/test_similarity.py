"""`--show similarity`: which pairs of tokens a cosine is made of."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import embed, load
from cutaway.cli.views.request import View
from cutaway.inspection import attribute_similarity
from cutaway.zoo import MASKED, TRANSLATOR, find

FIRST, SECOND = "The cat sat on the mat.", "A dog lay on the rug."
ASKED = (MASKED, FIRST, "--other", SECOND)


def test_pairs_add_up_to_the_cosine_of_the_embeddings(cutaway: Run) -> None:
    out = shown(cutaway, View.SIMILARITY, *ASKED)
    loaded = load(find(MASKED))
    a, b = embed(loaded, [FIRST, SECOND], pooling="mean").vectors
    assert out.startswith(f"Why the cosine of the two texts is {float(a @ b):.4f}\n")
    found = attribute_similarity(loaded, FIRST, SECOND)
    assert f"sum          {float(found.shares.sum()):.4f} of 81 pairs, difference " in out
    largest = int(found.shares.abs().argmax())
    row = [f"{float(found.shares.flatten()[largest]):+.4f}", found.first.pieces[largest // 9]]
    assert out.splitlines()[8].split()[:2] == row
    assert (
        len(shown(cutaway, View.SIMILARITY, *ASKED, "--top", "2").splitlines()) == len(out.splitlines()) - 8
    )


def test_chinese(cutaway: Run) -> None:
    out = shown_in_chinese(cutaway, View.SIMILARITY, *ASKED)
    assert out.startswith("为什么这两段文字的余弦是 ")


def test_drawings_have_every_pair(cutaway: Run) -> None:
    html, texts = drawn(cutaway, View.SIMILARITY, *ASKED)
    shares = result(cutaway, View.SIMILARITY, *ASKED)["shares"]
    assert f'<td class="right">{shares[2][3]:.3f}</td>' in html
    assert "share of the cosine" in texts and "\nrug\n" in texts


def test_arrays_are_saved(cutaway: Run, tmp_path: Path) -> None:
    saved = tmp_path / "similarity.safetensors"
    assert cutaway("inspect", *ASKED, "--show", "similarity", "--save", saved).code == 0
    arrays = load_file(saved)
    assert float(arrays["shares"].sum()) == pytest.approx(float(arrays["cosine"]), abs=1e-6)


def test_what_is_refused(cutaway: Run) -> None:
    assert "give the second by --other" in refused(cutaway, MASKED, FIRST, "--show", "similarity")
    refused(cutaway, TRANSLATOR, "好", "--show", "similarity", "--other", "不好")
    assert "--name has no effect on --show similarity" in refused(
        cutaway, *ASKED, "--show", "similarity", "--name", "x"
    )


def test_a_model_without_words_has_similarities(cutaway: Run, headless: Path) -> None:
    asked = (headless, "今天天气很好。", "--other", "好久不见。")
    found = result(cutaway, View.SIMILARITY, *asked)
    assert shown_in_chinese(cutaway, View.SIMILARITY, *asked).startswith(
        f"为什么这两段文字的余弦是 {found['cosine']:.4f}\n"
    )
