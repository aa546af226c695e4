"""Continuing texts: prompts of all lengths, empty ones, and those near the position limit."""

from dataclasses import replace

import pytest
from tests.decode.conftest import TEXTS

from cutaway.decode.complete import continue_text, prepare_prompt, start_ids, stream_text
from cutaway.decode.sampling import Sampling
from cutaway.decode.score import score_continuations
from cutaway.decode.search import Limits, Search
from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer

PROMPTS = ["我爱", "Long time no see. The weather", "a", "这本书是我的，你", "😀 who"]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "alibi"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_p=0.9, seed=5)])
def test_continuations_do_not_depend_on_company(opened, kind: str, sampling: Sampling):
    loaded = opened(kind)
    whole = continue_text(loaded, PROMPTS, limits=Limits(10), search=Search(sampling=sampling))
    assert [c.prompt.text for c in whole] == PROMPTS
    for size in (1, 2):
        again = continue_text(
            loaded, PROMPTS, limits=Limits(10), search=Search(sampling=sampling), batch_size=size
        )
        assert [c.best.ids for c in again] == [c.best.ids for c in whole]
    forced = score_continuations(loaded.model, [c.prompt.ids for c in whole], [c.best.ids for c in whole])
    for continuation, log_probs in zip(whole, forced, strict=True):
        assert continuation.best.log_probs == pytest.approx(log_probs, abs=1e-4)


def test_a_short_prompt_beside_one_at_the_limit_gets_all_it_asked_for(opened, tokenizer: Tokenizer):
    loaded = opened("llama", max_len=64)
    long = "Long time no see. " * 20
    n = len(tokenizer.encode(long).ids)
    long = tokenizer.decode(tokenizer.encode(long).ids[: 64 - 5])
    assert len(tokenizer.encode(long).ids) == 59 < n
    texts = ["我爱", long, "a"]
    alone = [continue_text(loaded, [text], limits=Limits(30, 30))[0].best for text in texts[::2]]
    first, cut, last = continue_text(loaded, texts, limits=Limits(30, 5))
    assert (len(cut.best.ids), cut.best.finish) == (5, "length")
    [note] = cut.prompt.notes
    assert str(note).startswith(
        "max_new_tokens is 30, but only 5 of"
    )
    assert not first.prompt.notes
    first, last = continue_text(loaded, texts[::2], limits=Limits(30, 30))
    assert [first.best.ids, last.best.ids] == [each.ids for each in alone]
    assert len(first.best.ids) == 30
    # a minimum that cannot be met is said, with the prompt that it fails for
    with pytest.raises(CutawayError, match=r"prompt 2: at least 30 new tokens.*the 59.*only 5 fit into 64"):
        continue_text(loaded, texts, limits=Limits(30, 30))


def test_prompts_beyond_the_limit_are_refused_or_cut_with_a_note(opened, tokenizer: Tokenizer):
    loaded = opened("gpt2", max_len=32)
    long = "Who are you? " * 9
    n = len(tokenizer.encode(long).ids)
    with pytest.raises(CutawayError, match=rf"prompt 2 has {n} tokens.*limit is 32.*31 tokens or fewer"):
        continue_text(loaded, ["a", long])
    (continuation,) = continue_text(loaded, [long], truncate=True)
    [note] = continuation.prompt.notes
    assert str(note) == f"only the last 16 of the prompt's {n} tokens were read"
    assert continuation.prompt.ids == tokenizer.encode(long).ids[-16:]
    assert len(continuation.best.ids) <= 16


def test_the_start_token_stands_once_before_every_prompt_where_the_tokenizer_says_so(
    opened, tokenizer: Tokenizer
):
    bos, eos = tokenizer.require("bos"), tokenizer.require("eos")
    plain = opened("llama", bos_id=bos)
    # a start token that nobody puts there (SmolLM2) is not put there
    assert start_ids(plain) == []
    assert start_ids(plain, empty=True) == [bos]
    tokenizer = Tokenizer.train(TEXTS * 3, "bpe", 360, alphabet=60, languages=["eng"], template="<s> $A")
    bos = tokenizer.require("bos")
    loaded = replace(opened("llama", bos_id=bos), tokenizer=tokenizer)
    for text in ("你好", "", "<s> a", "</s>"):
        prompt = prepare_prompt(loaded, text)
        assert prompt.ids == [bos, *tokenizer.encode(text).ids]
        assert prompt.pieces[0] == "<s>"
        assert prompt.ids.count(bos) == 1
    # GPT-2's: start and end are one token, which only begins an empty text.
    assert start_ids(opened("gpt2", bos_id=eos)) == []
    assert start_ids(opened("gpt2", bos_id=eos), empty=True) == [eos]
    assert start_ids(opened("gpt2")) == []


def test_an_empty_prompt_needs_something_to_begin_from(opened):
    (continuation,) = continue_text(opened("gpt2"), [""], limits=Limits(4))
    assert len(continuation.best.ids) >= 1
    with pytest.raises(CutawayError, match="prompt is empty, and this model has no start token"):
        continue_text(opened("gpt2", eos_id=None), [""])


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.5, seed=3)])
def test_the_stream_joins_to_the_whole(opened, sampling: Sampling):
    loaded = opened("llama")
    for text in PROMPTS[:3]:
        options = {"search": Search(sampling=sampling, alternatives=2), "limits": Limits(25)}
        (whole,) = continue_text(loaded, [text], **options)
        tokens = list(stream_text(loaded, text, **options))
        assert "".join(token.text for token in tokens) == whole.best.text
        assert [token.id for token in tokens] == whole.best.ids
        assert tokens[-1].finish == whole.best.finish
        for token in tokens:
            others = [each.id for each in token.alternatives]
            assert len(others) == (2 if token.id in others[:2] else 3)
            assert token.id in others


def test_beam_search_finds_no_worse_than_greedy(opened):
    loaded = opened("alibi")
    (greedy,) = continue_text(loaded, ["我爱"], limits=Limits(4, 4))
    (found,) = continue_text(loaded, ["我爱"], limits=Limits(4, 4), search=Search(beam=32, n_best=4))
    assert len(found.hypotheses) == 4
    assert found.best.score >= greedy.best.score - 1e-6


def test_padding_and_masks_are_never_written_but_other_controls_may_be(opened, tokenizer: Tokenizer):
    loaded = opened("gpt2")
    sampling = Sampling(temperature=1e3)
    found = continue_text(loaded, ["我"] * 16, limits=Limits(60, 60), search=Search(sampling=sampling))
    ids = {id for continuation in found for id in continuation.best.ids}
    assert not ids & {tokenizer.role(role) for role in ("pad", "unk", "bos", "mask")}
    assert ids & {tokenizer.id(">>eng<<"), tokenizer.id(">>zho<<")}


def test_a_batch_without_room_is_refused(opened):
    with pytest.raises(CutawayError, match="batch_size is 0"):
        continue_text(opened("gpt2"), ["我"], batch_size=0)


def test_models_of_another_family_are_refused(opened):
    with pytest.raises(CutawayError, match=r"encoder-only family, expected decoder-only.*cutaway fill"):
        continue_text(opened("bert"), ["我"])
