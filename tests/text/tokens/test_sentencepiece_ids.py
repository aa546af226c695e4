import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tests.text.conftest import CHINESE, ENGLISH
from tests.text.marian import write_pair
from tests.text.spm import spm
from tests.text.strange import GOLDEN, strange_texts
from transformers import M2M100Tokenizer, MarianTokenizer

from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("marian"))


def theirs(folder: Path) -> MarianTokenizer:
    with warnings.catch_warnings():
        # it recommends sacremoses, which it does not call to tokenise
        warnings.simplefilter("ignore")
        return MarianTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("side", ["source", "target"])
def test_ids_equal_transformers(pair: Path, side: str):
    ours, reference = Tokenizer.open(pair), theirs(pair)
    if side == "target":
        ours = ours.target
        assert Tokenizer.open(pair, side="target").encode("你好").ids == ours.encode("你好").ids
    texts = [*GOLDEN, *ENGLISH, *CHINESE, *strange_texts(400, seed=4, controls=False)]
    texts = [text for text in texts if not text.startswith(">>")]
    name = "text_target" if side == "target" else "text"
    asked: list[dict[str, Any]] = [{name: text} for text in texts]
    expected = [reference(**given, add_special_tokens=False).input_ids for given in asked]
    assert ours.encode_ids(texts) == expected
    assert [ours.encode(text).ids for text in texts[:100]] == expected[:100]


def test_the_sides_cut_differently_and_share_their_ids(pair: Path):
    source, target = Tokenizer.open(pair), Tokenizer.open(pair).target
    assert source.vocab_size == target.vocab_size == len(json.loads((pair / "vocab.json").read_text()))
    assert all(source.piece(id) == target.piece(id) for id in range(source.vocab_size))
    ids = target.encode_ids(["机器学习"])[0]
    assert source.decode(ids) == target.decode(ids) == "机器学习"
    assert target.target is target
    assert source.around == ([], [source.require("eos")])


def test_characters_that_a_side_does_not_know_are_looked_up_as_they_stand(pair: Path):
    source = Tokenizer.open(pair)
    alone, id = next((piece, id) for piece in "学我你的" if (id := source.id(piece)) is not None)
    encoding = source.encode(f"I love {alone}.")
    at = encoding.ids.index(id)
    assert encoding.offsets[at] == (7, 8)
    assert source.encode(f"{alone}龘").ids[-1] == source.require("unk")


def test_languages_are_control_tokens_that_no_text_spells(pair: Path):
    source = Tokenizer.open(pair)
    language = source.id(">>cmn_Hans<<")
    assert language in source.controls
    assert language not in source.encode(">>cmn_Hans<< I love it.").ids
    marked = source.encode_ids([">>cmn_Hans<< I love it."], controls=True)[0]
    assert marked[0] == language
    assert marked == theirs(pair)(">>cmn_Hans<< I love it.", add_special_tokens=False).input_ids


def test_both_sides_survive_saving(pair: Path, tmp_path: Path):
    before = Tokenizer.open(pair)
    before.save(tmp_path)
    after = Tokenizer.open(tmp_path)
    texts = [*ENGLISH, *CHINESE, *strange_texts(200)]
    assert after.encode_ids(texts) == before.encode_ids(texts)
    assert after.target.encode_ids(texts) == before.target.encode_ids(texts)
    assert theirs(tmp_path)("I love it.").input_ids == [*after.encode("I love it.").ids, after.require("eos")]


@pytest.mark.parametrize(
    "content", ['{"a": "b"}', '{"a": -1}', '{"a": 0, "b": 0}', "[]", '{"<s>": 99999999}', "{"]
)
def test_a_malformed_vocabulary_is_refused_by_name(pair: Path, tmp_path: Path, content: str):
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes((pair / name).read_bytes())
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(CutawayError, match=r"vocab\.json"):
        Tokenizer.open(tmp_path)


def test_m2m100_s_languages_come_after_the_vocabulary(tmp_path: Path):
    data = spm("bpe", vocab_size=400)
    model = sentencepiece.SentencePieceProcessor(model_proto=data)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(data)
    pieces = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        *(model.id_to_piece(id) for id in range(3, model.get_piece_size() - 9)),
    ]
    (tmp_path / "vocab.json").write_text(
        json.dumps({piece: id for id, piece in enumerate(pieces)}), encoding="utf-8"
    )
    reference = M2M100Tokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "sentencepiece.bpe.model"))
    languages = list(reference.lang_token_to_id)
    settings = {"tokenizer_class": "M2M100Tokenizer", "eos_token": "</s>", "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({**settings, "additional_special_tokens": languages})
    )
    ours = Tokenizer.open(tmp_path)
    texts = [*GOLDEN, *ENGLISH, *CHINESE, *strange_texts(300, seed=5, controls=False)]
    assert ours.encode_ids(texts) == [reference(text, add_special_tokens=False).input_ids for text in texts]
    assert {language: ours.id(language) for language in languages} == reference.lang_token_to_id
    assert ours.id("__en__") in ours.controls
    assert ours.target is ours
    ours.save(tmp_path / "saved")
    assert Tokenizer.open(tmp_path / "saved").encode_ids(texts) == ours.encode_ids(texts)


def test_two_vocabularies_are_refused_by_name(tmp_path: Path):
    (write_pair(tmp_path) / "target_vocab.json").write_text("{}")
    with pytest.raises(CutawayError, match=r"vocabularies of their own \(target_vocab\.json\)"):
        Tokenizer.open(tmp_path)
