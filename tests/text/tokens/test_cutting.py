"""The search for the most probable pieces: what the `tokenizers` library and sentencepiece do not agree about."""

import base64
import json
import random
import struct
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from tests.limits import takes_less_than
from tests.text.conftest import TEXTS
from tests.text.spm import spm
from tests.text.strange import GOLDEN, strange_texts

from cutaway.errors import CutawayError
from cutaway.text.tokens.cutting import SETTING, Replacements
from cutaway.text.tokens.sentencepiece_model import parse
from cutaway.text.tokens.tokenizer import Tokenizer

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
    # else this test shows nothing
    assert any(one != two for one, two in zip(alone, expected, strict=True))


def test_pieces_of_equally_probable_ways_stand_where_they_are(tmp_path: Path):
    ours, _ = opened(tmp_path, texts=[*TEXTS, *runs()])
    for text in RUNS:
        encoding = ours.encode(text)
        for piece, (start, end) in zip(encoding.pieces, encoding.offsets, strict=True):
            assert piece.removeprefix("▁") == text[start:end].strip(" ")


def test_overlapping_pieces_of_the_user_are_weighed(tmp_path: Path):
    ours, theirs = opened(tmp_path, user_defined_symbols=[*OWN, *MARKUP])
    # not abc, which comes first
    assert theirs.encode("abcd", out_type=str) == ["▁a", "bcd"]
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
    assert list(zip(encoding.pieces, encoding.offsets, strict=True)) == [("▁", (1, 1)), ("abc", (1, 4))]


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
    # the sum of logarithms passes -100,000 on the way
    assert len(ids[0]) > 20_000
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


def test_very_long_pieces(tmp_path: Path):
    for length in (256, 5000):
        ours, theirs = opened(tmp_path, user_defined_symbols=["z" * length])
        texts = ["z" * (length - 1), "a" + "z" * length]
        assert ours.encode_ids(texts) == theirs.encode(texts)


# Replacements.


@pytest.fixture(scope="module", params=["nmt_nfkc", "nfkc_cf"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("charsmap") / "a.model"
    file.write_bytes(spm("unigram", normalization_rule_name=request.param))
    return file


def table(file: Path) -> str:
    return base64.b64encode(parse(file.read_bytes(), file.name).rules.charsmap).decode()


def test_texts_become_what_sentencepiece_makes_of_them(model: Path):
    theirs = sentencepiece.SentencePieceNormalizer(
        model_file=str(model),
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        escape_whitespaces=False,
    )
    ours = Replacements(table(model), [], "a.model")
    choose = random.Random(0)
    marks = ["".join(choose.choice("eがᄒ" + "\u0301\u0323\u3099ᅡᆫ") for _ in range(5)) for _ in range(500)]
    characters = [chr(code) for code in range(1, 0x30000) if not 0xD800 <= code < 0xE000]
    texts = [*GOLDEN, *marks, *(text.replace("\0", "") for text in strange_texts(500)), "".join(characters)]
    for text in texts:
        assert ours.text(text) == theirs.normalize(text)
        new, spans = ours.aligned(text)
        assert new == ours.text(text) and len(spans) == len(new)
        assert all(0 <= start < end <= len(text) for start, end in spans)


def test_every_character_knows_what_it_stands_for(model: Path):
    new, spans = Replacements(table(model), [], "a.model").aligned("a…か\u3099①")
    assert new == "a...が1"
    assert spans == [(0, 1), (1, 2), (1, 2), (1, 2), (2, 4), (4, 5)]


def test_spellings_that_are_kept_stay(model: Path):
    ours = Replacements(table(model), ["①", "…x"], "a.model")
    assert ours.text("①②…x…①") == "①2…x...①"
    assert ours.aligned("②①")[1] == [(0, 1), (1, 2)]


def test_a_long_text_takes_time_in_proportion(model: Path):
    ours = Replacements(table(model), [], "a.model")
    for text in ("e" + "\u0301" * 200_000, "か\u3099" * 100_000, "x" * 1_000_000):
        with takes_less_than(5):
            ours.text(text)


def packed(*units: int, texts: bytes = b"\0") -> str:
    trie = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


@pytest.mark.parametrize("encoded", ["%%%", base64.b64encode(b"\xff\xff\xff\x7fabcd").decode()])
def test_malformed_tables_are_refused_by_name(encoded: str):
    with pytest.raises(CutawayError, match=r"^a\.model: "):
        Replacements(encoded, [], "a.model")


FAR = (1 << 21) - 1 << 10  # as far as a unit of the trie can point
LETTERS = range(1, 256)


@pytest.mark.parametrize(
    "encoded",
    [
        packed(FAR | 1 << 9, *[0] * 255),
        packed(0, *((FAR | 1 << 9 | 1 << 8 | label) for label in LETTERS)),
        packed(0, *((256 << 10 | 1 << 8 | label) for label in LETTERS), *[0x7FFFFFFF | 1 << 31] * 512),
        packed(0, *((256 << 10 | 1 << 8 | label) for label in LETTERS), *[1 << 31] * 512, texts=b"no end"),
        packed(0, *((256 << 10 | 1 << 8 | label) for label in LETTERS), *[1 << 31] * 512, texts=b"\xff\0"),
        # runs in circles
        packed(0, *((label << 10 | 1 << 8 | label) for label in range(1, 128))),
        *(packed(*(random.Random(seed).getrandbits(32) for _ in range(512))) for seed in range(50)),
    ],
)
def test_tables_that_point_anywhere_do_no_harm(encoded: str):
    with takes_less_than(5), suppress(CutawayError):
        Replacements(encoded, [], "a.model").aligned("abc我\0か\u3099" * 2000)
