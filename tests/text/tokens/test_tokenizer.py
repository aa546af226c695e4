import json
import random
import unicodedata
from pathlib import Path

import pytest
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.conftest import CHINESE, ENGLISH, KINDS, SUBWORDS, TEXTS, learn
from tests.text.strange import strange_texts
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from cutaway.errors import CutawayError
from cutaway.text.tokens.plan import Kind
from cutaway.text.tokens.tokenizer import Tokenizer

SHARED = Path(__file__).parents[4] / "shared/data/tokenizers"
ODD = [
    "",
    " ",
    "  a",
    "\n",
    "a\tb  ",
    "\ufeffa",
    "\u2029ꀀ",
    "\0",
    "①…ﬁ",
    "e\u0301",
    "か\u3099",
    "▁ ▁a",
    "<0x41>",
]
CONTROLS = ["<s>", "</s>", "<pad>", "<unk>", ">>eng<<", "[MASK]", "[CLS]", "<|endoftext|>", "<tool_call>"]


# References built with the library itself, in the shapes of well-known models.


def reference(shape: str, folder: Path) -> library.Tokenizer:
    learn("bpe-bytes" if shape == "qwen" else "bpe").save(folder)
    learned = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    merges = [(left, right) for left, right in learned["merges"]]
    if shape == "qwen":
        tokenizer = library.Tokenizer(models.BPE(learned["vocab"], merges))
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        tokenizer.add_special_tokens(["<|endoftext|>"])
        tokenizer.add_tokens(["<tool_call>", "   "])
    elif shape == "llama":
        space = {piece: piece.replace(" ", "▁") for piece in learned["vocab"]}
        vocabulary = {space[piece]: id for piece, id in learned["vocab"].items()}
        merges = [(space[left], space[right]) for left, right in merges]
        tokenizer = library.Tokenizer(
            models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
        )
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    elif shape == "t5":
        pieces = sorted({"▁", *"".join(TEXTS), *(f"▁{word}" for text in ENGLISH for word in text.split())})
        scores = [
            ("<pad>", 0.0),
            ("</s>", 0.0),
            ("<unk>", 0.0),
            *((piece, -len(piece) / 2) for piece in pieces),
        ]
        tokenizer = library.Tokenizer(models.Unigram(scores, 2, False))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
        tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    else:
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        pieces += [*sorted(set("".join(TEXTS)) - {" "}), "love", "##s", "learn", "##ing", "ma", "##chine"]
        tokenizer = library.Tokenizer(
            models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="[UNK]")
        )
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        tokenizer.add_special_tokens(pieces[:5])
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def opened(tokenizer: library.Tokenizer, folder: Path) -> Tokenizer:
    (folder / "alone").mkdir()
    tokenizer.save(str(folder / "alone/tokenizer.json"))
    return Tokenizer.open(folder / "alone")


@pytest.mark.parametrize("shape", ["qwen", "llama", "t5", "bert"])
def test_ids_and_text_equal_the_library_s(shape: str, tmp_path: Path):
    theirs = reference(shape, tmp_path)
    ours = opened(theirs, tmp_path)
    texts = [*strange_texts(3000), *ODD, *TEXTS]
    with_controls = [encoded.ids for encoded in theirs.encode_batch(texts, add_special_tokens=False)]
    assert ours.encode_ids(texts, controls=True) == with_controls
    plain = [text for text in texts if not any(control in text for control in ours.controls.values())]
    ids = [encoded.ids for encoded in theirs.encode_batch(plain, add_special_tokens=False)]
    assert ours.encode_ids(plain) == ids
    unk = ours.role("unk")
    for each in ids:
        kept = [id for id in each if id != unk]
        assert ours.decode(kept) == theirs.decode(kept)
        assert ours.decode(each, skip_special=False) == theirs.decode(each, skip_special_tokens=False)


