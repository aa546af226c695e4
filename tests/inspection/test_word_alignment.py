"""Words and their pieces, links and their errors, against counting and plain loops."""

import itertools
import random
import statistics

import pytest
import torch
from tests.decode.conftest import TEXTS

from cutaway import CutawayError
from cutaway.inspection.word_alignment import (
    AlignmentError,
    Gold,
    alignment_error,
    check_range,
    error_by_head,
    links,
    read_pharaoh,
    split_words,
    word_pieces,
    word_weights,
)
from cutaway.text.tokens.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    roles = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>", "bos": "<s>", "mask": "<mask>"}
    languages = ["eng", "zho"]
    return Tokenizer.train(TEXTS * 3, "bpe", 360, alphabet=60, roles=roles, languages=languages)


def test_pieces_of_words_are_those_whose_text_overlaps(tokenizer: Tokenizer) -> None:
    cases = [
        (["我", "爱", "机器", "学习", "。"], ""),
        (["I", "love", "machine", "learning", "."], " "),
        (["他", "说", "：", "你好", "，", "😀鑫", "走了"], ""),  # 😀 and 鑫 are spelled in bytes
        (["Th", "is book", "is mine"], " "),
    ]
    for words, between in cases:
        text = between.join(words)
        encoded = tokenizer.encode(text)
        found = word_pieces(tokenizer, encoded.ids, words)
        start = 0
        for word, pieces in zip(words, found, strict=True):
            start = text.index(word, start)
            end = start + len(word)
            inside = [
                at
                for at, (left, right) in enumerate(encoded.offsets)
                if any(not text[place].isspace() for place in range(max(left, start), min(right, end)))
            ]
            assert list(pieces) == inside, (word, [encoded.pieces[at] for at in inside])
            start = end
    eos, mark = tokenizer.require("eos"), tokenizer.id(">>eng<<")
    assert mark is not None
    inner = tokenizer.encode("我爱").ids
    moved = word_pieces(tokenizer, [mark, *inner, eos], ["我", "爱"])
    assert moved == tuple(
        tuple(at + 1 for at in pieces) for pieces in word_pieces(tokenizer, inner, ["我", "爱"])
    )


def test_words_are_cut_as_readers_do() -> None:
    assert split_words("我们 don't know, 对吗？") == ["我", "们", "don't", "know", ",", "对", "吗", "？"]
    assert split_words("state-of-the-art GPT4…") == ["state-of-the-art", "GPT4", "…"]
    assert split_words("  ") == []


def test_word_weights_sum_over_sources_and_average_over_targets() -> None:
    weights = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    weights /= weights.sum(dim=-1, keepdim=True)
    target, source = ((0,), (1, 2)), ((1,), (2, 3), (3,))  # target 3 and sources 0 and 4 are control tokens
    found = word_weights(weights, target, source)
    assert found.shape == (2, 3, 2, 3)
    share = {1: 1.0, 2: 1.0, 3: 0.5}
    for i, j, n, m in itertools.product(range(2), range(3), range(2), range(3)):
        rows = [sum(float(weights[i, j, t, s]) * share[s] for s in source[m]) for t in target[n]]
        assert float(found[i, j, n, m]) == pytest.approx(statistics.fmean(rows), abs=1e-6)
    kept = weights[..., 1:4].sum(dim=-1)
    torch.testing.assert_close(found[..., 0, :].sum(dim=-1), kept[..., 0], rtol=0, atol=1e-6)
    torch.testing.assert_close(found[..., 1, :].sum(dim=-1), kept[..., 1:3].mean(dim=-1), rtol=0, atol=1e-6)


