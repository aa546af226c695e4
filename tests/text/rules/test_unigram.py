"""The search for the most probable pieces: what the `tokenizers` library and sentencepiece do not agree about."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
from tests.text.conftest import TEXTS
from tests.text.spm import spm
from tests.text.strange import strange_texts

from cutaway.text.rules.unigram import SETTING, Unigram
from cutaway.text.tokenizer import Tokenizer

OWN = ["abc", "①", "ab", "bcd", "bc", "cdcd", "eee", "ee"]  # overlap
MARKUP = ["<x>", "[X]"]


def runs() -> list[str]:
    choose = random.Random(0)
    return ["".join(each * choose.randrange(1, 12) for each in choose.sample("01-= ", 3)) for _ in range(400)]


RUNS = [
    before + each * count
    for each in "01-="
    for count in range(1, 40)
    for before in ("", "I love it. ", "机器 ")
]


def opened(folder: Path, **settings: Any) -> tuple[Tokenizer, sentencepiece.SentencePieceProcessor]:
    """The two for one model."""
    data = spm("unigram", **settings)
    (folder / "tokenizer.model").write_bytes(data)
    return Tokenizer.open(folder), sentencepiece.SentencePieceProcessor(model_proto=data)


def test_of_equally_probable_ways_sentencepiece_s_is_taken(tmp_path: Path):
    ours, theirs = opened(tmp_path, texts=[*TEXTS, *runs()])
    expected = theirs.encode(RUNS)
    assert ours.encode_ids(RUNS) == [ours.encode(text).ids for text in RUNS] == expected
    assert ours.encode_ids(RUNS, controls=True) == expected
    ours.save(tmp_path / "saved")
    assert Tokenizer.open(tmp_path / "saved").encode_ids(RUNS) == expected
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "saved/tokenizer.json"))
    alone = [library.encode(text, add_special_tokens=False).ids for text in RUNS]
    assert any(one != two for one, two in zip(alone, expected, strict=True))  # else this test shows nothing


def test_pieces_of_equally_probable_ways_stand_where_they_are(tmp_path: Path):
    ours, _ = opened(tmp_path, texts=[*TEXTS, *runs()])
    for text in RUNS:
        encoding = ours.encode(text)
        for piece, (start, end) in zip(encoding.pieces, encoding.offsets, strict=True):
            assert piece.removeprefix("▁") == text[start:end].strip(" ")


def test_overlapping_pieces_of_the_user_are_weighed(tmp_path: Path):
    ours, theirs = opened(tmp_path, user_defined_symbols=[*OWN, *MARKUP])
    assert theirs.encode("abcd", out_type=str) == ["▁a", "bcd"]  # not abc, which comes first
    choose = random.Random(1)
    texts = ["".join(choose.choices("abcde①", k=choose.randrange(2, 20))) for _ in range(500)]
    texts += [*OWN, " abc ", "①\u3000"]
    assert ours.encode_ids(texts) == theirs.encode(texts)
    marked = [f"{one}<x>{two} [X]" for one, two in zip(texts[::2], texts[1::2], strict=False)]
    assert ours.encode_ids(marked, controls=True) == theirs.encode(marked)
    forbidden = {theirs.piece_to_id(piece) for piece in MARKUP}
    assert not any(forbidden.intersection(ids) for ids in ours.encode_ids(marked))


def test_a_piece_of_the_user_alone_stands_where_it_is(tmp_path: Path):
    ours, _ = opened(tmp_path, user_defined_symbols=OWN)
    encoding = ours.encode(" abc ")
    assert list(zip(encoding.pieces, encoding.offsets, strict=True)) == [("▁", (0, 0)), ("abc", (1, 4))]


def test_what_stands_between_control_tokens_is_cut_by_itself(tmp_path: Path):
    ours, theirs = opened(tmp_path, texts=[*TEXTS, *runs()])
    end, unk = theirs.eos_id(), theirs.unk_id()
    for one, two in pairwise(RUNS):
        text = f"{one}</s>龘{two}<unk>"
        expected = [*theirs.encode(one), end, *theirs.encode(f"龘{two}"), unk]
        assert ours.encode_ids([text], controls=True) == [expected]


def test_a_very_long_text(tmp_path: Path):
    ours, theirs = opened(tmp_path, texts=[*TEXTS, *runs()])
    text = " ".join([*strange_texts(2500, seed=6), "0" * 5001, *RUNS])
    ids = ours.encode_ids([text])
    assert len(ids[0]) > 20_000  # the sum of logarithms passes -100,000 on the way
    assert ids == [theirs.encode(text)]


def test_added_tokens_that_are_no_pieces_are_still_found(tmp_path: Path):
    id = opened(tmp_path)[1].get_piece_size()
    added = {str(id): {"content": "machine", "special": False}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    assert id in Tokenizer.open(tmp_path).encode("I love machine learning.").ids


def test_a_vocabulary_of_the_library_s_own_is_left_to_it(tmp_path: Path):
    ours = Tokenizer.train(TEXTS, "unigram", 600)
    ours.save(tmp_path)
    assert SETTING not in json.loads((tmp_path / "tokenizer_config.json").read_text())
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = [*RUNS, *TEXTS]
    assert ours.encode_ids(texts) == [library.encode(text, add_special_tokens=False).ids for text in texts]


def test_very_long_pieces_are_left_to_the_library(tmp_path: Path):
    for length, left in ((256, False), (257, True)):
        data = spm("unigram", user_defined_symbols=["z" * length])
        (tmp_path / "tokenizer.model").write_bytes(data)
        ours, theirs = Tokenizer.open(tmp_path), sentencepiece.SentencePieceProcessor(model_proto=data)
        ours.save(tmp_path / "saved")
        assert Unigram.fits(json.loads((tmp_path / "saved/tokenizer.json").read_text())) is not left
        texts = ["z" * (length - 1), "a" + "z" * length]
        assert ours.encode_ids(texts) == theirs.encode(texts)