@pytest.mark.parametrize("shape", ["qwen", "llama", "t5", "bert"])
def test_text_never_becomes_a_control_token_of_a_foreign_vocabulary(shape: str, tmp_path: Path):
    tokenizer = opened(reference(shape, tmp_path), tmp_path)
    forbidden = set(tokenizer.controls) - {tokenizer.role("unk")}
    assert forbidden
    for ids in tokenizer.encode_ids([*strange_texts(2000), *CONTROLS, "".join(CONTROLS)]):
        assert not forbidden.intersection(ids)


def test_added_tokens_of_ordinary_text_stay_what_they_are(tmp_path: Path):
    tokenizer = opened(reference("qwen", tmp_path), tmp_path)
    assert {"<tool_call>", "<|endoftext|>"} < set(tokenizer.controls.values())
    assert "   " not in tokenizer.controls.values()
    assert tokenizer.encode_ids(["   "]) == [[tokenizer.id("   ")]]


@pytest.mark.parametrize("name", ["qwen3", "llama2"])
def test_downloaded_tokenizers_give_the_library_s_ids(name: str):
    file = SHARED / name / "tokenizer.json"
    if not file.is_file():
        pytest.skip(f"{file} is not on this machine: the shared data are not part of the project")
    theirs, ours = library.Tokenizer.from_file(str(file)), Tokenizer.open(file.parent)
    texts = strange_texts(4_000, seed=1)
    expected = [encoded.ids for encoded in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    assert ours.encode_ids(texts, controls=True) == expected
    assert ours.require("eos") in ours.controls
    encoding = ours.encode("are you ok?")
    assert encoding.offsets == [(0, 3), (3, 7), (7, 10), (10, 11)]
    # a dummy space before the first word: the first id is that of "▁This"
    if name == "llama2":
        assert ours.encode("This is 😀").pieces[:3] == ["▁This", "▁is", "▁"]


# Our own kinds.


@pytest.mark.parametrize("kind", SUBWORDS)
def test_subwords_give_back_every_text(tokenizers: dict[str, Tokenizer], kind: Kind):
    tokenizer = tokenizers[kind]
    texts = [*strange_texts(2000), *ODD, *CONTROLS, *TEXTS, "def f(x):\n\treturn  x + 1  # ok \n"]
    for text, ids in zip(texts, tokenizer.encode_ids(texts), strict=True):
        assert tokenizer.decode(ids) == text
    assert not {tokenizer.role("unk")}.intersection(*tokenizer.encode_ids(texts))


@given(text=st.text())
def test_subwords_give_back_whatever_there_is(tokenizers: dict[str, Tokenizer], text: str):
    for kind in SUBWORDS:
        tokenizer = tokenizers[kind]
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_text_never_becomes_a_control_token(tokenizers: dict[str, Tokenizer], kind: Kind):
    tokenizer = tokenizers[kind]
    silent = set(tokenizer.controls) - {tokenizer.role("unk")}
    spellings = list(tokenizer.controls.values())
    texts = [*spellings, "".join(spellings), " ".join(spellings), *(f"a{one}b" for one in spellings)]
    for ids in tokenizer.encode_ids([*texts, *strange_texts(500)]):
        assert not silent.intersection(ids)
    if kind in SUBWORDS:
        assert not set(tokenizer.controls).intersection(*tokenizer.encode_ids(texts))


def test_control_tokens_are_read_only_when_asked_for(bpe: Tokenizer):
    ids = bpe.encode_ids([">>eng<< 我</s>"], controls=True)[0]
    assert (ids[0], ids[-1]) == (bpe.id(">>eng<<"), bpe.role("eos"))
    assert bpe.decode(ids) == "我"
    assert bpe.decode(ids, skip_special=False) == ">>eng<<我</s>"


@pytest.mark.parametrize("kind", KINDS)
def test_empty_text_gives_nothing_and_nothing_gives_empty_text(tokenizers: dict[str, Tokenizer], kind: Kind):
    encoding = tokenizers[kind].encode("")
    assert (encoding.ids, encoding.pieces, encoding.offsets, encoding.characters) == ([], [], [], [])
    assert tokenizers[kind].decode([]) == ""
    assert tokenizers[kind].encode_ids([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_lie_in_the_original_text(tokenizers: dict[str, Tokenizer], kind: Kind):
    tokenizer = tokenizers[kind]
    for text in [*strange_texts(300), *ODD, *TEXTS]:
        encoding = tokenizer.encode(text)
        assert encoding.ids == tokenizer.encode_ids([text])[0]
        starts = [start for start, _ in encoding.offsets]
        assert starts == sorted(starts)
        assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
        assert [index for group in encoding.characters for index in group] == list(range(len(encoding.ids)))
        assert "\ufffd" not in "".join(encoding.pieces)
        assert all(encoding.pieces)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_offsets_cover_the_whole_text_and_name_what_each_piece_stands_for(
    tokenizers: dict[str, Tokenizer], kind: Kind
):
    tokenizer = tokenizers[kind]
    for text in [*strange_texts(300), *TEXTS]:
        encoding = tokenizer.encode(text)
        reached = 0
        for id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            assert start <= reached <= end
            reached = end
            alone = tokenizer.decode([id])
            # a piece of whole characters
            if "\ufffd" not in alone:
                assert text[start:end].lstrip(" ") == alone.lstrip(" ")
                assert end > start or not alone.strip()
        assert reached == len(text)


def test_pieces_of_one_character_share_its_span_and_its_group(tokenizers: dict[str, Tokenizer]):
    for kind in SUBWORDS:
        encoding = tokenizers[kind].encode("我龘我")
        assert encoding.pieces[-4:-1] == ["⟨E9⟩", "⟨BE⟩", "⟨98⟩"]
        assert encoding.offsets[-4:-1] == [(1, 2)] * 3
        count = len(encoding.ids)
        assert encoding.characters[-2:] == [(count - 4, count - 3, count - 2), (count - 1,)]


def test_pieces_of_one_cluster_are_grouped(bpe: Tokenizer):
    encoding = bpe.encode("e\u0301x👩‍👧")
    assert [len(group) for group in encoding.characters] == [3, 1, 11]
    assert encoding.offsets[0] == (0, 1)


def test_pieces_show_spaces_and_line_ends(bpe: Tokenizer):
    assert bpe.encode("Tom  said\n").pieces == ["▁Tom", "▁", "▁said", "⏎"]
    assert bpe.readable(bpe.require("eos")) == "</s>"


def test_a_word_is_the_same_piece_at_the_start_and_within(bpe: Tokenizer):
    ids = bpe.encode_ids(["Tom, Tom", " Tom"])
    assert ids[0][0] == ids[0][-1]
    assert ids[1] == [bpe.id(" "), ids[0][0]]
    assert bpe.encode(" Tom").offsets == [(0, 0), (0, 4)]


def test_a_lone_space_mark_before_the_text_spans_nothing(tmp_path: Path):
    tokenizer = opened(reference("t5", tmp_path), tmp_path)
    encoding = tokenizer.encode("我爱 你")
    assert list(zip(encoding.pieces, encoding.offsets, strict=True)) == [
        ("▁", (0, 0)),
        ("我", (0, 1)),
        ("爱", (1, 2)),
        ("▁", (2, 3)),
        ("你", (3, 4)),
    ]


@pytest.mark.parametrize("normalization", ["none", "nfc", "nfkc"])
def test_normalisation_is_what_was_asked_for_and_offsets_refer_to_the_original(normalization):
    tokenizer = learn("bpe", normalization=normalization)
    usual = map(chr, range(0x10000))  # further on, Python's tables and the library's are of different years
    characters = [character for character in usual if unicodedata.decomposition(character).startswith("<")]
    chosen = random.Random(0).sample(characters, 200)
    for character in [*chosen, "︰", "…", "ﬁ", "ｶﾞ", "①", "e\u0301", "か\u3099"]:
        text = f"我{character}我"
        expected = text if normalization == "none" else unicodedata.normalize(normalization.upper(), text)
        encoding = tokenizer.encode(text)
        assert tokenizer.decode(encoding.ids) == expected
        assert encoding.offsets[-1] == (len(text) - 1, len(text))
        inner = encoding.offsets[1:-1]
        assert all(1 <= start <= end <= len(text) - 1 for start, end in inner)


COMPOSED = [
    "cafe\u0301", "\u1112\u1161\u11ab", "ﷺ", "ｶﾞ", "か\u3099", "ﾡￂ", "▁", " ", "Ａ", "ﬁ", "e\u0323\u0301", "好",
    "\n", "İ",
]  # fmt: skip


@pytest.fixture(scope="module")
def normalising() -> list[Tokenizer]:
    found = [
        learn(kind, normalization=normalization, lowercase=lowercase)
        for kind in SUBWORDS
        for normalization, lowercase in (("nfc", False), ("nfkc", True))
    ]
    folders = [SHARED / "qwen3", SHARED / "llama2"]
    return found + [Tokenizer.open(folder) for folder in folders if folder.is_dir()]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(COMPOSED) | st.text(max_size=3), max_size=12).map("".join))
def test_spans_of_normalised_texts_cover_them_in_order(normalising: list[Tokenizer], text: str) -> None:
    for tokenizer in normalising:
        encoding = tokenizer.encode(text)
        assert encoding.ids == tokenizer.encode_ids([text])[0]
        reached, last = 0, (0, 0)
        for start, end in encoding.offsets:
            # overlap of two pieces is a character of which both are parts
            assert last[0] <= start <= reached <= max(end, reached) and last[1] <= end
            reached, last = max(reached, end), (start, end)
        assert reached == len(text)


def test_pieces_of_what_one_character_became_or_came_from_share_its_span() -> None:
    nfc, nfkc = (learn("bpe", normalization=each) for each in ("nfc", "nfkc"))
    for tokenizer in (nfc, nfkc):
        assert tokenizer.encode("我cafe\u0301").offsets[-1][1] == 6
        syllable = tokenizer.encode("我\u1112\u1161\u11ab我")
        assert set(syllable.offsets[-4:-1]) == {(1, 4)} and len(syllable.characters[-2]) == 3
        assert tokenizer.encode(" a").offsets[0] == (0, 0)
    assert set(nfkc.encode("我ﷺ我").offsets[-19:-1]) == {(1, 2)}
    assert nfkc.encode("我ｶﾞ我").offsets[-2] == (1, 3)


def test_lone_surrogates_are_refused_with_their_place(bpe: Tokenizer):
    for encode in (bpe.encode, lambda text: bpe.encode_ids([text])):
        with pytest.raises(CutawayError, match=r"lone surrogate U\+D83D at character 2"):
            encode("ab\ud83d")


def test_ids_and_roles_that_do_not_exist_are_named(bpe: Tokenizer):
    with pytest.raises(CutawayError, match=rf"no piece has id 99999 \(expected 0 to {bpe.vocab_size - 1}\)"):
        bpe.decode([99_999])
    with pytest.raises(CutawayError, match="no piece has id -1"):
        bpe.piece(-1)
    with pytest.raises(CutawayError, match=r"no mask token, .* \(roles there: pad, unk, bos, eos\)"):
        bpe.require("mask")
    with pytest.raises(CutawayError, match=r"unknown role 'padd' \(did you mean 'pad'\?\)"):
        bpe.role("padd")
    assert bpe.role("mask") is None


def test_ids_and_pieces_are_inverse(tokenizers: dict[str, Tokenizer]):
    for tokenizer in tokenizers.values():
        assert [tokenizer.id(tokenizer.piece(id)) for id in range(tokenizer.vocab_size)] == list(
            range(tokenizer.vocab_size)
        )
    assert tokenizers["bpe"].id("no such piece") is None


# Files.


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_opened_again_it_is_the_same(tokenizers: dict[str, Tokenizer], kind: Kind, tmp_path: Path):
    tokenizer = tokenizers[kind]
    tokenizer.save(tmp_path / "one")
    again = Tokenizer.open(tmp_path / "one")
    again.save(tmp_path / "two")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert (again.roles, again.controls, again.vocab_size) == (
        tokenizer.roles,
        tokenizer.controls,
        tokenizer.vocab_size,
    )
    texts = [*strange_texts(300), *TEXTS]
    assert again.encode_ids(texts) == tokenizer.encode_ids(texts)


def test_odd_pieces_survive_a_file(tmp_path: Path):
    text = "\r\n\0 \u2028\u2029\x85\ta"
    tokenizer = Tokenizer.train([text] * 2, "characters", None)
    tokenizer.save(tmp_path)
    again = Tokenizer.open(tmp_path)
    assert again.vocab_size == tokenizer.vocab_size == 4 + len(text)
    assert again.decode(again.encode(text).ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_opens_what_is_saved(tokenizers: dict[str, Tokenizer], kind: Kind, tmp_path: Path):
    ours = tokenizers[kind]
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert len(theirs) == ours.vocab_size
    for role, id in ours.roles.items():
        assert getattr(theirs, f"{role}_token_id") == id
    for text in TEXTS:
        ids = ours.encode(text).ids
        assert theirs(text, add_special_tokens=False).input_ids == ids
        if ours.role("unk") not in ids:
            assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)
    assert theirs.convert_tokens_to_ids(">>zho<<") == ours.id(">>zho<<")


def test_the_template_is_for_transformers_only(tmp_path: Path):
    ours = learn("bpe", template="$A </s>")
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    ids = ours.encode("我爱你。").ids
    assert ours.require("eos") not in ids
    assert theirs(">>eng<< 我爱你。").input_ids == [ours.id(">>eng<<"), *ids, ours.role("eos")]


def test_roles_come_from_the_files_beside_it_or_from_usual_names(tmp_path: Path):
    tokenizer = library.Tokenizer(
        models.WordLevel({"<s>": 0, "<|end|>": 1, "a": 2, "<unk>": 3}, unk_token="<unk>")
    )
    tokenizer.add_special_tokens(["<s>", "<unk>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.open(tmp_path / "tokenizer.json").roles == {"unk": 3, "bos": 0}
    settings = {"eos_token": {"content": "<|end|>"}, "bos_token": None, "pad_token": "<|end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    opened = Tokenizer.open(tmp_path)
    assert opened.roles == {"pad": 1, "eos": 1}
    assert opened.encode("<|end|>").ids == [3]
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "special_tokens_map.json").write_text('{"unk_token": "<unk>"}')
    assert Tokenizer.open(tmp_path).roles == {"unk": 3}


def test_a_missing_tokenizer_is_named(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    assert not Tokenizer.found_in(tmp_path)
    with pytest.raises(CutawayError, match=r"no tokenizer there .*the folder holds config.json"):
        Tokenizer.open(tmp_path)
    with pytest.raises(CutawayError, match=r"tokenizer\.json: no such file or folder"):
        Tokenizer.open(tmp_path / "nowhere" / "tokenizer.json")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"model": 3}',
        b'{"model": {}}',
        b'{"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}}',
        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}',
        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [3]}}',
        b'{"model": {"type": "Unigram", "vocab": [["a"]], "unk_id": 0}}',
        b'{"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 9}}',
        b'{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": []}}',
        b'{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "u"}, "added_tokens": {}}',
        b'{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "u"}, "added_tokens": [3]}',
        b'{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "u"}, "added_tokens": [{"content": ""}]}',
        b'{"model": {"type": "WordLevel", "vocab": {"a": 0}}, "added_tokens": [{"content": "b", "id": -1}]}',
        b'{"model": {"type": "WordLevel", "vocab": {"a": 0}}, "added_tokens": [{"content": "b", "id": 99999999}]}',
        b'{"model": {"type": "BPE", "vocab": {}, "merges": []}, "decoder": {"type": "Nonsense"}}',
        b"[" * 100_000,
    ],
)
def test_malformed_files_are_refused_by_name(tmp_path: Path, content: bytes):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CutawayError, match=r"tokenizer\.json"):
        Tokenizer.open(tmp_path)


