"""A translation with the attention of its search, what it depends on, and links that people drew."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese

from cutaway import CutawayError, find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.inspection.patterns import patterns
from cutaway.inspection.questions.align import align, compare_with_gold
from cutaway.inspection.runs import Run, run
from cutaway.inspection.source_effect import agreement, source_effect
from cutaway.inspection.word_alignment import (
    AlignmentError,
    alignment_error,
    links,
    read_pharaoh,
    split_words,
    word_pieces,
    word_weights,
)
from cutaway.page.blocks import Atlas, Matrix
from cutaway.page.numbers import nats, share
from cutaway.zoo import POET, TRANSLATOR

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("translator", None, {"text": "今天天气很好。", "beam": 3, "top": 2, "layer": 1}),
    ("translator", None, {"text": '-1 "$x" `y`', "target": "It's time", "gold": "0-0 1?1"}),
]

TEXT = "今天天气很好。"
GOLD_TEXT, WRITTEN = "我们明天去北京。", "We'll go to Beijing tomorrow."
SOURCE = ["我们", "明天", "去", "北京", "。"]
TARGET = ["We'll", "go", "to", "Beijing", "tomorrow", "."]
GOLD = read_pharaoh("0-0 2-1 2?2 3-3 1-4 4-5")


@pytest.fixture(scope="module")
def bundled() -> Loaded:
    return load(find(TRANSLATOR))


@pytest.fixture(params=["tiny", "bundled"])
def pair(request: pytest.FixtureRequest, translator: Path, bundled: Loaded) -> Loaded:
    return load(translator) if request.param == "tiny" else bundled


def whole(asked: Run) -> torch.Tensor:
    """(L, H, T, S) of one plain pass over the whole text, without cache or search."""
    names = [f"decoder.layers.{i}.cross_attn.pattern" for i in range(asked.model.config.n_layers)]
    _, trace = asked.forward(names)
    return torch.stack([trace[name][0] for name in names])


def test_every_hypothesis_has_the_attention_of_its_own_text(pair: Loaded) -> None:
    found = align(pair, TEXT, beam=3)
    assert len({tuple(each.ids) for each in found.hypotheses}) == len(found.hypotheses) == 3
    scores = [each.score for each in found.hypotheses]
    assert scores == sorted(scores, reverse=True)
    for hypothesis in found.hypotheses:
        asked, weights = found.run(hypothesis), hypothesis.cross_attention
        assert weights is not None and asked.outcome.ids[len(found.start) - 1 :] == hypothesis.ids
        torch.testing.assert_close(weights, whole(asked)[:, :, len(found.start) - 1 :], rtol=0, atol=1e-5)
    best = found.run(found.hypotheses[0])
    torch.testing.assert_close(found.cross_attention, whole(best), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.weights, whole(best).mean(dim=(0, 1)), rtol=0, atol=1e-5)
    effect = source_effect(best).effect
    torch.testing.assert_close(found.effect.effect, effect, rtol=0, atol=1e-5)
    assert found.agreement == agreement(found.weights, found.effect.effect)
    assert found.greedy is not None
    alone = align(pair, TEXT, beam=1)
    assert [each.ids for each in alone.hypotheses] == [found.greedy.ids]
    assert len(align(pair, TEXT, beam=3, top=2).hypotheses) == 2


def test_what_the_search_gave_up_was_less_probable_than_what_it_kept(translator: Path) -> None:
    loaded = load(translator)
    found = align(loaded, TEXT, beam=3)
    assert found.start.ids == [loaded.config.decoder_start_id] and len(found.dropped) > 2
    ids = {loaded.require_tokenizer().readable(id): id for id in range(loaded.config.vocab_size)}
    for each in found.dropped:
        written = [ids[piece] for piece in each.pieces]
        target = torch.tensor([[*found.start.ids, *written[:-1]]])
        with torch.no_grad():
            logits = loaded.model(source=torch.tensor([found.source.ids]), target=target)[0].double()
        total = logits.log_softmax(dim=-1)[range(len(written)), written].sum()
        assert each.total == pytest.approx(float(total), abs=1e-3) and each.total < each.kept
        assert each.step == len(written)
    assert align(loaded, TEXT, target="time").dropped == ()


def test_some_layers_and_heads_and_a_given_translation(pair: Loaded) -> None:
    found = align(pair, TEXT, target="Time", layer=-1, head=1)
    asked = run(pair, TEXT, target="Time")
    last = pair.config.n_layers - 1
    torch.testing.assert_close(found.weights, patterns(asked, "cross").of(last, 1))
    assert (found.layer, found.head, found.greedy, found.hypotheses) == (last, 1, None, ())
    assert found.outcome.ids == asked.outcome.ids and len(found.start) == 1
    layer = align(pair, TEXT, target="Time", layer=0).weights
    torch.testing.assert_close(layer, patterns(asked, "cross", 0).values[0].mean(dim=0))


def test_what_a_word_depends_on(bundled: Loaded) -> None:
    found = align(bundled, GOLD_TEXT)
    where = found.outcome.pieces.index("▁tomorrow")
    assert found.source.pieces[int(found.effect.effect[where].argmax())] == "明天"


def test_every_head_the_mean_and_the_effect_against_gold(bundled: Loaded) -> None:
    asked = run(bundled, GOLD_TEXT, target=WRITTEN)
    cross, effect = patterns(asked, "cross").values, source_effect(asked).effect
    found = compare_with_gold(asked, GOLD, cross, effect, source=SOURCE, target=TARGET)
    assert found.effect == AlignmentError(6, 5, 5, 6) and found.effect.aer == 0
    assert asked.source is not None
    tokenizer = bundled.require_tokenizer()
    groups = [
        word_pieces(tokenizer, asked.outcome.ids, TARGET),
        word_pieces(tokenizer, asked.source.ids, SOURCE),
    ]
    for i, layer in enumerate(found.heads):
        for j, error in enumerate(layer):
            best: list[tuple[int, int]] = []
            for n, pieces in enumerate(groups[0]):
                masses = [sum(float(cross[i, j, t, s]) for t in pieces for s in at) for at in groups[1]]
                best.append((masses.index(max(masses)), n))
            sure = len({(0, 0), (2, 1), (3, 3), (1, 4), (4, 5)} & set(best))
            assert error == AlignmentError(6, 5, sure, sure + ((2, 2) in best))
    words = word_weights(cross, *groups)
    assert found.mean == alignment_error(links(words.mean(dim=(0, 1))), GOLD)


def test_words_are_cut_where_nobody_has(bundled: Loaded) -> None:
    found = align(bundled, GOLD_TEXT, target=WRITTEN, gold="0-0").gold
    assert found is not None
    assert found.source == tuple(split_words(GOLD_TEXT)) == ("我", "们", "明", "天", "去", "北", "京", "。")


def test_what_does_not_fit_is_refused(bundled: Loaded, run_of: Callable[..., Run]) -> None:
    with pytest.raises(CutawayError, match="there is no layer 4, expected 0 to 3"):
        align(bundled, TEXT, target="Yes.", layer=4)
    with pytest.raises(CutawayError, match="there is no head 9, expected 0 to 3"):
        align(bundled, TEXT, target="Yes.", head=9)
    with pytest.raises(CutawayError, match="top is 5, but the search is only 4 wide: make beam 5"):
        align(bundled, TEXT, top=5)
    with pytest.raises(CutawayError, match="the text is empty"):
        align(bundled, "  ")
    with pytest.raises(CutawayError, match="gold is empty, expected links"):
        align(bundled, TEXT, gold=" ")
    with pytest.raises(CutawayError, match="gold: '0:1' is no link"):
        align(bundled, TEXT, gold="0-0 0:1")
    with pytest.raises(
        CutawayError, match=r"link 9-0 .* is out of range: there are 7 source words and 2 target"
    ):
        align(bundled, TEXT, target="Yes.", gold="9-0")
    asked = run(bundled, GOLD_TEXT, target=WRITTEN)
    with pytest.raises(CutawayError, match="word 1 is '他'"):
        compare_with_gold(
            asked, GOLD, torch.zeros(1, 1, 9, 9), torch.zeros(9, 9), source=["他"], target=TARGET
        )
    with pytest.raises(CutawayError, match="decoder-only"):
        align(run_of("GPT-2").loaded, TEXT)


def test_the_page_says_where_it_looked_and_what_it_depends_on(cutaway: command.Run, translator: Path) -> None:
    asked = ("align", TEXT, "-m", translator, "--target", "time no see")
    found = result(cutaway, *asked)
    weights, effect = np.array(found["weights"]), np.array(found["effect"]["effect"])
    pieces, log_probs = found["source"]["pieces"], found["effect"]["log_probs"]
    text = shown(cutaway, *asked)
    for row, looked, needed, value in zip(found["rows"], weights, effect, log_probs, strict=True):
        lines = [line for line in text.splitlines() if line.startswith(f"{row} ")]
        told = " ".join(" ".join(lines).split())
        assert share(math.exp(value)) in told
        assert f"{pieces[looked.argmax()]} {share(looked.max())}" in told
        assert f"{pieces[needed.argmax()]} {nats(needed.max())}" in told
    assert f"ρ = {found['agreement']['mean']:.2f}" in " ".join(text.split())


def test_the_search_is_told_by_rank(cutaway: command.Run) -> None:
    asked = ("align", "好久不见。", "--beam", "3")
    lines = shown(cutaway, *asked).splitlines()
    found = result(cutaway, *asked)
    for n, each in enumerate(found["hypotheses"], start=1):
        row = next(line for line in lines if line.startswith(f"rank {n} "))
        assert row.split(maxsplit=3)[2:] == [f"{each['score']:.3f}", each["text"]]
    greedy = next(line for line in lines if line.startswith("greedy "))
    assert greedy.split(maxsplit=2)[1:] == [f"{found['greedy']['score']:.3f}", found["greedy"]["text"]]


def test_figures_have_every_head_and_the_measured_effect(bundled: Loaded) -> None:
    found = align(bundled, TEXT, target="Yes.")
    blocks = found.page().blocks
    looked, effect = (block for block in blocks if isinstance(block, Matrix))
    np.testing.assert_array_equal(looked.values, found.weights.double().numpy())
    np.testing.assert_array_equal(effect.values, found.effect.effect.double().numpy())
    assert effect.scale == "signed" and effect.drawn
    (atlas,) = (block for block in blocks if isinstance(block, Atlas))
    assert [each.values.tolist() for each in atlas.maps] == found.cross_attention.double().flatten(
        0, 1
    ).tolist()


def test_as_a_command_in_both_languages(cutaway: command.Run, translator: Path, poet: Path) -> None:
    asked = ("align", TEXT, "-m", translator)
    assert shown(cutaway, *asked).startswith("Where the decoder looked (all layers, mean of all heads)\n")
    one = shown_in_chinese(cutaway, *asked, "--layer", "1", "--head", "0")
    assert one.startswith("解码器看向哪里（第 1 层，头 0）\n") and "\n第 1 名 " in one and "\n贪心 " in one
    assert "→ 原文" in page_of(cutaway, *asked, lang="zh")
    assert "poet" in refused(cutaway, "align", TEXT, "-m", poet)
    assert "is decoder-only; align needs an encoder-decoder model: a translator" in refused(
        cutaway, "align", TEXT, "-m", POET
    )
    assert "top is 9, but the search is only 4 wide" in refused(cutaway, *asked, "--top", "9")


def test_gold_links_give_error_rates(cutaway: command.Run, bundled: Loaded) -> None:
    asked = ("align", "我爱你。", "--target", "I love you.", "--gold", "0-0 1-1 2-2")
    found = result(cutaway, *asked)["gold"]
    expected = align(bundled, "我爱你。", target="I love you.", gold="0-0 1-1 2-2").gold
    assert expected is not None
    assert found["effect"]["in_sure"] == expected.effect.in_sure > 0
    assert found["gold"]["sure"] == [[0, 0], [1, 1], [2, 2]]
    assert cutaway("inspect", *asked, "--save", "gold.safetensors").code == 0
    assert int(load_file("gold.safetensors")["gold.effect.in_sure"]) == expected.effect.in_sure
    lines = shown(cutaway, *asked).splitlines()
    row = next(line.split() for line in lines if line.startswith("what it depends on "))
    assert row[4:] == [f"{expected.effect.aer:.2f}", f"{expected.effect.precision:.2f}",
                       f"{expected.effect.recall:.2f}", "4"]  # fmt: skip
    best = min((each.aer, i, j) for i, row in enumerate(expected.heads) for j, each in enumerate(row))
    first = next(line.split() for line in lines if line.startswith("head "))
    assert first[1:3] == [f"{best[1]}.{best[2]}", f"{best[0]:.2f}"]


def test_attention_is_that_of_the_search_itself(passes: Callable[[], int], translator: Path) -> None:
    loaded = load(translator)
    align(loaded, TEXT).page()
    # what is measured: nothing hidden, and every token hidden in one batch
    assert passes() == 2
    align(loaded, TEXT, target="time").page()
    assert passes() == 3
