import random
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tests.limits import takes_less_than
from tests.text.spm import spm
from tests.text.strange import GOLDEN, strange_texts
from transformers import AutoTokenizer

from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer

BYTES: dict[str, Any] = {"byte_fallback": True, "vocab_size": 700}
OWN = ["abc", "①", "我爱"]
SETTINGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "bytes": BYTES,
    "as it is": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "folded": {"normalization_rule_name": "nfkc_cf"},
    "all spaces": {"add_dummy_prefix": False, "remove_extra_whitespaces": False, **BYTES},
    "no prefix": {"add_dummy_prefix": False},
    "own symbols": {"user_defined_symbols": OWN},
    "controls": {"control_symbols": ["<x>", "[INST]"], **BYTES},
}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_ids_and_text_equal_sentencepiece_s(kind: str, settings: str, tmp_path: Path):
    data = spm(kind, **SETTINGS[settings])
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    (tmp_path / "tokenizer.model").write_bytes(data)
    ours = Tokenizer.open(tmp_path)
    texts = [*GOLDEN, *strange_texts(400, seed=3), *OWN]
    # such a text gets no dummy prefix from the library
    if kind == "bpe":
        texts = [text for text in texts if text not in OWN]
    ids = ours.encode_ids(texts)
    assert ids == theirs.encode(texts)
    unk = ours.require("unk")
    for each in ids:
        if unk not in each:
            assert ours.decode(each) == theirs.decode(each)
    ours.save(tmp_path / "saved")
    assert Tokenizer.open(tmp_path / "saved").encode_ids(texts) == ids


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS)
def test_ids_equal_sentencepiece_s_for_very_many_texts(settings: str, tmp_path: Path):
    data = spm("unigram", **SETTINGS[settings])
    (tmp_path / "tokenizer.model").write_bytes(data)
    texts = strange_texts(20_000, seed=2)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data).encode(texts)
    assert Tokenizer.open(tmp_path).encode_ids(texts) == theirs


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_spelling_a_control_token_or_a_byte_gives_none(kind: str, tmp_path: Path):
    (tmp_path / "spiece.model").write_bytes(spm(kind, **SETTINGS["controls"]))
    tokenizer = Tokenizer.open(tmp_path)
    assert {"<x>", "[INST]", "<s>", "</s>", "<unk>"} == set(tokenizer.controls.values())
    for ids in tokenizer.encode_ids([*tokenizer.controls.values(), "<0x41>", "a<0xE4>b"]):
        assert not set(ids).intersection(tokenizer.controls)
        assert tokenizer.id("<0x41>") not in ids and tokenizer.id("<0xE4>") not in ids
    assert tokenizer.id("[INST]") in tokenizer.encode_ids(["[INST] Tom"], controls=True)[0]


def test_offsets_lie_in_the_original_text(tmp_path: Path):
    (tmp_path / "a.spm").write_bytes(spm("unigram", texts=["... a ガ 12 ABC fi b"] * 20, vocab_size=40))
    tokenizer = Tokenizer.open(tmp_path)
    text = "？……か\u3099 ① ﬁ  b"
    encoding = tokenizer.encode(text)
    assert encoding.ids == tokenizer.encode_ids([text])[0]
    spans = list(zip(encoding.pieces, encoding.offsets, strict=True))
    dots = [span for piece, span in spans if piece.strip(".") == "" and piece]
    assert dots and all(span in ((1, 2), (2, 3), (1, 3)) for span in dots)
    assert spans[-1][1][1] == len(text)
    # か with its mark
    assert (3, 5) in encoding.offsets
    for text in strange_texts(300):
        starts = [start for start, _ in tokenizer.encode(text).offsets]
        assert starts == sorted(starts)
        assert all(0 <= start <= end <= len(text) for start, end in tokenizer.encode(text).offsets)


def test_t5_s_sentinels_come_after_the_pieces(tmp_path: Path):
    data = spm("unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (tmp_path / "spiece.model").write_bytes(data)
    count = sentencepiece.SentencePieceProcessor(model_proto=data).get_piece_size()
    tokenizer = Tokenizer.open(tmp_path)
    assert tokenizer.vocab_size == count + 100
    assert (tokenizer.id("<extra_id_99>"), tokenizer.id("<extra_id_0>")) == (count, count + 99)
    assert tokenizer.roles == {"pad": 0, "unk": 2, "eos": 1}
    assert tokenizer.around == ([], [1])
    text = "Thank you <extra_id_0> me"
    assert count + 99 not in tokenizer.encode_ids([text])[0]
    assert count + 99 in tokenizer.encode_ids([text], controls=True)[0]
    tokenizer.save(tmp_path / "saved")
    assert AutoTokenizer.from_pretrained(tmp_path / "saved")("I love it.").input_ids == [
        *tokenizer.encode_ids(["I love it."])[0],
        1,
    ]


def test_fairseq_s_ids_are_one_further_on(tmp_path: Path):
    data = spm("unigram")
    (tmp_path / "sentencepiece.bpe.model").write_bytes(data)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    tokenizer = Tokenizer.open(tmp_path)
    text = "我爱 machine learning."
    assert tokenizer.encode(text).ids == [id + 1 for id in theirs.encode(text)]
    assert tokenizer.encode("龘").ids[-1] == tokenizer.require("unk") == 3
    assert (tokenizer.id("<pad>"), tokenizer.role("mask")) == (1, theirs.get_piece_size() + 1)
    assert tokenizer.around == ([0], [2])


# Hostile files.


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"\n\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\n\x05\n\x7fab",
        b"\n\x03\n\x01a\x0b",
        b"\n\x03\n\x01\xff",
        b"\n\x08\n\x01a\x15\x00\x00\xc0\x7f",
        b"\n\x05\n\x01a\x18\x09",
        b"\n\x03\n\x01a",
        b"\n\x05\n\x01a\x18\x02\n\x05\n\x01a\x18\x01",
        b"\n\x05\n\x01a\x18\x02\x12\x02\x18\x03",
        b"\n\x05\n\x01a\x18\x02\x1a\x06\x12\x04\xff\xff\xff\x7f",
        b"\n" + b"\xff" * 20,
    ],
)
def test_malformed_models_are_refused_by_name(data: bytes, tmp_path: Path):
    (tmp_path / "tokenizer.model").write_bytes(data)
    with pytest.raises(CutawayError, match=r"tokenizer\.model"):
        Tokenizer.open(tmp_path)


def test_mutated_models_raise_nothing_else(tmp_path: Path):
    good = spm("unigram", vocab_size=120, texts=["the cat sat on the mat"] * 9)
    choose = random.Random(0)
    refused = 0
    for _ in range(120):
        at = choose.choice([choose.randrange(len(good)), choose.randrange(3000)])
        changed = (
            good[:at]
            + choose.randbytes(choose.choice([0, 1, 4]))
            + good[at + choose.choice([0, 1, 1, 500]) :]
        )
        (tmp_path / "tokenizer.model").write_bytes(changed)
        with takes_less_than(1):
            try:
                opened = Tokenizer.open(tmp_path)
                opened.decode(opened.encode("the ①cat か\u3099").ids)
            except CutawayError:
                refused += 1
    assert refused > 30


def test_what_is_neither_is_refused_and_strangers_are_passed_over(tmp_path: Path):
    (tmp_path / "vectors.model").write_bytes(b"\x80\x04pickle")
    assert not Tokenizer.found_in(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"\x80\x04pickle")
    with pytest.raises(CutawayError, match="not a SentencePiece model"):
        Tokenizer.open(tmp_path)