def test_a_vocabulary_without_its_unknown_piece_is_refused_when_it_is_needed(tmp_path: Path):
    source = '{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"}}'
    (tmp_path / "tokenizer.json").write_text(source)
    tokenizer = Tokenizer.open(tmp_path)
    assert tokenizer.encode("a").ids == [0]
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_ids([text])):
        with pytest.raises(CutawayError, match=r"tokenizer\.json: cannot tokenise: .*UNK"):
            encode("b")


def test_mutated_files_raise_nothing_else(bpe: Tokenizer, tmp_path: Path):
    bpe.save(tmp_path)
    good = (tmp_path / "tokenizer.json").read_text()
    choose = random.Random(0)
    refused = 0
    for _ in range(150):
        at, length = choose.randrange(len(good)), choose.choice([0, 1, 1, 5, 200])
        changed = (
            good[:at] + choose.choice(["", "0", '"', "{", "null", "[]", "-1", "x"]) + good[at + length :]
        )
        (tmp_path / "tokenizer.json").write_text(changed)
        try:
            opened = Tokenizer.open(tmp_path)
            opened.decode(opened.encode("我爱 you").ids)
        except CutawayError:
            refused += 1
    assert refused > 50


def test_chinese_needs_no_more_pieces_than_characters(bpe: Tokenizer):
    for text in CHINESE:
        encoding = bpe.encode(text)
        assert len(encoding.ids) <= len(text) + text.count("0") or "⟨" in "".join(encoding.pieces)