def test_pharaoh_lines() -> None:
    assert read_pharaoh("0-0 1?2 3p1 3-1\n") == Gold(
        frozenset({(0, 0), (3, 1)}), frozenset({(0, 0), (1, 2), (3, 1)})
    )
    assert read_pharaoh("1-1 2p3", from_one=True) == Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 2)}))
    assert read_pharaoh("  ") == Gold(frozenset(), frozenset())
    for wrong in ("0", "0-", "a-1", "1--2", "1:2", "-1-2", "1-2,"):
        with pytest.raises(
            CutawayError, match=r"gold\.txt line 4: .* is no link, expected source-target counted"
        ):
            read_pharaoh(f"0-0 {wrong}", "gold.txt line 4")
    with pytest.raises(CutawayError, match=r"'0-1' is no link, .* counted from 1"):
        read_pharaoh("0-1", from_one=True)


def test_links_by_argmax_and_by_threshold() -> None:
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.4, 0.1], [0.0, 0.0, 0.0], [0.1, 0.1, 0.35]])
    assert links(weights) == {(1, 0), (0, 1), (2, 3)}
    assert links(weights, 0.3) == {(1, 0), (2, 0), (0, 1), (1, 1), (2, 3)}
    assert links(torch.zeros(2, 0)) == frozenset()
    with pytest.raises(CutawayError, match=r"threshold is 0, expected"):
        links(weights, 0)


def test_error_rate_of_a_worked_example_and_by_counting() -> None:
    gold = read_pharaoh("0-0 1-1 2?1 2?2")
    found = alignment_error([(0, 0), (2, 1), (3, 3), (1, 2)], gold)
    assert (found.precision, found.recall) == (2 / 4, 1 / 2)
    assert found.aer == pytest.approx(1 - (1 + 2) / (4 + 2))
    nothing = alignment_error([], read_pharaoh(""))
    assert nothing == AlignmentError(0, 0, 0, 0)
    assert nothing.precision is nothing.recall is nothing.aer is None
    chance = random.Random(0)
    cells = list(itertools.product(range(4), range(5)))
    total, hits, sizes = AlignmentError(0, 0, 0, 0), 0, 0
    for _ in range(20):
        possible = {cell for cell in cells if chance.random() < 0.4}
        sure = {cell for cell in sorted(possible) if chance.random() < 0.5}
        guess = [cell for cell in cells if chance.random() < 0.3]
        total += alignment_error(guess, Gold(frozenset(sure), frozenset(possible)))
        hits += sum((cell in sure) + (cell in possible) for cell in guess)
        sizes += len(guess) + len(sure)
        between = [cell for cell in possible if cell in sure or chance.random() < 0.5]
        assert alignment_error(between, Gold(frozenset(sure), frozenset(possible))).aer in (0, None)
    assert total.aer == pytest.approx(1 - hits / sizes)


def test_errors_are_counted_head_by_head() -> None:
    generator = torch.Generator().manual_seed(4)
    weights, gold = torch.rand(2, 3, 4, 5, generator=generator), read_pharaoh("0-0 2-1 2?2 3-3")
    found = error_by_head(weights, gold)
    for i, j in itertools.product(range(2), range(3)):
        rows = weights[i, j].tolist()
        best = {(row.index(max(row)), target) for target, row in enumerate(rows)}
        sure = len(best & {(0, 0), (2, 1), (3, 3)})
        assert found[i][j] == AlignmentError(4, 3, sure, sure + ((2, 2) in best))
    with pytest.raises(CutawayError, match=r"shape \[4, 5\], expected \(layers, heads"):
        error_by_head(weights[0, 0], gold)


def test_words_that_do_not_fit_are_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(
        CutawayError, match=r"link 2-0 \(counted from 0\) is out of range: there are 2 source words"
    ):
        check_range(read_pharaoh("0-0 2-0"), n_source=2, n_target=1)
    ids = tokenizer.encode("我爱你。").ids
    with pytest.raises(CutawayError, match="word 2 is '恨', but the pieces spell '爱你。' there"):
        word_pieces(tokenizer, ids, ["我", "恨", "你"])
    with pytest.raises(CutawayError, match="the pieces go on with '你。'"):
        word_pieces(tokenizer, ids, ["我", "爱"])
    with pytest.raises(CutawayError, match="the words go on with '吗'"):
        word_pieces(tokenizer, ids, ["我爱你。", "吗"])
