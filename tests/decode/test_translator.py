"""Texts to texts: order, blanks, directions, scripts, limits; on tiny random models with a real tokenizer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from tests.decode.conftest import TEXTS, tiny_model

from cutaway.checkpoint.folder import Loaded, save
from cutaway.decode.route import target_of
from cutaway.decode.sampling import Sampling
from cutaway.decode.score import score_targets
from cutaway.decode.search import LengthPenalty, Limits, Search
from cutaway.decode.translator import Translator, simplified
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
    options = {"search": Search(beam=beam, n_best=beam), "limits": Limits(12)}
    whole = translator.translate(MIXED, **options)
    assert [t.source.text for t in whole] == MIXED
    for size in (1, 2, 5):
        again = translator.translate(MIXED, **options, batch_size=size)
        assert [[h.ids for h in t.hypotheses] for t in again] == [
            [h.ids for h in t.hypotheses] for t in whole
        ]
    backwards = translator.translate(MIXED[::-1], **options)
    assert [t.best.text for t in backwards[::-1]] == [t.best.text for t in whole]


def test_blank_texts_stay_blank(translator: Translator):
    for text in ("", " ", "\t", "\u3000", "\n"):
        (found,) = translator.translate([text], search=Search(attention="full", alternatives=2))
        assert (found.best.text, found.best.pieces, found.source.ids) == ("", [], [])
        assert found.source.notes == ()
    assert translator.translate([]) == []


def test_the_result_tells_all_about_each_hypothesis(translator: Translator, tokenizer: Tokenizer):
    search = Search(
        beam=4, n_best=3, length_penalty=LengthPenalty(1.0, "power"), alternatives=2, attention="full"
    )
    (translation,) = translator.translate(["我爱机器学习。"], search=search)
    source = translation.source
    assert source.to == "en"
    assert source.ids == [
        tokenizer.id(">>eng<<"),
        *tokenizer.encode("我爱机器学习。").ids,
        tokenizer.role("eos"),
    ]
    assert source.pieces[0] == ">>eng<<"
    assert source.pieces[-1] == "</s>"
    assert source.notes == ()
    assert len(translation.hypotheses) == 3
    forced = score_targets(translator.model, [source.ids] * 3, [h.ids for h in translation.hypotheses])
    for hypothesis, log_probs in zip(translation.hypotheses, forced, strict=True):
        n_target, n_source = len(hypothesis.ids), len(source.ids)
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
    assert translation.best is translation.hypotheses[0]


def test_alignments_are_cut_to_each_texts_own_source(translator: Translator):
    for beam in (1, 2):
        search = Search(beam=beam, attention="mean")
        for found in translator.translate(["你", "今天天气很好，我们去公园散步吧。"], search=search):
            alignment = found.best.alignment
            assert alignment is not None
            assert found.best.cross_attention is None
            assert alignment.shape == (len(found.best.pieces), len(found.source.pieces))
            assert torch.allclose(alignment.sum(dim=1), torch.tensor(1.0), atol=1e-5)


def test_greedy_scores_are_normalised_as_beam_scores(translator: Translator):
    penalty = LengthPenalty(0.6)
    (found,) = translator.translate(["你是谁？"], search=Search(length_penalty=penalty))
    total, length = sum(found.best.log_probs), len(found.best.ids)
    assert found.best.score == pytest.approx(total / penalty.divisor(length), abs=1e-5)


def test_control_tokens_are_never_written(translator: Translator, tokenizer: Tokenizer):
    results = translator.translate(
        MIXED, search=Search(sampling=Sampling(temperature=5.0)), limits=Limits(60)
    )
    ids = {id for translation in results for id in translation.best.ids}
    assert len(ids) > 100
    assert ids & set(tokenizer.controls) <= {tokenizer.role("eos")}


def test_control_tokens_of_a_users_text_stay_text(translator: Translator, tokenizer: Tokenizer):
    source = translator.prepare("</s> >>zho<< <pad> 你好")
    inner = source.ids[1:-1]
    assert not set(inner) & set(tokenizer.controls)


def test_sampling_is_seeded_by_place_in_the_request(translator: Translator):
    search = Search(sampling=Sampling(temperature=1.0, seed=11))
    texts = ["你是谁？"] * 3
    whole = [t.best.text for t in translator.translate(texts, search=search)]
    assert len(set(whole)) == 3
    assert [t.best.text for t in translator.translate(texts, search=search, batch_size=1)] == whole
    assert translator.translate(texts[:1], search=search)[0].best.text == whole[0]


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
    assert ["traditional" in str(note) and "繁体" in note.said("zh") for note in converted.notes] == [True]
    for text in ("这本书是我的。", "著名的乾隆皇帝", "Who?"):
        assert not any("traditional" in str(note) for note in translator.prepare(text).notes)


def test_translating_into_the_texts_own_language_is_noted(translator: Translator):
    [note] = translator.prepare("你好", to="zh").notes
    assert "as asked" in str(note) and "按要求" in note.said("zh")


def test_a_text_beyond_the_limit_is_refused_or_cut_with_a_note(translator: Translator, tokenizer: Tokenizer):
    long = "我" * 300
    n = len(tokenizer.encode(long).ids)
    assert n > 94
    with pytest.raises(CutawayError, match=rf"text 2 has {n} tokens.*at most 94.*96 positions"):
        translator.translate(["你", long])
    few = {"search": Search(), "limits": Limits(3)}
    short, cut = (found.source for found in translator.translate(["你", long], truncate=True, **few))
    assert (short.notes, short.cut, cut.cut) == ((), False, True)
    assert cut.ids[-1] == tokenizer.role("eos")
    kept = len(cut.ids) - 2
    assert 92 <= kept <= 94
    [note] = cut.notes
    assert str(note) == f"only the first {kept} of the text's {n} tokens were translated"
    assert f"前 {kept} 个" in note.said("zh")
    exact = tokenizer.decode(cut.ids[1:-1])
    # no character was cut in two
    assert set(exact) == {"我"}
    assert translator.translate([exact], **few)[0].source.notes == ()


@pytest.mark.parametrize("beam", [1, 4])
def test_lengths_are_limited_by_request_source_and_model(opened, beam: int):
    translator = Translator(opened("t5", max_len=40))
    texts = ["你", "我爱机器学习。"]
    for most, least in ((1, 0), (6, 6), (9, 3)):
        for found in translator.translate(texts, search=Search(beam=beam), limits=Limits(most, least)):
            length = len(found.best.ids)
            assert least <= length - (found.best.finish == "stop")
            assert length <= most
    for found in translator.translate(texts, search=Search(beam=beam), limits=Limits(999, 39)):
        assert len(found.best.ids) == 39


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=2)])
def test_the_stream_joins_to_the_whole_and_cuts_no_character(translator: Translator, sampling: Sampling):
    for text in MIXED[:5]:
        search = Search(sampling=sampling, alternatives=2, attention="mean")
        whole = translator.translate([text], search=search, limits=Limits(30))[0].best
        tokens = list(translator.stream(text, search=search, limits=Limits(30)))
        assert "".join(token.text for token in tokens) == whole.text
        assert [token.id for token in tokens] == whole.ids
        assert [token.piece for token in tokens] == whole.pieces
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


def test_a_stream_cannot_search(translator: Translator):
    with pytest.raises(CutawayError, match="beam is 2, expected 1"):
        translator.stream("你好", search=Search(beam=2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": "fr"}, "to is 'fr', expected one of en, zh"),
        ({"to": "en_GB"}, "to is 'en_GB' .did you mean 'en'"),
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


# How other people's models are told a language: before the source, before source and target, or not at all.

ROLES = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>", "bos": "<s>"}


def tokenizer_with(*controls: str, template: str | None = None) -> Tokenizer:
    return Tokenizer.train(
        TEXTS * 3, "bpe", 360, alphabet=60, roles=ROLES, controls=controls, template=template
    )


def open_with(
    opened: Any, tokenizer: Tokenizer, generation: Mapping[str, object] | None = None, **changes: object
) -> Loaded:
    loaded = opened("marian")
    ids: dict[str, object] = {"eos_id": tokenizer.role("eos"), "pad_id": 0}
    model = tiny_model("marian", tokenizer.vocab_size, **{**ids, **changes})
    return replace(loaded, model=model, config=model.config, tokenizer=tokenizer, generation=generation or {})


def test_opus_mt_wants_the_target_language_before_the_source(opened: Any) -> None:
    tokenizer = tokenizer_with(">>cmn_Hans<<", ">>cmn_Hant<<")
    translator = Translator(open_with(opened, tokenizer))
    assert translator.languages == ["zh", "cmn_Hant"]
    source = translator.prepare("Who are you?")
    assert source.to == "zh"
    assert source.pieces[0] == ">>cmn_Hans<<"
    assert source.pieces[-1] == "</s>"
    with pytest.raises(CutawayError, match="to is 'en', expected one of zh, cmn_Hant"):
        translator.prepare("你是谁？", to="en")
    # Only our own models were trained on simplified characters alone.
    assert translator.prepare("你是誰？", to="zh").text == "你是誰？"
    assert not any("traditional" in str(note) for note in translator.prepare("你是誰？", to="zh").notes)


def test_m2m100_wants_the_sources_language_first_and_the_targets_as_first_word(
    opened: Any, tmp_path: Any
) -> None:
    tokenizer = tokenizer_with("__en__", "__zh__")
    loaded = open_with(opened, tokenizer)
    translator = Translator(loaded)
    assert translator.languages == ["en", "zh"]
    source = translator.prepare("Who are you?")
    assert source.pieces[0] == "__en__"
    save(tmp_path, loaded.model)
    theirs: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    for beam in (1, 3):
        search = Search(beam=beam, length_penalty=LengthPenalty(1.0, "power"))
        found = translator.translate(["Who are you?"], search=search, limits=Limits(8))[0]
        expected = theirs.generate(
            torch.tensor([source.ids]), forced_bos_token_id=tokenizer.id("__zh__"), num_beams=beam,
            max_new_tokens=9, do_sample=False, early_stopping="never", forced_eos_token_id=None,
            bad_words_ids=[[id] for id in tokenizer.controls if tokenizer.piece(id) not in ("</s>", "__zh__")],
        )[0].tolist()  # fmt: skip
        assert expected[:2] == [loaded.config.decoder_start_id, tokenizer.id("__zh__")]
        assert found.best.ids == expected[2 : 2 + len(found.best.ids)]


def test_a_forced_first_word_and_what_a_tokenizer_puts_around_a_text(opened: Any) -> None:
    tokenizer = tokenizer_with(template="<s> $A </s>")
    loaded = open_with(opened, tokenizer, {"forced_bos_token_id": 7})
    translator = Translator(loaded)
    assert translator.languages == []
    assert translator.prepare("Who are you?").pieces[0] == "<s>"
    assert translator.prepare("Who are you?").pieces[-1] == "</s>"
    forced, free = (
        each.translate(["Who are you?"], search=Search(), limits=Limits(6))[0].best
        for each in (translator, Translator(replace(loaded, generation={})))
    )
    assert forced.log_probs != free.log_probs
    with pytest.raises(CutawayError, match="forced_bos_token_id is 'x', expected an id of the model"):
        Translator(replace(loaded, generation={"forced_bos_token_id": "x"}))
