"""Texts to texts: order, blanks, directions, scripts, limits; on tiny random models with a real tokenizer."""

import pytest
import torch

from cutaway.decode.languages import simplified, target_of
from cutaway.decode.length_penalty import LengthPenalty
from cutaway.decode.sampling import Sampling
from cutaway.decode.score import score_targets
from cutaway.decode.translate import Translator
from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer

MIXED = [
    "我爱机器学习。",
    "",
    "你",
    "Who are you?",
    "  \t ",
    "这本书是我的，不是你的！今天天气很好，我们去公园散步吧。",
    "a",
    "Long time no see. 😀",
]


@pytest.fixture(scope="module")
def translator(opened) -> Translator:
    return Translator(opened("marian", max_len=96))


@pytest.mark.parametrize("beam", [1, 3])
def test_results_do_not_depend_on_company_order_or_batch_size(translator: Translator, beam: int):
    whole = translator.translate(MIXED, beam=beam, n_best=beam, max_new_tokens=12)
    assert [t.source for t in whole] == MIXED
    for size in (1, 2, 5):
        again = translator.translate(MIXED, beam=beam, n_best=beam, max_new_tokens=12, batch_size=size)
        assert [[h.ids for h in t.hypotheses] for t in again] == [
            [h.ids for h in t.hypotheses] for t in whole
        ]
    backwards = translator.translate(MIXED[::-1], beam=beam, n_best=beam, max_new_tokens=12)
    assert [t.text for t in backwards[::-1]] == [t.text for t in whole]


def test_blank_texts_stay_blank(translator: Translator):
    for text in ("", " ", "\t", "\u3000", "\n"):
        (translation,) = translator.translate([text], attention="full", alternatives=2)
        assert (translation.text, translation.target_pieces, translation.source_ids) == ("", [], [])
        assert translation.notes == ()
    assert translator.translate([]) == []


def test_the_result_tells_all_about_each_hypothesis(translator: Translator, tokenizer: Tokenizer):
    penalty = LengthPenalty(1.0, "power")
    (translation,) = translator.translate(
        ["我爱机器学习。"], beam=4, n_best=3, length_penalty=penalty, alternatives=2, attention="full"
    )
    assert translation.to == "en"
    assert translation.source_ids == [
        tokenizer.id(">>eng<<"),
        *tokenizer.encode("我爱机器学习。").ids,
        tokenizer.role("eos"),
    ]
    assert translation.source_pieces[0] == ">>eng<<"
    assert translation.source_pieces[-1] == "</s>"
    assert translation.notes == ()
    assert len(translation.hypotheses) == 3
    forced = score_targets(
        translator.model, [translation.source_ids] * 3, [h.ids for h in translation.hypotheses]
    )
    for hypothesis, log_probs in zip(translation.hypotheses, forced, strict=True):
        n_target, n_source = len(hypothesis.ids), len(translation.source_ids)
        assert hypothesis.log_probs == pytest.approx(log_probs, abs=1e-4)
        assert hypothesis.score == pytest.approx(sum(log_probs) / n_target, abs=1e-4)
        assert hypothesis.text == tokenizer.decode(hypothesis.ids)
        assert hypothesis.pieces == [tokenizer.readable(id) for id in hypothesis.ids]
        assert [len(step) for step in hypothesis.alternatives] == [2] * n_target
        assert hypothesis.cross_attention is not None
        assert hypothesis.alignment is not None
        assert hypothesis.cross_attention.shape == (2, 4, n_target, n_source)
        assert hypothesis.alignment.shape == (n_target, n_source)
        assert torch.allclose(hypothesis.alignment.sum(dim=1), torch.ones(n_target), atol=1e-5)
    assert translation.text == translation.hypotheses[0].text
    assert translation.alignment is translation.hypotheses[0].alignment


def test_alignments_are_cut_to_each_texts_own_source(translator: Translator):
    for beam in (1, 2):
        for translation in translator.translate(
            ["你", "今天天气很好，我们去公园散步吧。"], beam=beam, attention="mean"
        ):
            assert translation.alignment is not None
            assert translation.best.cross_attention is None
            assert translation.alignment.shape == (
                len(translation.target_pieces),
                len(translation.source_pieces),
            )
            assert torch.allclose(translation.alignment.sum(dim=1), torch.tensor(1.0), atol=1e-5)


