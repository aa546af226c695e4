import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from cutaway import CutawayError, find, load_vectors
from cutaway.checkpoint.vector_files import write_vectors
from cutaway.checkpoint.word_vectors import WordVectors, turned
from cutaway.inspection.bilingual import csls, procrustes, read_dictionary, rotation, score_translations

WORDS = 60


@pytest.fixture
def pair(tmp_path: Path) -> tuple[WordVectors, WordVectors, Path]:
    """Two languages of the same 60 points, the second turned and its words in another order, and their dictionary."""
    draws = np.random.default_rng(1)
    rows = draws.normal(size=(WORDS, 8))
    turn = np.linalg.qr(draws.normal(size=(8, 8)))[0]
    order = draws.permutation(WORDS)
    write_vectors(tmp_path / "a.vec", [f"a{n}" for n in range(WORDS)], rows)
    write_vectors(tmp_path / "b.vec", [f"b{n}" for n in order], (rows @ turn)[order])
    file = tmp_path / "a-b.tsv"
    file.write_text("".join(f"a{n}\tb{n}\n" for n in range(WORDS)), encoding="utf-8")
    return load_vectors(tmp_path / "a.vec"), load_vectors(tmp_path / "b.vec"), file


def test_a_rotation_is_found_exactly() -> None:
    torch.manual_seed(1)
    x, turn = torch.randn(50, 9).double(), torch.linalg.qr(torch.randn(9, 9).double())[0]
    torch.testing.assert_close(procrustes(x, x @ turn), turn)
    # of points that no rotation brings together, orthogonal none the less
    w = procrustes(x, torch.randn(50, 9))
    torch.testing.assert_close(w @ w.T, torch.eye(9).double())


def test_csls_is_the_papers_by_numpy() -> None:
    torch.manual_seed(2)
    sources, targets = (normalize(torch.randn(n, 5), dim=1) for n in (40, 30))
    found = csls(sources[:7], sources, targets).numpy()
    cosines = sources.numpy() @ targets.numpy().T
    of_sources = np.sort(cosines, axis=1)[:, -10:].mean(axis=1)
    of_targets = np.sort(cosines, axis=0)[-10:].mean(axis=0)
    np.testing.assert_allclose(found, (2 * cosines - of_sources[:, None] - of_targets)[:7], atol=1e-6)


def test_turned_words_find_each_other(pair: tuple[WordVectors, WordVectors, Path]) -> None:
    a, b, file = pair
    found = score_translations(a, b, file)
    assert (found.learned, found.asked, found.first, found.fifth) == (48, 12, 1.0, 1.0)
    both = turned(a, rotation(a, b, read_dictionary(file, a, b)))
    torch.testing.assert_close(both.vector("a7"), b.vector("b7"), rtol=1e-5, atol=1e-5)
    # what is asked was not learned: a dictionary of other words finds nothing but by chance
    lines = [f"a{n}\tb{(n + 17) % WORDS}\n" for n in range(WORDS)]
    file.write_text("".join(lines), encoding="utf-8")
    assert score_translations(a, b, file).first < 0.3


def test_entries_of_cc_cedict(tmp_path: Path) -> None:
    write_vectors(tmp_path / "en.vec", ["cat", "write", *(f"e{n}" for n in range(9))], np.eye(11))
    write_vectors(tmp_path / "zh.vec", ["猫", "写", *(f"z{n}" for n in range(9))], np.eye(11))
    en, zh = load_vectors(tmp_path / "en.vec"), load_vectors(tmp_path / "zh.vec")
    file = tmp_path / "dictionary"
    more = "".join(f"z{n}\te{n}\n" for n in range(9))
    file.write_text(
        f"# CC-CEDICT\n貓 猫 [mao1] /cat (CL:隻|只[zhi1])/(dialect) to hide oneself/\n寫 写 [xie3] /to write/\n{more}",
        encoding="utf-8",
    )
    assert read_dictionary(file, en, zh) == {n: [n] for n in range(11)}
    assert read_dictionary(file, zh, en) == {n: [n] for n in range(11)}
    file.write_text("猫 cat\n", encoding="utf-8")
    with pytest.raises(CutawayError, match=r":1: '猫 cat', expected an entry of CC-CEDICT"):
        read_dictionary(file, en, zh)
    file.write_text("猫\tcat\n", encoding="utf-8")
    with pytest.raises(
        CutawayError, match="have a vector, and a translation that has one: 1, expected at least 10"
    ):
        read_dictionary(file, en, zh)


def test_vectors_of_two_widths_are_refused(
    pair: tuple[WordVectors, WordVectors, Path], tmp_path: Path
) -> None:
    write_vectors(tmp_path / "c.vec", [f"b{n}" for n in range(WORDS)], np.ones((WORDS, 3)))
    with pytest.raises(CutawayError, match="vectors of 8 and of 3 numbers"):
        score_translations(pair[0], load_vectors(tmp_path / "c.vec"), pair[2])


def test_on_the_command_line(cutaway, pair: tuple[WordVectors, WordVectors, Path], tmp_path: Path) -> None:
    options = ("evaluate", "-m", "a.vec", "--other", "b.vec", "--dictionary", "a-b.tsv")
    assert json.loads(cutaway(*options, "--json").out)["translations"]["first"] == 1.0
    assert "100.0%" in cutaway(*options).out
    result = cutaway("convert", "a.vec", "turned.vec", "--onto", "b.vec", "--dictionary", "a-b.tsv")
    assert result.code == 0, result.err
    near = load_vectors(tmp_path / "turned.vec").vector("a3")
    torch.testing.assert_close(near, pair[1].vector("b3"), rtol=1e-5, atol=1e-5)
    assert "belong together" in cutaway(*options[:5]).err
    assert "belong together" in cutaway("convert", "a.vec", "x.vec", "--onto", "b.vec").err
    assert "belong to word vectors" in cutaway("convert", "poet-zh", "x", "--onto", "b.vec").err
    assert "no word vectors" in cutaway(*options[:3], "--other", "poet-zh", "--dictionary", "a-b.tsv").err


def test_the_bundled_ones_lie_in_one_space() -> None:
    en, zh = load_vectors(find("words-en")), load_vectors(find("words-zh"))
    sources, targets = normalize(en.vectors, dim=1), normalize(zh.vectors, dim=1)
    for word, translation in (("house", "房子"), ("horse", "马"), ("snow", "雪")):
        near = csls(sources[[en.words.find(word)]], sources, targets)[0]
        assert zh.words.label(int(near.argmax())) == translation
