import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.text.conftest import CHINESE, ENGLISH, KINDS, TEXTS, learn

from cutaway.errors import CutawayError
from cutaway.text.tokens.plan import Kind
from cutaway.text.tokens.tokenizer import Tokenizer


def source(tokenizer: Tokenizer, folder: Path) -> str:
    tokenizer.save(folder)
    return (folder / "tokenizer.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "unigram"])
def test_the_same_texts_give_the_same_vocabulary(kind: Kind, tmp_path: Path):
    assert len({source(learn(kind), tmp_path / str(n)) for n in range(3)}) == 1


def test_control_tokens_come_first_then_bytes_then_characters_then_merges():
    tokenizer = learn("bpe", controls=("<cut>",))
    assert [tokenizer.piece(id) for id in range(7)] == [
        "<pad>",
        "<unk>",
        "<s>",
        "</s>",
        ">>eng<<",
        ">>zho<<",
        "<cut>",
    ]
    assert [tokenizer.piece(7 + byte) for byte in (0, 255)] == ["<0x00>", "<0xFF>"]
    pieces = [tokenizer.piece(id) for id in range(7 + 256, tokenizer.vocab_size)]
    single = [piece for piece in pieces if len(piece) == 1]
    assert pieces[: len(single)] == sorted(single)
    assert {chr(code) for code in range(0x20, 0x7F)} <= set(single)


def test_the_vocabulary_has_the_size_asked_for():
    for size in (500, 550, 600):
        assert Tokenizer.train(TEXTS, "bpe", size, alphabet=150).vocab_size == size
    assert Tokenizer.train(ENGLISH, "words", 20, min_count=1).vocab_size == 20


def test_rare_characters_fall_back_to_bytes_and_no_merge_crosses_them():
    tokenizer = Tokenizer.train(["我龘你"] * 50 + ["我们"] * 9 + ["你们"] * 9, "bpe", 500, alphabet=98)
    assert tokenizer.id("龘") is not None
    tokenizer = Tokenizer.train(["我们龘你们"] * 5 + ["我们", "你们"] * 9, "bpe", 500, alphabet=98)
    assert tokenizer.id("龘") is None
    assert tokenizer.id("们你") is None
    assert tokenizer.encode("们龘你").pieces == ["们", "⟨E9⟩", "⟨BE⟩", "⟨98⟩", "你"]


def test_coverage_decides_how_many_characters_have_pieces():
    few, many = (Tokenizer.train(TEXTS, "bpe", 900, coverage=share) for share in (0.9, 1.0))
    text = "".join(CHINESE)
    assert few.id("罔") is None
    assert all(many.id(character) is not None for character in text)
    assert sum(few.id(character) is not None for character in text) < len(text)


@pytest.mark.parametrize("kind", ["bpe-bytes", "bpe", "unigram"])
def test_digits_are_single_and_punctuation_and_scripts_are_apart(kind: Kind):
    texts = ["In 1987, 1987 people; 我爱1987。好，love我们don't"] * 9
    tokenizer = Tokenizer.train(texts, kind, 700)
    pieces = tokenizer.encode(texts[0]).pieces
    for piece in pieces:
        text = piece.replace("▁", "")
        scripts = (r"\d", r"[a-z']+", r"[一-鿿]+", r"[,;。，]+", r"(⟨..⟩)+")
        assert not text or any(re.fullmatch(script, text, re.IGNORECASE) for script in scripts), piece
    assert [piece.strip("▁") for piece in pieces if piece.strip("▁").isdigit()] == list("198719871987")


def test_spaces_before_chinese_are_not_part_of_a_word():
    tokenizer = Tokenizer.train(["我们 我们 我们 we we we"] * 9, "bpe", 500)
    assert tokenizer.encode("我们 我们").pieces == ["我们", "▁", "我们"]
    assert tokenizer.encode("we we").pieces == ["▁we", "▁we"]


@pytest.mark.parametrize("kind", ["wordpiece", "words", "characters"])
def test_what_is_not_in_the_vocabulary_is_unknown(tokenizers: dict[str, Tokenizer], kind: Kind):
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode("龘").ids
    assert ids == [tokenizer.role("unk")]
    assert tokenizer.decode(ids) == tokenizer.piece(ids[0])


def test_a_line_break_is_a_character_of_a_file(tmp_path: Path):
    file = tmp_path / "text.txt"
    file.write_text("ab\nba\n", encoding="utf-8")
    for source in (file, "ab\nba\n"):
        tokenizer = Tokenizer.train([source], "characters", None)
        assert tokenizer.decode(tokenizer.encode("a\nb").ids) == "a\nb"
    assert Tokenizer.train([file], "words", None).id("\n") is None


def test_lossy_kinds_decode_as_documented(tokenizers: dict[str, Tokenizer]):
    text = "He who  learns, but does not think"
    words = tokenizers["words"]
    assert words.decode(words.encode(text).ids) == "He who learns , but does not think"
    wordpiece = tokenizers["wordpiece"]
    assert wordpiece.decode(wordpiece.encode(text).ids) == "He who learns , but does not think"
    assert wordpiece.decode(wordpiece.encode("我爱机器 learning").ids) == "我爱机器 learning"


def test_pieces_left_over_at_the_end_stay_in_the_text(tokenizers: dict[str, Tokenizer]):
    wordpiece, bpe = tokenizers["wordpiece"], tokenizers["bpe"]
    love = [*wordpiece.encode("love").ids, wordpiece.id("##n") or 0]
    assert wordpiece.decode(love) == "loven"
    assert wordpiece.decode(love[-1:]) == "##n"
    assert bpe.decode([*bpe.encode("love").ids, bpe.id(" ") or 0]) == "love "


def test_whole_words_keep_apostrophes_and_segmented_chinese():
    tokenizer = Tokenizer.train(["我 爱 机器 学习 don't state-of-the-art a_b"] * 2, "words", None)
    pieces = tokenizer.encode("我 爱 机器 学习 don't state-of-the-art a_b!").pieces
    assert pieces == ["我", "爱", "机器", "学习", "don't", "state-of-the-art", "a_b", "<unk>"]


def test_lowercase_keeps_accents_and_letters():
    for kind in ("bpe", "wordpiece", "words"):
        tokenizer = Tokenizer.train(
            ["Ängstlich Ốc が ガ 각"] * 3, kind, 900, lowercase=True, normalization="nfc"
        )
        assert tokenizer.decode(tokenizer.encode("ÄNGSTLICH ỐC が").ids) == "ängstlich ốc が"


def test_files_are_read_line_by_line(tmp_path: Path):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS[:40]), encoding="utf-8")
    (tmp_path / "b.gz").write_bytes(gzip.compress("\n".join(TEXTS[40:]).encode()))
    files = Tokenizer.train([tmp_path / "a.txt", tmp_path / "b.gz"], "bpe", 700)
    lines = Tokenizer.train(TEXTS, "bpe", 700)
    assert source(files, tmp_path / "1") == source(lines, tmp_path / "2")
    generated = Tokenizer.train((text for text in TEXTS), "bpe", 700)
    assert source(generated, tmp_path / "3") == source(lines, tmp_path / "2")