@pytest.mark.parametrize("id", [300_000, 2**32 - 1])
def test_an_id_far_beyond_the_pieces_is_refused_before_memory_is_taken(id: int):
    source = json.dumps({"model": {"type": "BPE", "vocab": {"a": id}, "merges": []}})
    with pytest.raises(CutawayError, match=f"a piece has the id {id:,}, but there are only 1 pieces"):
        Tokenizer(source, {})


def test_where_the_library_panics_the_file_is_named(capfd: pytest.CaptureFixture[str]):
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    tokenizer = Tokenizer(json.dumps({"model": model, "pre_tokenizer": slow}), {}, "some/tokenizer.json")
    with pytest.raises(CutawayError, match=r"some/tokenizer\.json: cannot tokenise: .*limit"):
        tokenizer.encode("a" * 40 + "b")
    merged = {
        "type": "BPE",
        "vocab": {"a": 0, "b": 1},
        "merges": [["a", "b"]],
    }  # to a piece that is not there
    with pytest.raises(
        CutawayError, match=r"some/tokenizer\.json: the tokenizers library refuses it: .*slice"
    ):
        Tokenizer(json.dumps({"model": merged}), {}, "some/tokenizer.json")
    # the library says so there by itself
    assert "panicked" in capfd.readouterr().err


def test_a_vocabulary_beyond_belief_is_refused_before_the_library_sees_it(tmp_path: Path):
    pieces = ",".join(f'"{n}":{n}' for n in range(1_200_001))
    source = '{"model": {"type": "BPE", "vocab": {' + pieces + '}, "merges": []}}'
    with pytest.raises(CutawayError, match=r"1,200,001 pieces, expected at most 1,200,000"):
        Tokenizer(source, {})
    huge = tmp_path / "tokenizer.json"
    with huge.open("wb") as file:
        # sparse: it takes no room
        file.truncate(100_000_001)
    with pytest.raises(CutawayError, match=r"100,000,001 bytes, expected a tokenizer's file of at most"):
        Tokenizer.open(tmp_path)
