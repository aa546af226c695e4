import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.text.conftest import learn
from tests.text.strange import GOLDEN, strange_texts
from transformers import AutoTokenizer, BertTokenizer, GPT2Tokenizer, RobertaTokenizer

from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghijklmnopqrstuvwxyz0123456789我爱机学习年月か゛.,:;!'",
]
WORDS += ["##" + letter for letter in "abcdefghijklmnopqrstuvwxyz0123456789"] + [
    "this",
    "##ing",
    "café",
    "cafe",
    "is",
]


def settle(folder: Path, settings: dict[str, object]) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": False},
        {"strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"tokenize_chinese_chars": False},
    ],
)
def test_bert_s_ids_equal_transformers(settings: dict[str, object], tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    settle(tmp_path, settings)
    theirs, ours = BertTokenizer.from_pretrained(tmp_path), Tokenizer.open(tmp_path)
    texts = [*GOLDEN, *strange_texts(500, controls=False)]
    assert ours.encode_ids(texts) == [theirs(text, add_special_tokens=False).input_ids for text in texts]
    assert ours.roles == {"pad": 0, "unk": 1, "mask": 4, "cls": 2, "sep": 3}
    assert ours.around == ([2], [3])
    ours.save(tmp_path / "saved")
    pairs = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert pairs("this is", "我爱").input_ids == theirs("this is", "我爱").input_ids
    assert pairs("this is", "我爱").token_type_ids == theirs("this is", "我爱").token_type_ids


def test_kana_keep_their_marks_unless_accents_are_stripped(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("[UNK]\nか\nが\n", encoding="utf-8")
    assert [Tokenizer.open(tmp_path).decode([id]) for id in Tokenizer.open(tmp_path).encode("が").ids] == [
        "か"
    ]
    settle(tmp_path, {"strip_accents": False})
    encoding = Tokenizer.open(tmp_path).encode("がか")
    # one word, and no piece ##か
    assert (encoding.ids, encoding.offsets) == ([0], [(0, 2)])
    assert Tokenizer.open(tmp_path).encode("が").ids == [2]


def test_lines_may_end_as_windows_writes_them_and_pieces_may_hold_odd_ends(tmp_path: Path):
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\r\na\r\n##b\r\n")
    assert Tokenizer.open(tmp_path).encode("ab").ids == [1, 2]
    pieces = ["[UNK]", "\r", "\0", " ", "\u2028", "\x85", "a"]
    (tmp_path / "vocab.txt").write_bytes("\n".join([*pieces, ""]).encode())
    tokenizer = Tokenizer.open(tmp_path)
    assert [tokenizer.piece(id) for id in range(tokenizer.vocab_size)] == pieces
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.open(tmp_path / "saved")
    assert [again.piece(id) for id in range(again.vocab_size)] == pieces


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
@pytest.mark.parametrize("prefix_space", [False, True])
def test_gpt2_s_ids_equal_transformers(names: tuple[str, str], prefix_space: bool, tmp_path: Path):
    vocabulary, merges = byte_level(["<|endoftext|>"])
    (tmp_path / "theirs").mkdir()
    for folder, each in ((tmp_path, names), (tmp_path / "theirs", ("vocab.json", "merges.txt"))):
        write(folder, each, vocabulary, merges)
        settle(folder, {"add_prefix_space": prefix_space})
    theirs = GPT2Tokenizer.from_pretrained(tmp_path / "theirs")
    ours = Tokenizer.open(tmp_path)
    texts = [*GOLDEN, *strange_texts(500)]
    texts = [text for text in texts if "<|endoftext|>" not in text]
    assert ours.encode_ids(texts) == [theirs(text).input_ids for text in texts]
    assert ours.roles == {"bos": len(vocabulary) - 1, "eos": len(vocabulary) - 1}
    spans = ours.encode("are you ok?").offsets
    assert [*(start for start, _ in spans), 11] == [0, *(end for _, end in spans)]
    assert all(start < end for start, end in spans)


def test_roberta_s_ids_equal_transformers(tmp_path: Path):
    vocabulary, merges = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    write(tmp_path, ("vocab.json", "merges.txt"), vocabulary, merges)
    theirs = RobertaTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.open(tmp_path)
    before, after = ours.around
    for text in GOLDEN:
        assert [*before, *ours.encode(text).ids, *after] == theirs(text).input_ids
    assert {"cls", "sep", "mask", "bos", "eos", "pad", "unk"} == set(ours.roles)
    ours.save(tmp_path / "saved")
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "saved")("a b", "c").input_ids
        == theirs("a b", "c").input_ids
    )


