"""Alignments of a search, effects of source tokens, word alignment and its error, against independent calculations."""

import itertools
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.decode.conftest import TEXTS, tiny_model
from torch import Tensor

from cutaway.checkpoint import folder
from cutaway.checkpoint.folder import Loaded
from cutaway.errors import CutawayError
from cutaway.inspection.alignment.error_rate import (
    AlignmentError,
    Gold,
    alignment_error,
    check_range,
    error_by_head,
    links,
    read_pharaoh,
)
from cutaway.inspection.alignment.hypotheses import (
    Alignment,
    align,
    coverage,
    cross_weights,
    mean_weights,
    when_read,
)
from cutaway.inspection.alignment.source_effect import agreement, rank_correlation, source_effect
from cutaway.inspection.alignment.words import split_words, word_pieces, word_weights
from cutaway.inspection.runs import Run, Tokens, run
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.zoo import TRANSLATOR, find


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    roles = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>", "bos": "<s>", "mask": "<mask>"}
    languages = ["eng", "zho"]
    return Tokenizer.train(TEXTS * 3, "bpe", 360, alphabet=60, roles=roles, languages=languages)


@pytest.fixture(scope="module")
def opened(tokenizer: Tokenizer) -> Callable[[str], Loaded]:
    def make(kind: str) -> Loaded:
        roles = {"pad_id": tokenizer.role("pad"), "eos_id": tokenizer.role("eos")}
        roles["decoder_start_id"] = tokenizer.role("bos")
        model = tiny_model(kind, tokenizer.vocab_size, **roles)
        return Loaded(model, model.config, tokenizer, {}, Path(f"tiny-{kind}"))

    return make


@pytest.fixture(scope="module")
def translator() -> Loaded:
    return folder.load(find(TRANSLATOR))


@torch.no_grad()
def log_probs(asked: Run, source: Tensor) -> Tensor:
    """Of the outcome (T,), by one plain forward pass that reads `source` (1, S)."""
    logits = asked.model(source=source, target=asked.inputs["target"])[0].double()
    return logits.log_softmax(dim=-1)[range(len(asked.outcome)), asked.outcome.ids]


def check_alignment(found: Alignment) -> None:
    for hypothesis in (found.greedy, *found.hypotheses):
        weights, asked = hypothesis.cross_attention, found.run(hypothesis)
        assert weights is not None and hypothesis.alignment is not None
        layers, heads = weights.shape[:2]
        assert weights.shape[2:] == (len(hypothesis.ids), len(found.source))
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:3]), rtol=0, atol=1e-5)
        names = [f"decoder.layers.{i}.cross_attn.pattern" for i in range(layers)]
        _, trace = asked.forward(names)  # the whole text at once, without cache or search
        whole = torch.stack([trace[name][0] for name in names])
        torch.testing.assert_close(weights, whole[:, :, len(found.start) - 1 :], rtol=0, atol=1e-5)
        mean = sum(weights[i, j] for i, j in itertools.product(range(layers), range(heads))) / (
            layers * heads
        )
        assert isinstance(mean, Tensor)
        torch.testing.assert_close(hypothesis.alignment, mean, rtol=0, atol=1e-6)
        torch.testing.assert_close(mean_weights(weights), mean, rtol=0, atol=1e-6)
        some = (weights[1, 2] + weights[0].sum(dim=0)) / (1 + heads)
        chosen = [(1, 2), (0, None), (0, 1)]
        torch.testing.assert_close(mean_weights(weights, chosen), some, rtol=0, atol=1e-6)
        assert asked.outcome.ids[len(found.start) - 1 :] == hypothesis.ids
        torch.testing.assert_close(
            cross_weights(asked, chosen)[len(found.start) - 1 :], some, rtol=0, atol=1e-5
        )
        torch.testing.assert_close(cross_weights(asked), whole.mean(dim=(0, 1)), rtol=0, atol=1e-6)
        columns = [sum(float(row[s]) for row in mean) for s in range(len(found.source))]
        torch.testing.assert_close(coverage(mean), torch.tensor(columns), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["marian", "t5"])
def test_every_hypothesis_has_the_attention_of_its_own_text(
    opened: Callable[[str], Loaded], kind: str
) -> None:
    found = align(opened(kind), "我爱机器学习。", beam=3)
    assert len(found.hypotheses) == 3
    assert len({tuple(hypothesis.ids) for hypothesis in found.hypotheses}) == 3
    check_alignment(found)
    assert len(align(opened(kind), "你是谁？", beam=1).hypotheses) == 1


