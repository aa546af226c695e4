"""Files of word vectors, ours and gensim's, and those that are not as they should be (faults.md, kind 27)."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors
from gensim.models.fasttext import ft_hash_bytes

from cutaway import CutawayError, load_vectors, save_vectors
from cutaway.checkpoint.vector_files import read_vectors, write_vectors
from cutaway.checkpoint.word_vectors import WordVectors, first_words
from cutaway.models.word2vec import Word2Vec, Word2VecConfig, ngram_rows
from cutaway.text.word_list import WordList
from cutaway.zoo import find

WORDS = ["the", "国王", "naïve", "#12", "1.5", "new_york", "’", "\u00a0x\u2028"]


@pytest.fixture
def vectors() -> np.ndarray:
    rows = np.random.default_rng(1).normal(size=(len(WORDS), 5)).astype(np.float32)
    rows[0, :3] = 1e-30, -3.4e38, 1 / 3
    return rows


@pytest.mark.parametrize("ending", ["bin", "vec", "txt"])
def test_what_is_written_is_read_again_to_the_bit(tmp_path: Path, vectors: np.ndarray, ending: str) -> None:
    path = tmp_path / f"vectors.{ending}"
    write_vectors(path, WORDS, vectors)
    words, found, notes = read_vectors(path)
    assert words == WORDS and not notes
    np.testing.assert_array_equal(found, vectors)
    packed = tmp_path / f"packed.{ending}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    np.testing.assert_array_equal(read_vectors(packed)[1], vectors)
    assert find(packed) == packed and load_vectors(packed).words.words == WORDS


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_ours_and_we_read_gensims(tmp_path: Path, vectors: np.ndarray, binary: bool) -> None:
    words = WORDS[:-1]  # gensim takes a no-break space for white space
    ours, theirs = (tmp_path / f"{name}.{'bin' if binary else 'vec'}" for name in ("ours", "theirs"))
    write_vectors(ours, words, vectors[:-1])
    opened = KeyedVectors.load_word2vec_format(str(ours), binary=binary)
    assert opened.index_to_key == words
    np.testing.assert_array_equal(opened.vectors, vectors[:-1])
    opened.save_word2vec_format(str(theirs), binary=binary)
    found, rows, _ = read_vectors(theirs)
    assert found == words
    np.testing.assert_allclose(rows, vectors[:-1], rtol=1e-6)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_spaces_in_words_and_at_ends_of_lines_are_met(tmp_path: Path) -> None:
    text = "4 2\n. . . 1 2 \nat name@domain.com 3 4\r\n\t5 6 7\n</s> -0.5 1e-3\n"
    words, rows, _ = read_vectors(write(tmp_path / "a.vec", text))
    assert words == [". . .", "at name@domain.com", " 5", "</s>"]
    assert rows[:, 0].tolist() == [1, 3, 6, -0.5]
    glove = write(tmp_path / "glove.txt", "a b 1 2 3\nc 4 5 6\n")
    assert read_vectors(glove)[0] == ["a b", "c"] and read_vectors(glove)[1].shape == (2, 3)


def test_a_binary_file_with_and_without_line_feeds(tmp_path: Path) -> None:
    row = np.array([1, 2], "<f4").tobytes()
    # a number whose bytes are line feeds and spaces
    odd = b"\n\n  " + row[4:]
    for feed in (b"", b"\n"):
        data = b"3 2\n" + b"".join(
            word + b" " + each + feed for word, each in ((b"a", row), (b"b", odd), (b"c", row))
        )
        words, rows, _ = read_vectors(write(tmp_path / "a.bin", data))
        assert words == ["a", "b", "c"] and rows[2].tolist() == [1, 2]


def test_odd_bytes_and_words_that_stand_there_twice_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.vec", b"4 1\na 1\n\xff\xfeb 2\na 3\n\xe4\xb8 4\n")
    words, rows, notes = read_vectors(path)
    assert words == ["a", "\ufffd\ufffdb", "\ufffd"] and rows.flatten().tolist() == [1, 2, 4]
    assert "twice: 1" in str(notes[0]) and "not UTF-8: 2" in str(notes[1])
    # shown as something, and found by its id
    assert load_vectors(path).words.label(2) == "⟨U+FFFD⟩"


HOSTILE: list[tuple[str, str | bytes, str]] = [
    ("a.vec", "3 2\na 1 2\nb 3 4\n", "says 3 words, but there are 2: the file is cut short"),
    ("a.vec", "1 2\na 1 2\nb 3 4\n", "says 1 words, but there are 2: mend that line"),
    ("a.vec", "2 2\na 1 2\nb 3\n", r":3: 'b 3'… is not a word and 2 numbers, as the first line says"),
    ("a.txt", "a 1 2\nb 3 4 x\n", r":2: 'b 3 4 x'… is not a word and 2 numbers, as in the first line"),
    ("a.txt", "a 1 2\nb\n", r":2: 'b'… is not a word and 2 numbers"),
    ("a.txt", "a b c\n", r":1: 'a b c'… is not a word and 0 numbers"),
    ("a.txt", "a 1 nan\n", "the vector of 'a' holds numbers that are not finite"),
    ("a.vec", "1 1\na 1e999\n", "not finite"),
    (
        "a.vec",
        "999999999999 2\na 1 2\n",
        "says 999,999,999,999 words of 2 numbers, expected at most 10,000,000 of 65,536",
    ),
    ("a.vec", "1 0\na\n", "says 1 words of 0 numbers"),
    ("a.txt", "", "no vector there"),
    ("a.vec", "2 1\n", "says 2 words, but there are 0"),
    ("a.bin", b"5000000 300\nword " + b"\0" * 2000, "too few for 5,000,000 words of 300 numbers"),
    ("a.bin", b"1 1\n" + b"x" * 20_000, "word 1 of 1 is not whole"),
    ("a.bin", b"1 2\na " + b"\0" * 8 + b"rest of it", "10 bytes follow the last of 1 words"),
    ("a.bin", b"1 1\na " + b"\xff" * 4, "not finite"),
    (
        "a.bin",
        b"\x80\x04\x95 a pickle",
        r"begins with b'\\x80\\x04.*expected the number of words and their width",
    ),
    ("a.bin", b"", "expected the number of words and their width"),
    ("a.txt.gz", gzip.compress(b"a 1 2\n" * 99, mtime=0)[:-12], "damaged or cut gzip file"),
    ("a.bin.gz", b"\x1f\x8b\x08", "damaged or cut gzip file"),
]


@pytest.mark.parametrize(("name", "content", "said"), HOSTILE)
def test_a_wrong_file_is_told(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    with pytest.raises(CutawayError, match=said) as error:
        load_vectors(write(tmp_path / name, content))
    assert name in str(error.value)


@pytest.mark.parametrize("word", ["", "a b", "a\nb", "\t"])
@pytest.mark.parametrize("ending", ["bin", "vec", "txt"])
def test_words_that_a_file_cannot_hold_are_not_written(tmp_path: Path, word: str, ending: str) -> None:
    with pytest.raises(CutawayError, match="is empty or holds white space"):
        write_vectors(tmp_path / f"a.{ending}", ["x", word], np.zeros((2, 1), np.float32))
    assert not list(tmp_path.iterdir())


def test_an_unknown_ending_is_told(tmp_path: Path) -> None:
    with pytest.raises(CutawayError, match=r"written to \.bin \(word2vec's\), \.vec"):
        write_vectors(tmp_path / "a.npz", ["x"], np.zeros((1, 1), np.float32))


# Folders.


@pytest.fixture
def opened(tmp_path: Path) -> WordVectors:
    torch.manual_seed(1)
    config = Word2VecConfig(family="word2vec", vocab_size=3, d_model=4, min_n=2, max_n=3, buckets=50)
    model = Word2Vec(config)
    torch.nn.init.normal_(model.unembed.weight)
    save_vectors(tmp_path / "model", model, WordList(["国王", "queen", "a"], [3, 2, 1]))
    return load_vectors(tmp_path / "model")


def test_a_folder_is_read_again_to_the_bit(opened: WordVectors, tmp_path: Path) -> None:
    save_vectors(tmp_path / "again", opened.model, opened.words)
    again = load_vectors(tmp_path / "again")
    assert again.words.words == opened.words.words and again.words.counts == [3, 2, 1]
    for one, other in zip(again.model.parameters(), opened.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(again.vectors[1], again.vector("queen"))
    assert again.vector("queens").shape == (4,) and "3 word vectors of 4 numbers" in repr(again)
    save_vectors(tmp_path / "half", opened.model, opened.words, torch.float16)
    torch.testing.assert_close(load_vectors(tmp_path / "half").vectors, opened.vectors, rtol=1e-3, atol=1e-4)


def test_the_vector_of_a_word_is_its_rows_sum_over_their_root(opened: WordVectors) -> None:
    """The n-grams of 国, found as fastText finds them."""
    rows = [3 + ft_hash_bytes(each.encode()) % 50 for each in ("<国", "国>", "<国>")]
    expected = opened.model.embed.weight[rows].sum(dim=0).detach() / 3**0.5
    torch.testing.assert_close(opened.vector("国"), expected)
    whole = opened.model.embed.weight[[0, *ngram_rows("国王", opened.config)]].sum(dim=0).detach()
    torch.testing.assert_close(opened.vector("国王"), whole / 6**0.5)


def test_the_first_words_alone_are_as_another_tools_file(opened: WordVectors, tmp_path: Path) -> None:
    few = first_words(opened, 2)
    assert few.words.counts == [3, 2] and few.config.max_n == 0
    assert torch.equal(few.model.unembed.weight, opened.model.unembed.weight[:2])
    save_vectors(tmp_path / "few", few.model, few.words)
    assert torch.equal(load_vectors(tmp_path / "few").vectors, opened.vectors[:2])
    save_vectors(tmp_path / "few.vec", few.model, few.words)
    assert torch.equal(load_vectors(tmp_path / "few.vec").vectors, opened.vectors[:2])


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("config.json", '"vocab_size": 3', '"vocab_size": 4', r"3 words and 3 counts, expected 4 texts"),
        ("config.json", '"d_model": 4', '"d_model": 5', r"embed\.weight"),
        ("config.json", '"buckets": 50', '"buckets": 9000000', r"embed\.weight"),
        ("config.json", '"skip-gram"', '"skip"', "context is 'skip', expected one of skip-gram"),
        ("words.json", '"words"', '"wrods"', "expected an object with the lists words and counts"),
        ("words.json", '"queen"', "7", "expected 3 texts and as many whole numbers"),
        ("words.json", "[3,", "[3,,", "not valid JSON"),
    ],
)
def test_a_wrong_folder_is_told(opened: WordVectors, file: str, old: str, new: str, said: str) -> None:
    path = opened.path / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(CutawayError, match=said) as error:
        load_vectors(opened.path)
    assert str(opened.path) in str(error.value)