def test_greedy_scores_are_normalised_as_beam_scores(translator: Translator):
    penalty = LengthPenalty(0.6)
    (translation,) = translator.translate(["你是谁？"], beam=1, length_penalty=penalty)
    assert translation.score == pytest.approx(
        sum(translation.log_probs) / penalty.divisor(len(translation.log_probs)), abs=1e-5
    )


def test_control_tokens_are_never_written(translator: Translator, tokenizer: Tokenizer):
    results = translator.translate(MIXED, beam=1, sampling=Sampling(temperature=5.0), max_new_tokens=60)
    ids = {id for translation in results for id in translation.best.ids}
    assert len(ids) > 100
    assert ids & set(tokenizer.controls) <= {tokenizer.role("eos")}


def test_control_tokens_of_a_users_text_stay_text(translator: Translator, tokenizer: Tokenizer):
    source = translator.prepare("</s> >>zho<< <pad> 你好")
    inner = source.ids[1:-1]
    assert not set(inner) & set(tokenizer.controls)


def test_sampling_is_seeded_by_place_in_the_request(translator: Translator):
    sampling = Sampling(temperature=1.0, seed=11)
    texts = ["你是谁？"] * 3
    whole = [t.text for t in translator.translate(texts, beam=1, sampling=sampling)]
    assert len(set(whole)) == 3
    assert [t.text for t in translator.translate(texts, beam=1, sampling=sampling, batch_size=1)] == whole
    assert translator.translate(texts[:1], beam=1, sampling=sampling)[0].text == whole[0]


@pytest.mark.parametrize(
    ("text", "to"),
    [("你好", "en"), ("hello", "zh"), ("OK，好的", "en"), ("123", "zh"), ("𠮷", "en"), ("こんにちは", "zh")],
)
def test_the_direction_follows_the_script(translator: Translator, text: str, to: str):
    assert target_of(text) == to
    assert translator.prepare(text).to == to


def test_traditional_characters_are_converted_and_noted(translator: Translator):
    assert simplified("頭髮發展，乾隆著作。") == "头发发展，乾隆著作。"
    converted = translator.prepare("這本書是我的。")
    assert converted.text == "這本書是我的。"
    assert converted.ids == translator.prepare("这本书是我的。").ids
    assert any("traditional" in note.en and "繁体" in note.zh for note in converted.notes)
    for text in ("这本书是我的。", "著名的乾隆皇帝", "Who?"):
        assert not any("traditional" in note.en for note in translator.prepare(text).notes)


def test_translating_into_the_texts_own_language_is_noted(translator: Translator):
    [note] = translator.prepare("你好", to="zh").notes
    assert "as asked" in note.en and "按要求" in note.zh


def test_a_text_beyond_the_limit_is_refused_or_cut_with_a_note(translator: Translator, tokenizer: Tokenizer):
    long = "我" * 300
    n = len(tokenizer.encode(long).ids)
    assert n > 94
    with pytest.raises(CutawayError, match=rf"text 2 has {n} tokens.*at most 94.*96 positions"):
        translator.translate(["你", long])
    short, cut = translator.translate(["你", long], beam=1, truncate=True, max_new_tokens=3)
    assert (short.notes, short.cut, cut.cut) == ((), False, True)
    assert cut.source_ids[-1] == tokenizer.role("eos")
    kept = len(cut.source_ids) - 2
    assert 92 <= kept <= 94
    [note] = cut.notes
    assert note.en == f"only the first {kept} of the text's {n} tokens were translated"
    assert note.zh == f"这段文字有 {n} 个词块，只翻译了前 {kept} 个"
    exact = tokenizer.decode(cut.source_ids[1:-1])
    assert set(exact) == {"我"}  # no character was cut in two
    assert translator.translate([exact], beam=1, max_new_tokens=3)[0].notes == ()