def test_added_tokens_of_the_settings_are_read(tmp_path: Path):
    vocabulary, merges = byte_level(["<|endoftext|>"])
    write(tmp_path, ("vocab.json", "merges.txt"), vocabulary, merges)
    size = len(vocabulary)
    settle(tmp_path, {"added_tokens_decoder": {str(size): {"content": "<|im_end|>", "special": True}}})
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<think>": size + 1}))
    tokenizer = Tokenizer.open(tmp_path)
    assert tokenizer.encode_ids(["a<think><|im_end|>"], controls=True)[0][1:] == [size + 1, size]
    assert max(tokenizer.encode("a<think><|im_end|>").ids) < size
    settle(tmp_path, {"added_tokens_decoder": {"0": {"content": "<think>"}}})
    with pytest.raises(CutawayError, match=r"'<think>' has id 0, .* it has"):
        Tokenizer.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"a\nb\n", r"vocab\.txt: no line '\[UNK\]'"),
        ("vocab.txt", b"[UNK]\na\na\n", r"vocab\.txt: piece 'a' stands twice, at 1 and at 2"),
        ("vocab.txt", b"[UNK]\n\xff", r"vocab\.txt: not UTF-8 at byte 6"),
        ("merges.txt", b"#version: 0.2\na b c\n", r"merges\.txt:2: the merge 'a b c', expected two pieces"),
        ("merges.txt", b"x y\n", r"refuses it"),
        ("vocab.json", b'{"a": "b"}', r"vocab\.json: piece 'a' has id 'b'"),
        ("vocab.json", b'{"a": 0, "a": 1}', r"vocab\.json: key 'a' stands there twice"),
        ("vocab.json", b'{"a</w>": 0}', r"'</w>'"),
    ],
)
def test_malformed_files_are_refused_with_their_place(
    name: str, content: bytes, message: str, tmp_path: Path
):
    if name != "vocab.txt":
        (tmp_path / "vocab.json").write_text('{"a": 0}')
        (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CutawayError, match=message):
        Tokenizer.open(tmp_path)


def byte_level(controls: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Pieces and merges learned from a little text, control tokens last."""
    learned = learn("bpe-bytes")
    with TemporaryDirectory() as folder:
        learned.save(folder)
        model = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    pieces = [piece for piece, id in model["vocab"].items() if not learned.is_control(id)]
    vocabulary = {piece: id for id, piece in enumerate([*pieces, *controls])}
    return vocabulary, [(left, right) for left, right in model["merges"]]


def write(
    folder: Path, names: tuple[str, str], vocabulary: dict[str, int], merges: list[tuple[str, str]]
) -> None:
    (folder / names[0]).write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges), ""]
    (folder / names[1]).write_text("\n".join(lines), encoding="utf-8")


def test_a_token_that_only_the_settings_list_is_there(tmp_path: Path):
    Tokenizer.train(["ab ba"] * 4, "characters", None, roles={"unk": "<unk>"}).save(tmp_path)
    size = Tokenizer.open(tmp_path).vocab_size
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    listed = {str(size): {"content": "<|pad|>", "special": True}}
    settle(tmp_path, {**settings, "pad_token": "<|pad|>", "added_tokens_decoder": listed})
    opened = Tokenizer.open(tmp_path)
    assert opened.role("pad") == size
    assert opened.encode_ids(["<|pad|>"], controls=True) == [[size]]
    assert size not in opened.encode("<|pad|>").ids
    opened.save(tmp_path / "again")
    assert Tokenizer.open(tmp_path / "again").role("pad") == size


def test_a_path_that_is_not_there_lists_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private").write_text("")
    with pytest.raises(CutawayError, match=r"^nosuch: no such file or folder$"):
        Tokenizer.open("nosuch")
