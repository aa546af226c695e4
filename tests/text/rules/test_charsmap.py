import base64
import random
import struct
import time
from pathlib import Path

import pytest
import sentencepiece
from tests.text.spm import spm
from tests.text.strange import GOLDEN, strange_texts

from cutaway.errors import CutawayError
from cutaway.text.formats import sentencepiece_model
from cutaway.text.rules.charsmap import Charsmap


@pytest.fixture(scope="module", params=["nmt_nfkc", "nfkc_cf"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("charsmap") / "a.model"
    file.write_bytes(spm("unigram", normalization_rule_name=request.param))
    return file


def table(file: Path) -> str:
    encoded = sentencepiece_model.read(file).rules.charsmap
    assert encoded is not None
    return encoded


def test_texts_become_what_sentencepiece_makes_of_them(model: Path):
    theirs = sentencepiece.SentencePieceNormalizer(
        model_file=str(model),
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        escape_whitespaces=False,
    )
    ours = Charsmap(table(model), [], "a.model")
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
    new, spans = Charsmap(table(model), [], "a.model").aligned("a…か\u3099①")
    assert new == "a...が1"
    assert spans == [(0, 1), (1, 2), (1, 2), (1, 2), (2, 4), (4, 5)]


def test_spellings_that_are_kept_stay(model: Path):
    ours = Charsmap(table(model), ["①", "…x"], "a.model")
    assert ours.text("①②…x…①") == "①2…x...①"
    assert ours.aligned("②①")[1] == [(0, 1), (1, 2)]


def test_a_long_text_takes_time_in_proportion(model: Path):
    ours = Charsmap(table(model), [], "a.model")
    for text in ("e" + "\u0301" * 200_000, "か\u3099" * 100_000, "x" * 1_000_000):
        begun = time.perf_counter()
        ours.text(text)
        assert time.perf_counter() - begun < 10


def packed(*units: int, texts: bytes = b"\0") -> str:
    trie = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


@pytest.mark.parametrize(
    "encoded",
    [
        "%%%",
        "",
        base64.b64encode(b"\xff\xff\xff\x7fabcd").decode(),
        base64.b64encode(b"\x04\0\0\0abc").decode(),
        packed(1 << 10, *((7 << 10 | 1 << 8 | label) for label in range(256))),
        packed(0, *((1 << 8) | label for label in range(1, 256)), texts=b"\xff\0"),
        packed(0, *((label << 10 | label) for label in range(1, 256))),
    ],
)
def test_malformed_tables_are_refused_by_name(encoded: str):
    with pytest.raises(CutawayError, match=r"^a\.model: malformed: its precompiled_charsmap "):
        Charsmap(encoded, [], "a.model")


def test_a_trie_that_runs_in_circles_ends():
    """Every letter leads back to where it came from, and is replaced by nothing."""
    circle = packed(0, *((label << 10 | 1 << 8 | label) for label in range(1, 128)))
    begun = time.perf_counter()
    assert Charsmap(circle, [], "a.model").text("abc我" * 20_000) == "我" * 20_000
    assert time.perf_counter() - begun < 10