@pytest.mark.parametrize("beam", [1, 4])
def test_lengths_are_limited_by_request_source_and_model(opened, beam: int):
    translator = Translator(opened("t5", max_len=40))
    texts = ["你", "我爱机器学习。"]
    for most, least in ((1, 0), (6, 6), (9, 3)):
        for translation in translator.translate(texts, beam=beam, max_new_tokens=most, min_new_tokens=least):
            length = len(translation.best.ids)
            assert least <= length - (translation.finish == "stop")
            assert length <= most
    for translation in translator.translate(texts, beam=beam, max_new_tokens=999, min_new_tokens=39):
        assert len(translation.best.ids) == 39


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=2)])
def test_the_stream_joins_to_the_whole_and_cuts_no_character(translator: Translator, sampling: Sampling):
    for text in MIXED[:5]:
        options = {"sampling": sampling, "alternatives": 2, "attention": "mean", "max_new_tokens": 30}
        (whole,) = translator.translate([text], beam=1, **options)
        tokens = list(translator.stream(text, **options))
        assert "".join(token.text for token in tokens) == whole.text
        assert [token.id for token in tokens] == whole.best.ids
        assert [token.piece for token in tokens] == whole.target_pieces
        assert [token.finish for token in tokens][:-1] == [None] * (len(tokens) - 1)
        if "\ufffd" not in whole.text:
            assert not any("\ufffd" in token.text for token in tokens)
        if tokens:
            assert tokens[-1].finish == whole.finish
            assert whole.alignment is not None
            assert tokens[0].attention is not None
            assert torch.allclose(tokens[0].attention, whole.alignment[0], atol=1e-5)
            assert [a.id for a in tokens[0].alternatives] == [a.id for a in whole.alternatives[0]]


def test_a_model_of_one_direction_needs_no_language_token(opened, tokenizer: Tokenizer):
    loaded = opened("marian")
    plain = Tokenizer.train(["你好 hello"] * 4, kind="characters", vocab_size=None)
    model = opened("marian", pad_id=plain.role("pad"), eos_id=plain.role("eos"))
    translator = Translator(type(loaded)(model.model, model.config, plain, {}, model.path))
    assert translator.languages == []
    source = translator.prepare("你好")
    assert source.to is None
    assert source.ids == [*plain.encode("你好").ids, plain.role("eos")]
    with pytest.raises(CutawayError, match=r"no language token.*one way only"):
        translator.translate(["你好"], to="en")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": "fr"}, "to is 'fr', expected one of en, zh"),
        ({"to": "eng"}, "did you mean 'en'"),
        ({"beam": 0}, "beam is 0"),
        ({"beam": 33}, "beam is 33, expected 1 to 32"),
        ({"beam": 2, "n_best": 3}, "n_best is 3"),
        ({"beam": 1, "n_best": 2}, "n_best is 2"),
        ({"beam": 2, "sampling": Sampling(temperature=1.0)}, "sampling needs beam 1"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"max_new_tokens": 2, "min_new_tokens": 3}, "min_new_tokens is 3"),
        ({"alternatives": 21}, "alternatives is 21"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_values_out_of_range_are_refused_by_name(translator: Translator, arguments: dict, message: str):
    with pytest.raises(CutawayError, match=message):
        translator.translate(["你好"], **arguments)


def test_checkpoints_that_cannot_translate_are_refused(opened, tokenizer: Tokenizer):
    with pytest.raises(
        CutawayError, match=r"decoder-only family, expected encoder-decoder.*cutaway generate"
    ):
        Translator(opened("llama"))
    with pytest.raises(CutawayError, match="lacks decoder_start_token_id"):
        Translator(opened("marian", decoder_start_id=None))
    with pytest.raises(CutawayError, match="lacks eos_token_id"):
        Translator(opened("marian", eos_id=None))
    with pytest.raises(CutawayError, match="eos_token_id is 'x'"):
        Translator(opened("marian", generation={"eos_token_id": "x"}))
    bare = opened("marian")
    with pytest.raises(CutawayError, match="has no tokenizer"):
        Translator(type(bare)(bare.model, bare.config, None, {}, bare.path))
    larger = Tokenizer.train(["你好 hello"] * 4, kind="bpe", vocab_size=tokenizer.vocab_size + 50)
    if larger.vocab_size > tokenizer.vocab_size:
        with pytest.raises(CutawayError, match="do not belong together"):
            Translator(type(bare)(bare.model, bare.config, larger, {}, bare.path))
