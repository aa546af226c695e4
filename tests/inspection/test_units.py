"""Units cut neither a piece nor a word, and control tokens are called by what they tell."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.command import LINES

from cutaway import CutawayError, Tokenizer, find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.inspection.runs import Run, Tokens, run
from cutaway.inspection.units import Unit, units, units_of
from cutaway.inspection.word_alignment import split_words, word_pieces
from cutaway.zoo import MASKED, POET, TRANSLATOR


def named(found: tuple[Unit, ...]) -> list[str]:
    return [str(each.name) for each in found]


def load_of(tokenizer: Tokenizer) -> Loaded:
    """Any model with one stack, with this tokenizer."""
    return replace(load(find(POET)), tokenizer=tokenizer)


def whole(found: tuple[Unit, ...], tokens: Tokens) -> None:
    """They are all tokens, in order, none twice."""
    assert [each.tokens[0] for each in found] == [0, *(each.tokens[1] for each in found[:-1])]
    assert found[-1].tokens[1] == len(tokens)
    assert [piece for each in found for piece in each.pieces] == tokens.pieces


def test_of_a_translation() -> None:
    asked = run(load(find(TRANSLATOR)), "她的妹妹在北京工作。")
    assert asked.source is not None
    read, written = units(asked, "encoder"), units(asked, "decoder")
    assert named(read) == ["into English", "她的", "妹妹", "在", "北", "京", "工作", "。", "end"]
    assert named(written) == ["Her", "sister", "works", "in", "Beijing", ".", "end"]
    assert [each.control for each in read] == [True, *[False] * 7, True]
    assert (read[0].text, read[-1].text) == (">>eng<<", "</s>")
    assert written[4] == Unit("Beijing", (4, 8), False, "Beijing", ("▁Be", "i", "j", "ing"))
    whole(read, asked.source)
    whole(written, asked.outcome)
    assert units(asked) == written
    back = units(run(asked.loaded, "鑫𠮷说：“don't 👩‍👩‍👧!”"), "encoder")
    texts = [each.text for each in back if not each.control]
    assert texts == ["鑫", "𠮷", "说", "：", "“", "don't", "👩‍👩‍👧", "!", "”"]
    assert str(units(run(asked.loaded, "Hi."), "encoder")[0].name) == "into Chinese"


def test_of_the_other_families() -> None:
    masked = run(load(find(MASKED)), "The unbelievablest [MASK]  sat.")
    assert named(units(masked)) == ["start", "the", "unbelievablest", "gap", "sat", ".", "end"]
    with pytest.raises(CutawayError, match="has no stack 'decoder'"):
        units(masked, "decoder")
    poet = load(find(POET))
    poem = run(poet, "明月，\n清风", max_new_tokens=3)
    assert poem.target is not None
    assert named(units(poem))[:7] == ["start", "明", "月", "，", "⏎", "清", "风"]
    whole(units(poem), poem.target)


def test_they_are_the_smallest_runs_that_cut_no_word_and_no_piece(small_tokenizer: Tokenizer) -> None:
    for text in (*LINES[:8], "Th  is book, 3.14", "It's 鑫鑫 😀! e\u0301a", "  x"):
        encoding = small_tokenizer.encode(text)
        tokens = Tokens(encoding.ids, encoding.pieces)
        words = split_words(small_tokenizer.decode(encoding.ids))
        groups = [group for group in word_pieces(small_tokenizer, encoding.ids, words) if group]
        groups += encoding.characters
        found = units_of(load_of(small_tokenizer), tokens, source=True)
        whole(found, tokens)
        inside = [set(range(*each.tokens)) for each in found]
        for group in groups:
            assert any(set(group) <= unit for unit in inside), (text, group)
        for each, unit in zip(found, inside, strict=True):
            # nothing but a word, a character or a space before them holds two of its pieces together
            for place in range(each.tokens[0] + 1, each.tokens[1]):
                held = any({place - 1, place} <= set(range(min(group), max(group) + 1)) for group in groups)
                assert held or not encoding.pieces[place - 1].strip("▁"), (text, unit)


def test_bytes_that_are_no_character_are_seen_as_pieces(small_tokenizer: Tokenizer) -> None:
    cut = small_tokenizer.encode("鑫").ids[:2]
    pieces = [small_tokenizer.readable(id) for id in cut]
    found = units_of(load_of(small_tokenizer), Tokens(cut, pieces), source=True)
    assert "\ufffd" not in "".join(each.text for each in found)
    assert units_of(load_of(small_tokenizer), Tokens([], []), source=True) == ()


def test_a_control_token_without_a_known_role_is_called_by_its_piece(
    run_of: Callable[..., Run], small_tokenizer: Tokenizer
) -> None:
    asked = run_of("GPT-2")
    ids = [small_tokenizer.require("pad"), small_tokenizer.require("unk"), small_tokenizer.require("eos")]
    found = units_of(asked.loaded, Tokens(ids, [small_tokenizer.readable(id) for id in ids]), source=True)
    # unk stands for something that was written
    assert [(str(each.name), each.control) for each in found] == [
        ("padding", True), ("<unk>", False), ("end", True),
    ]  # fmt: skip
    chat = Tokenizer.train(LINES, "bpe", 400, controls=["<|user|>"])
    id = chat.id("<|user|>")
    assert id is not None
    assert named(units_of(load_of(chat), Tokens([id], ["<|user|>"]), source=True)) == ["<|user|>"]


def test_marks_of_a_text_s_own_language_say_where_it_comes_from(translator: Path) -> None:
    tokenizer = Tokenizer.train(LINES, "bpe", 440, controls=["__en__", "__zh__", "__fr__"])
    loaded = replace(load(translator), tokenizer=tokenizer)
    ids = [id for id in map(tokenizer.id, ("__en__", "__zh__", "__fr__")) if id is not None]
    tokens = Tokens(ids, [tokenizer.readable(id) for id in ids])
    assert named(units_of(loaded, tokens, source=True)) == ["from English", "from Chinese", "from fr"]
    assert named(units_of(loaded, tokens, source=False)) == ["into English", "into Chinese", "into fr"]
