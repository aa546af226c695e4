"""Attention and effects against links drawn by hand."""

import pytest

from cutaway import CutawayError, load
from cutaway.inspection import (
    alignment_error,
    compare_with_gold,
    links,
    patterns,
    read_pharaoh,
    run,
    split_words,
    word_pieces,
    word_weights,
)  # fmt: skip
from cutaway.inspection.alignment.error_rate import AlignmentError
from cutaway.zoo import POET, TRANSLATOR, find

TEXT, WRITTEN = "我们明天去北京。", "We'll go to Beijing tomorrow."
SOURCE = ["我们", "明天", "去", "北京", "。"]
TARGET = ["We'll", "go", "to", "Beijing", "tomorrow", "."]
GOLD = read_pharaoh("0-0 2-1 2?2 3-3 1-4 4-5")


def test_every_head_the_mean_and_the_effect():
    asked = run(load(find(TRANSLATOR)), TEXT, target=WRITTEN)
    found = compare_with_gold(asked, GOLD, source=SOURCE, target=TARGET)
    assert found.effect == AlignmentError(6, 5, 5, 6) and found.effect.aer == 0
    assert asked.source is not None
    tokenizer = asked.loaded.require_tokenizer()
    words = word_weights(
        patterns(asked, "cross").values,
        word_pieces(tokenizer, asked.outcome.ids, TARGET),
        word_pieces(tokenizer, asked.source.ids, SOURCE),
    )
    assert found.mean == alignment_error(links(words.mean(dim=(0, 1))), GOLD)
    assert found.heads[2][1] == alignment_error(links(words[2, 1]), GOLD)
    text = found.to_text(locale="en")
    assert text.startswith("Against the links that people drew\n") and "what it depends on   0.00" in text
    best = min((each.aer, i, j) for i, row in enumerate(found.heads) for j, each in enumerate(row))
    assert f"head {best[1]}.{best[2]}" in text
    assert "对齐错误率" in found.to_svg(locale="zh")


def test_words_are_cut_where_nobody_has():
    asked = run(load(find(TRANSLATOR)), TEXT, target=WRITTEN)
    found = compare_with_gold(asked, read_pharaoh("0-0"))
    assert found.source == tuple(split_words(TEXT)) == ("我", "们", "明", "天", "去", "北", "京", "。")


def test_what_does_not_fit_is_refused():
    asked = run(load(find(TRANSLATOR)), TEXT, target=WRITTEN)
    with pytest.raises(
        CutawayError, match=r"link 9-0 .* is out of range: there are 5 source words and 6 target words"
    ):
        compare_with_gold(asked, read_pharaoh("9-0"), source=SOURCE, target=TARGET)
    with pytest.raises(CutawayError, match="word 1 is '他'"):
        compare_with_gold(asked, GOLD, source=["他"], target=TARGET)
    with pytest.raises(CutawayError, match="side is 'cross'"):
        compare_with_gold(run(load(find(POET)), "床前明月光"), GOLD)
