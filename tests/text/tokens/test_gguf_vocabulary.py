import json
from pathlib import Path

import pytest
import sentencepiece
from tests.text.conftest import learn
from tests.text.spm import spm
from tests.text.strange import GOLDEN, strange_texts
from tokenizers import Tokenizer as Library
from tokenizers import pre_tokenizers

from cutaway.errors import CutawayError
from cutaway.text.tokens.gguf_vocabulary import from_gguf
from cutaway.text.tokens.sentencepiece_model import PieceType, Rules, SentencePieceModel, describe, typed
from cutaway.text.tokens.tokenizer import Tokenizer

STORIES = Path(__file__).parents[4] / "shared/data/checkpoints/stories260K/tok512.bin"


def byte_level(folder: Path, **more: object) -> tuple[Tokenizer, dict[str, object]]:
    """A byte-level BPE, and what a GGUF file would say of it."""
    learned = learn("bpe-bytes")
    learned.save(folder)
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    values: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": list(model["vocab"]),
        "token_type": [3 if learned.is_control(id) else 1 for id in model["vocab"].values()],
        "merges": [" ".join(pair) for pair in model["merges"]],
        "bos_token_id": learned.role("bos"),
        "eos_token_id": learned.role("eos"),
        **more,
    }
    return learned, {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


def sentencepiece_bpe(**more: object) -> tuple[sentencepiece.SentencePieceProcessor, dict[str, object]]:
    data = spm("bpe", vocab_size=700, byte_fallback=True, normalization_rule_name="identity")
    model = sentencepiece.SentencePieceProcessor(model_proto=data)
    ids = range(model.get_piece_size())
    kinds = [
        6 if model.is_byte(id) else 3 if model.is_control(id) else 2 if model.is_unknown(id) else 1
        for id in ids
    ]
    values: dict[str, object] = {
        "model": "llama",
        "tokens": [model.id_to_piece(id) for id in ids],
        "scores": [model.get_score(id) for id in ids],
        "token_type": kinds,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "remove_extra_whitespaces": True,
        **more,
    }
    return model, {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


def test_sentencepiece_s_ids_come_back():
    theirs, metadata = sentencepiece_bpe()
    ours = from_gguf(metadata)
    texts = [*GOLDEN, *strange_texts(500)]
    assert ours.encode_ids(texts) == theirs.encode(texts)
    assert ours.roles == {"unk": 0, "bos": 1, "eos": 2}
    assert ours.around == ([1], [])
    for text in ("<s>", "</s>", "<unk>", "<0x41>"):
        assert not set(ours.encode(text).ids).intersection(ours.controls)
        assert ours.id("<0x41>") not in ours.encode(text).ids


@pytest.mark.parametrize(
    ("pre", "parts"),
    [
        ("gpt-2", ["12345", " 67"]),
        ("smollm", ["1", "2", "3", "4", "5", " ", "6", "7"]),
        ("llama-bpe", ["123", "45", " ", "67"]),
        ("qwen2", ["1", "2", "3", "4", "5", " ", "6", "7"]),
        ("gpt-4o", ["123", "45", " ", "67"]),
        ("default", ["123", "45", " ", "67"]),
        (None, ["123", "45", " ", "67"]),
    ],
)
def test_the_rule_that_the_file_names_cuts_the_text(pre: str | None, parts: list[str], tmp_path: Path):
    _, metadata = byte_level(tmp_path, pre=pre)
    vocabulary = metadata["tokenizer.ggml.tokens"]
    assert isinstance(vocabulary, list)
    wanted = [part.replace(" ", "Ġ") for part in ("12345", " 67", "123", "45", "67")]
    added = [piece for piece in wanted if piece not in vocabulary]
    merges = [
        f"{left} {right}"
        for left, right in (("1", "2"), ("12", "3"), ("4", "5"), ("123", "45"), ("6", "7"), ("Ġ", "67"))
    ]
    tokens = [*vocabulary, *added, *(piece for piece in ("12",) if piece not in vocabulary)]
    metadata["tokenizer.ggml.tokens"] = tokens
    metadata["tokenizer.ggml.token_type"] = [1] * len(tokens)
    metadata["tokenizer.ggml.merges"] = merges
    tokenizer = from_gguf(metadata)
    assert [tokenizer.decode([id]) for id in tokenizer.encode("12345 67").ids] == parts
    # a file that leaves it open is said to
    assert ["does not say by which rule texts are cut" in str(note) for note in tokenizer.notes] == (
        [True] if pre is None else []
    )


def test_wordpieces_of_bert_come_back():
    """The file marks where a word begins; capitals are kept where a piece has one."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581hel", "lo", "\u2581wor", "ld", "\u2581é"]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.token_type": [3] * 4 + [1] * 5,
        "tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
    }  # fmt: skip
    lower = from_gguf(metadata)
    assert lower.encode("Hello world").ids == [4, 5, 6, 7]
    assert lower.around == ([2], [3])
    assert (lower.role("cls"), lower.role("unk"), lower.role("pad")) == (2, 1, 0)
    metadata["tokenizer.ggml.tokens"] = [*pieces[:-1], "\u2581Hel"]
    assert from_gguf(metadata).encode("Hello hello").ids == [8, 5, 4, 5]


def test_smollm_s_ids_equal_the_library_s_single_digits(tmp_path: Path):
    _, metadata = byte_level(tmp_path, pre="smollm")
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    texts = [*GOLDEN, *strange_texts(1000, controls=False)]
    assert from_gguf(metadata).encode_ids(texts) == [each.ids for each in library.encode_batch(texts)]


def test_byte_level_ids_come_back_and_text_is_kept(tmp_path: Path):
    _, metadata = byte_level(tmp_path, add_bos_token=True)
    tokenizer = from_gguf(metadata)
    bos = tokenizer.require("bos")
    assert tokenizer.around == ([bos], [])
    for text, ids in zip(strange_texts(300), tokenizer.encode_ids(strange_texts(300)), strict=True):
        assert tokenizer.decode(ids) == text
        assert not set(ids).intersection(tokenizer.controls)
    assert tokenizer.encode_ids(["<s>a"], controls=True)[0][0] == bos
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.open(tmp_path / "saved").encode_ids(GOLDEN) == tokenizer.encode_ids(GOLDEN)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "t5", r"ggml\.model is 't5', expected gpt2, llama or bert"),
        ("model", None, r"ggml\.model is None"),
        ("pre", "qwen3", r"ggml\.pre is 'qwen3' \(did you mean 'qwen2'\?\)"),
        ("tokens", None, r"ggml\.tokens is None, expected a list"),
        ("tokens", ["a", 3], r"ggml\.tokens\[1\] is 3, expected a string"),
        ("tokens", ["a", "a"], r"token_type has .* entries, expected 2"),
        ("token_type", [9], r"token_type.* is 9, expected a number from 1 to 6"),
        ("merges", ["ab"], r"merges\[0\]: the merge 'ab', expected two pieces"),
        ("merges", ["never there"], r"refuses it"),
        ("bos_token_id", 10**9, r"bos_token_id is 1000000000, expected a whole number from 0 to"),
        ("bos_token_id", "1", r"bos_token_id is '1'"),
        ("add_bos_token", 3, r"add_bos_token is 3, expected true or false"),
    ],
)
def test_malformed_metadata_are_refused_by_key(key: str, value: object, message: str, tmp_path: Path):
    _, metadata = byte_level(tmp_path, **{key: value})
    with pytest.raises(CutawayError, match=rf"^a\.gguf: .*{message}"):
        from_gguf(metadata, "a.gguf")


def test_scores_must_be_numbers_and_as_many_as_pieces():
    for scores in ([0.0], [float("nan")] * 700, None):
        _, metadata = sentencepiece_bpe(scores=scores)
        with pytest.raises(CutawayError, match=r"ggml\.scores"):
            from_gguf(metadata)


def test_pieces_without_types_are_what_they_are_called():
    theirs, metadata = sentencepiece_bpe(token_type=None)
    assert from_gguf(metadata).encode_ids(GOLDEN) == theirs.encode(GOLDEN)


def test_llama2_c_s_file_of_pieces_and_scores():
    if not STORIES.is_file():
        pytest.skip(
            "../shared/data/checkpoints/stories260K/tok512.bin is not here: the vocabulary of a story model"
        )
    data, at = STORIES.read_bytes(), 4
    pieces: list[str] = []
    scores: list[float] = []
    while at < len(data):
        scores.append(float(memoryview(data)[at : at + 4].cast("f")[0]))
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        pieces.append(data[at + 8 : at + 8 + length].decode())
        at += 8 + length
    pieces[:3] = ["<unk>", "<s>", "</s>"]
    spelled = [piece.replace(" ", "▁") for piece in pieces]
    rows = typed(spelled, scores)
    assert [piece.type for piece in rows[:4]] == [
        PieceType.UNKNOWN,
        PieceType.CONTROL,
        PieceType.CONTROL,
        PieceType.BYTE,
    ]
    description = describe(SentencePieceModel("bpe", rows, Rules()), "tok512.bin", (["<s>"], []))
    tokenizer = Tokenizer(json.dumps(description), {}, "tok512.bin")
    encoding = tokenizer.encode("Once upon a time, Lily 我")
    assert tokenizer.vocab_size == 512
    assert encoding.pieces[:4] == ["▁Once", "▁upon", "▁a", "▁time"]
    assert encoding.pieces[-3:] == ["⟨E6⟩", "⟨88⟩", "⟨91⟩"]
    assert tokenizer.decode(encoding.ids) == "Once upon a time, Lily 我"