def test_bundled_translator_is_aligned(translator: Loaded) -> None:
    found = align(translator, "我们明天去北京。", beam=4)
    assert len(found.hypotheses) == 4 and found.source.pieces[0] == ">>eng<<"
    check_alignment(found)
    effect = source_effect(found.run(found.hypotheses[0])).effect
    best = found.hypotheses[0]
    where = best.pieces.index("▁tomorrow")
    assert found.source.pieces[int(effect[where].argmax())] == "明天"


def test_effect_is_that_of_a_source_without_the_token(opened: Callable[[str], Loaded]) -> None:
    asked = run(opened("marian"), "我爱机器学习。", target="I love machine learning.")
    source = asked.inputs["source"]
    plain = log_probs(asked, source)
    for batch_size in (64, 3, 1):
        found = source_effect(asked, batch_size)
        assert found.effect.shape == (len(asked.outcome), source.shape[1])
        torch.testing.assert_close(found.log_probs.double(), plain, rtol=0, atol=1e-4)
        for s in range(source.shape[1]):
            without = log_probs(asked, torch.cat([source[:, :s], source[:, s + 1 :]], dim=1))
            torch.testing.assert_close(found.effect[:, s].double(), plain - without, rtol=0, atol=1e-4)


def test_effect_with_relative_positions_is_that_of_a_key_nobody_sees(
    opened: Callable[[str], Loaded],
) -> None:
    asked = run(opened("t5"), "我爱机器学习。", target="I love machine learning.")
    found = source_effect(asked)
    plain = log_probs(asked, asked.inputs["source"])
    gone = asked.inputs["source"].shape[1] // 2

    def hide(masked: Tensor) -> Tensor:
        masked = masked.clone()
        masked[..., gone] = -math.inf
        return masked

    paths = ("encoder.layers.*.self_attn.masked", "decoder.layers.*.cross_attn.masked")
    logits, _ = asked.forward(edit=dict.fromkeys(paths, hide))
    places = range(len(asked.outcome))
    without = logits.double().log_softmax(dim=-1)[places, asked.outcome.ids]
    torch.testing.assert_close(found.effect[:, gone].double(), plain - without, rtol=0, atol=1e-4)


def test_effect_on_the_bundled_translator(translator: Loaded) -> None:
    asked = run(translator, "I love you.")
    found, source = source_effect(asked), asked.inputs["source"]
    plain = log_probs(asked, source)
    for s in range(source.shape[1]):
        without = log_probs(asked, torch.cat([source[:, :s], source[:, s + 1 :]], dim=1))
        torch.testing.assert_close(found.effect[:, s].double(), plain - without, rtol=0, atol=1e-3)


def test_a_source_of_one_token_may_be_hidden_too(opened: Callable[[str], Loaded]) -> None:
    whole = run(opened("marian"), "我", target="I")
    assert whole.source is not None
    single = Run(whole.loaded, Tokens(whole.source.ids[:1], ["我"]), whole.target, whole.outcome)
    assert source_effect(single).effect.isfinite().all()


