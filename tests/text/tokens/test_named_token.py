"""What a reader types finds the token that they mean, in vocabularies of every kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.text.conftest import KINDS, TEXTS
from tests.text.marian import write_pair

from cutaway.errors import CutawayError
from cutaway.text.tokens.named_token import find_token, piece_label
from cutaway.text.tokens.tokenizer import Tokenizer

SHARED = Path(__file__).parents[4] / "shared/data/tokenizers"


def vocabulary(folder: Path, *pieces: str) -> Tokenizer:
    """One of BERT's kind."""
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return Tokenizer.open(folder)


def looked_up(text: str, tokenizer: Tokenizer) -> int | str:
    """The id, or the message that says why there is none."""
    try:
        return find_token(text, tokenizer.vocab_size, [tokenizer])
    except CutawayError as error:
        return str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_every_piece_is_found_by_what_a_reader_sees(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer, size = tokenizers[kind], tokenizers[kind].vocab_size
    labels = [tokenizer.readable(id) for id in range(size)]
    ids, exactly = range(0, size, 4), 0
    for id in ids:
        shown = labels[id]
        assert piece_label(id, tokenizer) == shown
        assert find_token(id, size, [tokenizer]) == id
        named = looked_up(shown, tokenizer)
        if isinstance(named, str):
            assert labels.count(shown) > 1 and f"(id {id})" in named
        # another is shown so, or it is a word, at the beginning of a text or after a space
        elif named != id:
            assert not tokenizer.is_control(id)
            words = [tokenizer.encode(text).ids for text in (shown, f" {shown}")]
            assert labels[named] == shown or [named] in words
        exactly += named == id
    assert exactly > 0.75 * len(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_every_word_of_one_token_is_found_by_the_word(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[kind]
    found = 0
    for word in {word for text in TEXTS for word in text.split()}:
        ids = tokenizer.encode(word).ids
        if len(ids) == 1 and ids[0] != tokenizer.role("unk"):
            assert find_token(word, tokenizer.vocab_size, [tokenizer]) == ids[0]
            found += 1
    assert found > (5 if kind != "characters" else 0)


CASES: list[tuple[str, dict[str, str]]] = [
    ("gpt2", {"Beijing": "ĠBeijing", "▁cat": "Ġcat", " cat": "Ġcat", "cat": "cat", "Ġcat": "Ġcat", "ing": "ing",
              "⏎": "Ċ", "\n": "Ċ", "▁": "Ġ", " ": "Ġ", "⟨E4⟩": "ä"}),
    ("llama2", {"Beijing": "▁Beijing", "▁cat": "▁cat", " cat": "▁cat", "cat": "▁cat", "</s>": "</s>", "北": "北",
                "▁": "▁", " ": "▁", "⏎": "<0x0A>", "\n": "<0x0A>", "⟨E4⟩": "<0xE4>"}),
    ("bert-base-chinese", {"[MASK]": "[MASK]", "[UNK]": "[UNK]", "cat": "cat", " cat": "cat", "▁cat": "cat",
                           "Cat": "cat", "##ing": "##ing", "北": "北"}),
]  # fmt: skip


def there(name: str) -> Tokenizer:
    if not (SHARED / name).is_dir():
        pytest.skip(
            f"../shared/data/tokenizers/{name} is not here: a downloaded tokenizer, no part of cutaway"
        )
    return Tokenizer.open(SHARED / name)


@pytest.mark.parametrize(("name", "meant"), CASES, ids=[name for name, _ in CASES])
def test_well_known_vocabularies(name: str, meant: dict[str, str]) -> None:
    tokenizer = there(name)
    size = tokenizer.vocab_size
    found = {typed: tokenizer.piece(find_token(typed, size, [tokenizer])) for typed in meant}
    assert found == meant


def test_a_pair_has_the_words_of_both_sides(tmp_path: Path) -> None:
    source = Tokenizer.open(write_pair(tmp_path))
    target, size = source.target, source.vocab_size

    def named(typed: str, *sides: Tokenizer) -> str:
        return source.piece(find_token(typed, size, sides))

    # two tokens, where the source has one
    assert target.encode("a").pieces == ["▁", "a"]
    assert named("a", source) == named("a", source, target) == "▁a"
    assert named("a", target) == "a"
    assert named("river", source, target) == named("▁river", target) == "▁river"
    assert named("我", source, target) == named("我", target) == "我"
    with pytest.raises(CutawayError, match=r"'river' is not in the vocabulary .did you mean '▁river'"):
        named("river", target)


def test_what_two_pieces_are_shown_as_is_refused_with_both(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["unigram"]
    byte = tokenizer.id("<0x0A>")
    both = [id for id in range(tokenizer.vocab_size) if tokenizer.readable(id) == "⏎"]
    assert len(both) == 2 and byte in both
    assert looked_up("⏎", tokenizer) == f"'⏎' may be any of ⏎ (id {both[0]}), ⏎ (id {both[1]}): give the id"
    assert looked_up("<0x0A>", tokenizer) == byte


def test_a_control_token_is_named_before_a_word_and_a_word_before_a_piece(tmp_path: Path) -> None:
    tokenizer = vocabulary(
        tmp_path, "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##cat", "[", "]", "mask"
    )
    assert [find_token(text, 10, [tokenizer]) for text in ("[MASK]", "cat", "##cat", "Cat", "mask")] == [
        4,
        5,
        6,
        5,
        9,
    ]


def test_what_is_several_tokens_or_none_is_refused_with_those_near(tmp_path: Path) -> None:
    tokenizer = vocabulary(tmp_path, "[UNK]", "cat", "##s", "dog")
    refused: list[tuple[int | str, str]] = [
        ("cats", r"'cats' is 2 tokens in this vocabulary \(cat ##s\), expected one; give .* mean 'cat'\?\), or an id"),
        ("doge", r"'doge' is not in the vocabulary \(did you mean 'dog'\?\); give a word or a piece that is, or an id"),
        ("", "'' is not in the vocabulary"),
        (4, "token id 4 is not in the vocabulary, expected 0 to 3"),
        (-1, "token id -1 is not in the vocabulary, expected 0 to 3"),
    ]  # fmt: skip
    for token, message in refused:
        with pytest.raises(CutawayError, match=message):
            find_token(token, 4, [tokenizer])
    with pytest.raises(CutawayError, match="no tokenizer to find 'cat' with: give an id, 0 to 3"):
        find_token("cat", 4, [])
    assert find_token(3, 4, []) == 3
    # the model has fewer rows than the tokenizer pieces
    with pytest.raises(CutawayError, match="'dog' is"):
        find_token("dog", 3, [tokenizer])
    assert piece_label(9, tokenizer) == "⟨9⟩" == piece_label(9, None)


def test_whole_numbers_of_any_library_are_ids(tmp_path: Path) -> None:
    tokenizer = vocabulary(tmp_path, "[UNK]", "cat", "##s", "dog")
    for token in (2, np.int64(2), torch.tensor(2), torch.tensor([0, 1, 5, 1]).argmax()):
        found = find_token(token, 4, [tokenizer])
        assert found == 2 and type(found) is int
    given: list[Any] = [2.0, None, [2]]
    for wrong in given:
        with pytest.raises(CutawayError, match=r"a token is .*, expected an id, 0 to 3, or a text"):
            find_token(wrong, 4, [tokenizer])


def test_a_long_text_is_refused_in_a_short_message(tokenizers: dict[str, Tokenizer]) -> None:
    for tokenizer in tokenizers.values():
        with pytest.raises(CutawayError, match=r"….* is ") as caught:
            find_token("x" * 4000, tokenizer.vocab_size, [tokenizer])
        assert len(str(caught.value)) < 400