def test_roles_are_the_caller_s(tmp_path: Path):
    tokenizer = Tokenizer.train(TEXTS, "words", 90, roles={"unk": "⁇", "eos": "<end>"})
    assert tokenizer.roles == {"unk": 0, "eos": 1}
    tokenizer.save(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert (settings["unk_token"], settings["eos_token"]) == ("⁇", "<end>")
    assert Tokenizer.open(tmp_path).roles == tokenizer.roles
    assert learn("wordpiece").roles == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kind": "bpe_bytes"},
            r"kind is 'bpe_bytes' \(did you mean 'bpe-bytes'\?\), expected one of bpe-bytes, bpe,",
        ),
        ({"normalization": "nfd"}, r"normalization is 'nfd' .* expected one of none, nfc, nfkc"),
        ({"vocab_size": 300}, "vocab_size is 300, too small: .* give at least"),
        ({"vocab_size": 100, "kind": "wordpiece"}, "vocab_size is 100, too small: .* give at least"),
        ({"vocab_size": 100, "kind": "bpe-bytes"}, "vocab_size is 100, too small"),
        ({"vocab_size": 3, "kind": "words"}, "vocab_size is 3, too small"),
        ({"vocab_size": 0}, "vocab_size is 0, expected 1 to"),
        ({"vocab_size": None}, "vocab_size is needed for a bpe vocabulary"),
        ({"coverage": 1.5}, "coverage is 1.5"),
        ({"alphabet": 0}, "alphabet is 0"),
        ({"min_count": 0}, "min_count is 0"),
        ({"roles": {"begin": "<s>"}}, "unknown role 'begin'; roles: pad, unk"),
        ({"roles": {"eos": "</s>"}, "kind": "words"}, "needs a piece for the role unk"),
        ({"controls": [" "]}, "control token ' ' is blank"),
        ({"template": "$A </S>"}, r"'</S>' is no control token \(did you mean '</s>'\?\)"),
        ({"texts": []}, "no text to learn"),
        ({"texts": ["", ""]}, "no text to learn"),
        ({"texts": "one string"}, "got one string"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], message: str):
    arguments: dict[str, Any] = {"texts": TEXTS, **settings}
    with pytest.raises(CutawayError, match=message):
        Tokenizer.train(**arguments)
