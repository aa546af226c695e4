from pathlib import Path

import pytest
from tests.limits import takes_less_than

from cutaway import CutawayError, Tokenizer
from cutaway.text.sequences import LONGEST, cutter, gather
from cutaway.text.word_list import WordList


def read(found) -> list[list[str]]:
    """The sequences as words again."""
    ends = zip(found.starts[:-1], found.starts[1:], strict=True)
    return [[found.words.words[id] for id in found.ids[a:b]] for a, b in ends]


def test_words_are_counted_and_the_frequent_come_first() -> None:
    texts = [["b", "a", "rare", "b"], [], ["rare too"], ["c", "a"], ["c"]]
    found = gather(texts, min_count=2)
    # of equal counts by code point
    assert (found.words.words, found.words.counts) == (["a", "b", "c"], [2, 2, 2])
    # rarer words are gone before windows are laid
    assert read(found) == [["b", "a", "b"], ["c", "a"], ["c"]]
    with pytest.raises(CutawayError, match="at least 9 times: 0, expected two or more"):
        gather(texts, min_count=9)
    with pytest.raises(CutawayError, match="times: 0"):
        gather([])


def test_a_phrase_that_is_spelled_as_a_word_is_that_word() -> None:
    texts = [["new_york"]] * 5 + [["new", "york"]] * 20 + [[f"w{n}", "x"] for n in range(300)]
    found = gather(texts, min_count=2, phrases=1, threshold=1.0)
    assert len(set(found.words.words)) == len(found.words.words)
    assert found.words.counts[found.words.find("new_york")] == 25


def test_a_long_sequence_is_divided_and_nothing_is_left_out() -> None:
    found = gather([["a", "b"] * 12_345, ["a"]], min_count=1)
    lengths = [len(words) for words in read(found)]
    assert sum(lengths) == 24_691 and max(lengths) <= LONGEST and lengths[:3] == [8230, 8230, 8230]


def test_phrases_are_joined_from_left_to_right() -> None:
    apart = [["new"], ["york"], ["times"], ["of", "of"], ["of"]] * 20
    texts = [["new", "york", "times"], ["of", "new", "york"], ["york", "new", "york"]] * 30
    once = gather([*texts, *apart], min_count=2, phrases=1, threshold=1.5)
    assert read(once)[:3] == [["new_york", "times"], ["of", "new_york"], ["york", "new_york"]]
    twice = gather([*texts, *apart], min_count=2, phrases=2, threshold=1.5)
    assert "new_york_times" in twice.words.words
    # never across the end of a sequence
    ends = gather([["a"], ["b"]] * 50, min_count=1, phrases=1, threshold=0.1)
    assert set(ends.words.words) == {"a", "b"}
    # of three in a row the first two
    run = gather([["x", "x", "x"]] * 50 + [["y"]] * 900, min_count=1, phrases=1, threshold=1)
    assert read(run)[0] == ["x_x", "x"]


def test_what_a_word_is() -> None:
    text = "Don't panic, Zoë! 42 years in 北京大学_x — re-read."
    assert cutter("words", False)(text) == [
        "Don't", "panic", "Zoë", "42", "years", "in", "北京大学", "x", "re", "read",
    ]  # fmt: skip
    assert cutter("spaces", True)(" A1\tb-2\u3000国王 ") == ["a1", "b-2", "国王"]
    assert cutter("jieba", True)("国王爱上了王后。") == ["国王", "爱上", "了", "王后"]


def test_the_pieces_of_a_tokenizer(tmp_path: Path) -> None:
    texts = ["国王和王后", "the king and the queen"] * 20
    tokenizer = Tokenizer.train(texts, "bpe-bytes", 300)
    cut = cutter("tokenizer", False, tokenizer)
    found = gather(map(cut, texts), min_count=1)
    assert sum(found.counts) == sum(len(ids) for ids in tokenizer.encode_ids(texts))
    assert len(set(found.words.words)) == len({id for ids in tokenizer.encode_ids(texts) for id in ids})
    # as a text begins, or within one
    assert found.words.id("the") is not None and found.words.id("and") is not None


def test_words_are_found_as_a_reader_names_them() -> None:
    words = WordList(["the", "▁king", "new_york", "Ünïcode", "国王", "国", "the"], [9, 8, 7, 6, 5, 4, 3])
    assert [words.id(word) for word in ("the", "king", "new york", "THE", "国王", "queen")] == [
        0,
        1,
        2,
        0,
        4,
        None,
    ]
    assert words.find(3) == 3 and words.label(3) == "Ünïcode"
    for point, said in (
        ("kign", r"'kign' is not among the 7 words"),
        (7, "word id 7 is not in the vocabulary"),
    ):
        with pytest.raises(CutawayError, match=said):
            words.find(point)


def test_words_of_a_text() -> None:
    words = WordList(["the", "king", "国王", "王后", "爱上", "国"])
    assert words.read("The king, unheard-of") == ([0, 1], ["unheard", "of"])
    # the longest word that is known, from the left
    assert words.read("国王爱上了王后") == ([2, 4, 3], ["了"])
    # what is written with spaces is not taken apart
    assert WordList(["na", "ve", "the"]).read("the naïve") == ([2], ["naïve"])
    # in time that grows as the text does
    with takes_less_than(2.0):
        assert len(words.read("地" * 20_000)[1]) == 20_000
    assert words.read("king") == ([1], []) and words.read("  ") == ([], [])