def ranks(values: list[float]) -> list[float]:
    """From 1: how many are smaller, and half of the others that are equal."""
    return [
        1 + sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def test_rank_correlation_with_ties() -> None:
    chance = random.Random(3)
    for n in (2, 5, 30):
        for _ in range(10):
            left, right = ([float(chance.randrange(6)) for _ in range(n)] for _ in range(2))
            found = rank_correlation(torch.tensor(left), torch.tensor(right))
            if len(set(left)) == 1 or len(set(right)) == 1:
                assert found is None
            else:
                assert found == pytest.approx(statistics.correlation(ranks(left), ranks(right)), abs=1e-9)
    assert rank_correlation(torch.tensor([0.1, 2.0, 3.0]), torch.tensor([-5.0, 0.0, 9.0])) == pytest.approx(1)


def test_agreement_compares_within_rows_and_over_all_cells() -> None:
    generator = torch.Generator().manual_seed(5)
    weights, effect = torch.rand(4, 6, generator=generator), torch.randn(4, 6, generator=generator)
    weights[2] = 0.25
    for keys in (None, [1, 2, 4]):
        found = agreement(weights, effect, keys)
        at = list(keys or range(6))
        assert found.keys == tuple(at)
        a, b = weights[:, at].tolist(), effect[:, at].tolist()
        rows = [None if t == 2 else statistics.correlation(ranks(a[t]), ranks(b[t])) for t in range(4)]
        assert found.rows == pytest.approx(tuple(rows))
        assert found.mean == pytest.approx(statistics.fmean(row for row in rows if row is not None))
        whole = statistics.correlation(
            ranks([x for row in a for x in row]), ranks([x for row in b for x in row])
        )
        assert found.pooled == pytest.approx(whole)


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


def test_error_by_head_of_the_bundled_translator(translator: Loaded) -> None:
    """Against gold links drawn by hand, counted head by head."""
    source = ["我们", "明天", "去", "北京", "。"]
    target = ["We'll", "go", "to", "Beijing", "tomorrow", "."]
    asked = run(translator, "我们明天去北京。", target="We'll go to Beijing tomorrow.")
    assert asked.source is not None
    tokenizer = translator.require_tokenizer()
    source_pieces = word_pieces(tokenizer, asked.source.ids, source)
    target_pieces = word_pieces(tokenizer, asked.outcome.ids, target)
    gold = read_pharaoh("0-0 2-1 2?2 3-3 1-4 4-5")
    names = [f"decoder.layers.{i}.cross_attn.pattern" for i in range(4)]
    _, trace = asked.forward(names)
    chosen = torch.stack([trace[name][0] for name in names])
    for weights in (chosen, when_read(chosen)):
        found = error_by_head(word_weights(weights, target_pieces, source_pieces), gold)
        assert len(found) == 4 and all(len(layer) == 4 for layer in found)
        for i, j in itertools.product(range(4), range(4)):
            best: list[tuple[int, int]] = []
            for n, pieces in enumerate(target_pieces):
                masses = [sum(float(weights[i, j, t, s]) for t in pieces for s in at) for at in source_pieces]
                best.append((masses.index(max(masses)), n))
            sure = sum(link in [(0, 0), (2, 1), (3, 3), (1, 4), (4, 5)] for link in best)
            assert found[i][j] == AlignmentError(6, 5, sure, sure + ((2, 2) in best))
    effect = word_weights(source_effect(asked).effect, target_pieces, source_pieces)
    assert alignment_error(links(effect), gold).aer == 0  # what each word depends on is what people linked


def test_weights_when_read_are_those_of_the_next_step() -> None:
    weights = torch.rand(2, 3, 4, 5)
    moved = when_read(weights)
    assert torch.equal(moved[0, 1, 2], weights[0, 1, 3]) and torch.equal(moved[1, 2, 0], weights[1, 2, 1])
    assert moved.shape == weights.shape and moved[..., 3, :].eq(0).all()


def test_bad_input_is_named(opened: Callable[[str], Loaded], tokenizer: Tokenizer) -> None:
    marian = opened("marian")
    gpt = run(opened("gpt2"), "I love you.")
    with pytest.raises(CutawayError, match="family, expected encoder-decoder"):
        align(gpt.loaded, "I love you.")
    with pytest.raises(CutawayError, match="decoder-only family and has no source"):
        source_effect(gpt)
    with pytest.raises(CutawayError, match="a decoder-only model attends on decoder only"):
        cross_weights(gpt)
    with pytest.raises(CutawayError, match="the text is empty"):
        align(marian, "  ")
    asked = run(marian, "你是谁？", target="Who are you?")
    with pytest.raises(CutawayError, match="batch_size is 0"):
        source_effect(asked, 0)
    with pytest.raises(CutawayError, match=r"layer 2 is not there: expected one of 0 to 1 \(nearest: 1\)"):
        cross_weights(asked, [(2, 0)])
    with pytest.raises(CutawayError, match=r"head 9 is not there: expected one of 0 to 3 \(nearest: 3\)"):
        mean_weights(torch.rand(2, 4, 3, 3), [(0, 9)])
    with pytest.raises(CutawayError, match="no head was asked for"):
        mean_weights(torch.rand(2, 4, 3, 3), [])
    with pytest.raises(CutawayError, match=r"shape \[2, 3\] and effects \[3, 2\]"):
        agreement(torch.rand(2, 3), torch.rand(3, 2))
    with pytest.raises(CutawayError, match="source token 3 is not there"):
        agreement(torch.rand(2, 3), torch.rand(2, 3), [3])
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
