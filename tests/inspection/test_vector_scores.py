from pathlib import Path

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors
from tests.real.data import shared

from cutaway import CutawayError, load_vectors
from cutaway.checkpoint.vector_files import write_vectors
from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.inspection import analogy, neighbours, projection, similarity
from cutaway.inspection.vector_scores import score_analogies, score_judged
from cutaway.inspection.vectors import space_of

WORDS = ["king", "queen", "man", "woman", "apple", "boy"]
ROWS = [[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0.5]]


@pytest.fixture
def opened(tmp_path: Path) -> WordVectors:
    write_vectors(tmp_path / "toy.vec", WORDS, np.array(ROWS))
    return load_vectors(tmp_path / "toy.vec")


def test_analogies_by_section(opened: WordVectors, tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(
        ": family\nman woman King Queen\nman woman boy girl\n\n: wrong ones\nman king woman apple\n",
        encoding="utf-8",
    )
    family, wrong, total = score_analogies(opened, file)
    assert (family.name, family.right, family.asked, family.unknown) == ("family", 1, 1, 1)
    assert (wrong.right, wrong.asked) == (0, 1) and (total.right, total.asked, total.unknown) == (1, 2, 1)
    assert total.accuracy == 0.5
    for text, said in (("a b c", r":1: 'a b c' are 3 words, expected four"), ("", "no question there")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(CutawayError, match=said):
            score_analogies(opened, file)


def test_rank_correlation(opened: WordVectors, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    # cosines 0.5, 0, 0.707, 0.894 and one pair without a vector
    file.write_text(
        "Word 1,Word 2,Human\nking,queen,6\nking,apple,1\nking,man,5\nman,boy,9\nx,y,3\n", encoding="utf-8"
    )
    judged = score_judged(opened, file)
    assert (judged.pairs, judged.unknown) == (4, 1)
    assert judged.correlation == pytest.approx(0.8)
    file.write_text("king\tqueen\t6\nking queen 5\n", encoding="utf-8")
    with pytest.raises(CutawayError, match=r":2: 'king queen 5', expected two words and a number"):
        score_judged(opened, file)
    file.write_text("king\tqueen\t6\n", encoding="utf-8")
    with pytest.raises(CutawayError, match="have a vector: 1, expected at least 3"):
        score_judged(opened, file)


def test_the_scores_are_gensims(tmp_path: Path) -> None:
    """The words of the real files with random vectors, some of them left out, and equal scores among the pairs."""
    questions = shared("w2v-eval/questions-words.txt", "the analogies")
    pairs = shared("w2v-eval/wordsim353.tsv", "the judged pairs")
    words = sorted({word.lower() for word in questions.read_text().split() if word != ":"})[::2]
    judged = [line.lower().split("\t") for line in pairs.read_text().splitlines() if not line.startswith("#")]
    words += sorted({word for line in judged for word in line[:2]} - {*words})
    rows = np.random.default_rng(1).normal(size=(len(words), 3)).astype(np.float32)
    write_vectors(tmp_path / "a.bin", words, rows)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "a.bin"), binary=True)
    ours = load_vectors(tmp_path / "a.bin")
    sections = theirs.evaluate_word_analogies(str(questions), case_insensitive=True)[1]
    found = score_analogies(ours, questions)
    for mine, other in zip(found, sections, strict=True):
        assert (mine.right, mine.asked) == (
            len(other["correct"]),
            len(other["correct"]) + len(other["incorrect"]),
        )
    assert found[-1].right > 0
    spearman = theirs.evaluate_word_pairs(str(pairs))[1].statistic
    assert score_judged(ours, pairs).correlation == pytest.approx(spearman, abs=1e-6)


def test_the_questions_of_points_are_asked_of_words(opened: WordVectors) -> None:
    assert [each.piece for each in neighbours(opened, "man", top=2).items] == ["boy", "king"]
    assert analogy(opened, "king", "man", "woman", normalised=False).answers[0].piece == "queen"
    assert projection(opened, ("king", "queen", "man", "woman")).pieces == ("king", "queen", "man", "woman")
    with pytest.raises(CutawayError, match=r"has no output vector of each word \(output is none\)"):
        space_of(opened, "unembedding")


def test_the_similarity_of_texts_is_a_sum_over_pairs_of_words(opened: WordVectors) -> None:
    found = similarity(opened, "the king, a man", "woman queen")
    assert (found.first.pieces, found.second.pieces) == (["king", "man"], ["woman", "queen"])
    means = opened.vectors[[0, 2]].double().mean(dim=0), opened.vectors[[3, 1]].double().mean(dim=0)
    assert found.cosine == pytest.approx(float(torch.cosine_similarity(*means, dim=0)))
    assert float(found.shares.sum()) == pytest.approx(found.cosine)
    assert "bank is the same in both its meanings" in str(found.page().blocks[-1])
    with pytest.raises(CutawayError, match=r"no word of 'x, y' has a vector \(x, y\)"):
        similarity(opened, "x, y", "king")
