"""Gaps: how they are written, what stands around them, and what fills them."""

import pytest
import torch

from cutaway.decode.gaps import fill
from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer


@pytest.mark.parametrize("mark", ["[MASK]", "<mask>"])
def test_a_gap_is_filled_with_the_most_probable_tokens(opened, tokenizer: Tokenizer, mark: str):
    loaded = opened("bert")
    filled = fill(loaded, f"我爱{mark}习。", top=4)
    mask = tokenizer.require("mask")
    before, after = tokenizer.encode("我爱").ids, tokenizer.encode("习。").ids
    assert filled.ids == [*before, mask, *after]
    (gap,) = filled.gaps
    assert gap.position == len(before)
    with torch.no_grad():
        logits = loaded.model(ids=torch.tensor([filled.ids]))[0, gap.position]
    logits[list(tokenizer.controls)] = -torch.inf
    probabilities, ids = logits.softmax(dim=-1).topk(4)
    assert [c.id for c in gap.candidates] == ids.tolist()
    assert [c.probability for c in gap.candidates] == pytest.approx(probabilities.tolist(), abs=1e-5)
    assert [c.piece for c in gap.candidates] == [tokenizer.readable(c.id) for c in gap.candidates]
    assert filled.text == tokenizer.decode([*before, gap.candidates[0].id, *after])


def test_several_gaps_are_filled_each_by_itself(opened, tokenizer: Tokenizer):
    filled = fill(opened("bert"), "[MASK]爱<mask>习[MASK]")
    assert [filled.ids[gap.position] for gap in filled.gaps] == [tokenizer.role("mask")] * 3
    assert len(filled.gaps) == 3
    assert all(len(gap.candidates) == 5 for gap in filled.gaps)
    assert filled.pieces[filled.gaps[0].position] == "<mask>"


def test_a_gap_takes_the_space_before_it(opened, tokenizer: Tokenizer):
    filled = fill(opened("bert"), "Who are [MASK] today?")
    (gap,) = filled.gaps
    assert filled.ids[: gap.position] == tokenizer.encode("Who are").ids
    assert filled.ids[gap.position + 1 :] == tokenizer.encode(" today?").ids


def test_cls_and_sep_stand_around_where_the_tokenizer_says_so(opened):
    texts = ["who are you", "你好 吗"] * 4
    bert = Tokenizer.train(texts, kind="wordpiece", vocab_size=200, template="[CLS] $A [SEP]")
    loaded = opened("bert", mask_id=bert.role("mask"), pad_id=bert.role("pad"), eos_id=None)
    filled = fill(type(loaded)(loaded.model, loaded.config, bert, {}, loaded.path), "who [MASK] you")
    assert filled.ids[0] == bert.role("cls")
    assert filled.ids[-1] == bert.role("sep")
    assert all(c.id < bert.vocab_size for gap in filled.gaps for c in gap.candidates)


def test_control_tokens_never_fill_a_gap_and_users_text_stays_text(opened, tokenizer: Tokenizer):
    filled = fill(opened("bert"), "</s> [MASK] <s>", top=20)
    controls = set(tokenizer.controls)
    assert not controls & {c.id for c in filled.gaps[0].candidates}
    assert [id for id in filled.ids if id in controls] == [tokenizer.role("mask")]


@pytest.mark.parametrize(
    ("text", "top", "message"),
    [
        ("我爱你", 5, r"no gap to fill; write \[MASK\] or <mask>"),
        ("", 5, "no gap to fill"),
        ("[MASK]", 0, "top is 0, expected 1 to 20"),
        ("[MASK]", 21, "top is 21"),
        ("[MASK]" * 66, 5, "66 tokens, but this model reads at most 64"),
    ],
)
def test_texts_that_cannot_be_filled_are_refused(opened, text: str, top: int, message: str):
    with pytest.raises(CutawayError, match=message):
        fill(opened("bert"), text, top=top)


def test_models_of_another_family_are_refused(opened):
    with pytest.raises(CutawayError, match=r"decoder-only family, expected encoder-only.*cutaway generate"):
        fill(opened("gpt2"), "[MASK]")


def test_a_damaged_model_is_refused(opened):
    loaded = opened("bert")
    with torch.no_grad():
        loaded.model.head.unembed.weight[3, 0] = torch.nan
    with pytest.raises(CutawayError, match="output in a gap is not a number: its weights are damaged"):
        fill(loaded, "我爱[MASK]习。")
