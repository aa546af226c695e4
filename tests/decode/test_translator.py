"""Texts to texts: order, blanks, directions, scripts, limits; on tiny random models with a real tokenizer."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from tests.decode.conftest import TEXTS, tiny_model

from cutaway.checkpoint.folder import Loaded, load, save
from cutaway.decode.route import simplified, target_of
from cutaway.decode.sampling import Sampling
from cutaway.decode.score import score_targets
from cutaway.decode.search import LengthPenalty, Limits, Search
from cutaway.decode.translation import Translation
from cutaway.decode.translator import Translator, lost
from cutaway.errors import CutawayError, TooLong
from cutaway.nn.head import Head
from cutaway.text.folding import is_blank
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.zoo import find

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
    assert offsets_are_right(cut.offsets, long)
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
        [[whole]] = translator.write([translator.prepare(text)], search=search, limits=Limits(30))
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


def offsets_are_right(offsets: list[tuple[int, int]], text: str) -> bool:
    return (
        offsets == sorted(offsets)
        and all(0 <= start <= end <= len(text) for start, end in offsets)
        and all(after[0] >= before[0] for before, after in itertools.pairwise(offsets))
    )


# What people type: edges, several sentences, what cannot be translated.


@pytest.mark.parametrize(
    "unseen", ["\u3000", "\u00a0", "  ", "\t", "\u200b", "\ufeff", "\n", "\u2028 \u3000"]
)
def test_what_cannot_be_seen_around_a_text_changes_nothing(opened: Any, unseen: str) -> None:
    for translator in (
        Translator(opened("marian", max_len=96)),
        Translator(open_with(opened, tokenizer_with())),
    ):
        for text in ("车站在哪里？", "Who are you?", "好"):
            plain = translator.prepare(text)
            for typed in (unseen + text, text + unseen, unseen + text + unseen):
                source = translator.prepare(typed)
                assert (source.ids, source.text) == (plain.ids, typed)
                at = typed.index(text)
                assert source.offsets == [(start + at, end + at) for start, end in plain.offsets]
        assert translator.prepare(unseen).ids == []
        [blank] = translator.translate([unseen])
        assert (blank.best.text, blank.sentences, blank.notes) == ("", [], ())


PARAGRAPH = " \u3000我爱机器学习。今天天气很好！\n\n  - Who are you? 123 再见。"


def test_a_text_is_translated_sentence_by_sentence(translator: Translator) -> None:
    search = Search(beam=3, n_best=2, alternatives=2, attention="full")
    options = {"search": search, "limits": Limits(9)}
    [whole] = translator.translate([PARAGRAPH], **options)
    parts = [PARAGRAPH[each.start : each.end] for each in whole.sentences]
    assert parts == ["我爱机器学习。", "今天天气很好！", "Who are you?", "123 再见。"]
    alone = translator.translate(parts[:2] + parts[3:], **options, split=False)
    done = [whole.sentences[0], whole.sentences[1], whole.sentences[3]]
    for sentence, expected in zip(done, alone, strict=True):
        assert [each.ids for each in sentence.hypotheses] == [each.ids for each in expected.hypotheses]
        assert sentence.source.ids == expected.source.ids
    # English in a text that goes into English
    assert (whole.sentences[2].best.text, whole.sentences[2].source.ids) == ("Who are you?", [])
    for rank in range(2):
        first, second, third, fourth = (
            each.hypotheses[:2][-1 if rank else 0].text for each in whole.sentences
        )
        text = whole.hypotheses[rank].text
        assert text.split("\n\n  - ") in ([first + gap + second, third + more + fourth]
                                          for gap in ("", " ") for more in ("", " "))  # fmt: skip


def test_the_whole_of_several_sentences_is_theirs_one_after_another(translator: Translator) -> None:
    search = Search(beam=2, n_best=2, alternatives=2, attention="full")
    [found] = translator.translate([PARAGRAPH], search=search, limits=Limits(9))
    source = found.source
    assert len(source.ids) == len(source.pieces) == len(source.offsets)
    assert source.text == PARAGRAPH and offsets_are_right(source.offsets, PARAGRAPH)
    spelled = "".join(PARAGRAPH[start:end] for start, end in dict.fromkeys(source.offsets))
    assert spelled.replace(" ", "") == "我爱机器学习。今天天气很好！123再见。"
    for hypothesis in found.hypotheses:
        n_target, n_source = len(hypothesis.ids), len(source.ids)
        assert hypothesis.alignment is not None and hypothesis.cross_attention is not None
        assert hypothesis.alignment.shape == (n_target, n_source)
        assert hypothesis.cross_attention.shape[-2:] == (n_target, n_source)
        assert torch.allclose(hypothesis.alignment.sum(dim=1), torch.ones(n_target), atol=1e-5)
        row = column = 0
        for sentence in found.sentences:
            rows, columns = len(sentence.hypotheses[0].ids), len(sentence.source.ids)
            if hypothesis is found.best and columns:
                own = sentence.best.alignment
                assert own is not None
                assert torch.equal(hypothesis.alignment[row : row + rows, column : column + columns], own)
            row, column = row + rows, column + columns
    assert found.best.score == pytest.approx(sum(each.best.score for each in found.sentences))
    assert found.best.ids == [id for each in found.sentences for id in each.best.ids]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_text_in_which_something_is_seen_never_gives_nothing(translator: Translator, beam: int) -> None:
    texts = [
        "hi",
        "🙂",
        "㈱",
        "Ⅻ",
        "...",
        "3. ",
        "-",
        "$999",
        "好",
        "https://a.b/c?d=e",
        "\x1b[",
        "ﷺ",
        "a\u0301",
        "12:30",
    ]
    for found in translator.translate(texts, search=Search(beam=beam)):
        assert found.best.text.strip(), found.source.text
        assert found.best.ids or found.notes


def test_what_has_no_words_or_is_in_the_wanted_language_is_left_as_it_is_with_a_note(
    translator: Translator,
) -> None:
    for text, to in (
        ("🙂", None), ("12:30", None), ("https://example.com/a?b=c", None), ("Who are you?", "en"), ("你是谁？", "zh")
    ):  # fmt: skip
        [found] = translator.translate([text], to=to)
        assert (found.best.text, found.best.ids) == (text, [])
        [note] = found.notes
        assert "left as it is" in str(note) and note.said("zh") != str(note)
        # which can be looked into all the same
        assert translator.prepare(text, to=to).ids
    assert translator.translate(["iPhone坏了"], to="zh")[0].best.ids


def test_an_empty_hypothesis_comes_after_those_that_say_something(opened: Any) -> None:
    loaded = opened("marian", max_len=96)
    translator = Translator(loaded)
    assert isinstance(loaded.model.head, Head)
    with torch.no_grad():
        loaded.model.head.unembed.bias[translator.end_ids[0]] = 50.0
    for beam in (1, 2, 4):
        [found] = translator.translate(["你是谁？"], search=Search(beam=beam, n_best=beam))
        assert all(len(each.ids) == 2 for each in found.hypotheses)
        blank = [is_blank(each.text) for each in found.hypotheses]
        assert blank == sorted(blank) and not blank[0]


def test_a_translation_that_was_cut_says_so(translator: Translator) -> None:
    [found] = translator.translate(["今天天气很好，我们去公园散步吧。"], limits=Limits(2), search=Search())
    assert found.best.finish == "length"
    assert [str(note) for note in found.notes] == ["the translation was cut at the limit of 2 tokens"]
    [several] = translator.translate(["我爱你。好的。"], limits=Limits(1), search=Search())
    assert [str(note)[:11] for note in several.notes] == ["sentence 1:", "sentence 2:"]


def test_a_model_that_says_how_sure_it_must_be_notes_what_it_is_unsure_of(opened: Any) -> None:
    def notes(below: object) -> tuple[list[str], Translation]:
        translator = Translator(opened("marian", max_len=96, generation={"unsure_below": below}))
        [found] = translator.translate(["你是谁？"], search=Search(), limits=Limits(90))
        return [str(note) for note in found.notes if "unsure" in str(note)], found

    for below in (-1e9, None):
        assert notes(below)[0] == []
    found = notes(0)[1]
    if found.best.finish == "stop":
        assert notes(0)[0] == ["the model is unsure of this translation"]
    with pytest.raises(CutawayError, match="unsure_below is 1, expected a log-probability, 0 or less"):
        notes(1)


def test_the_bundled_translator_says_what_it_is_unsure_of_and_never_gives_nothing() -> None:
    translator = Translator(load(find("translate-zh-en")))
    nonsense = "Quizzical vexed jumbucks flummox brazen wyverns athwart gelid fjords."
    plain, unsure, several = translator.translate(["我爱你。", nonsense, f"I love you. {nonsense}"])
    assert plain.notes == ()
    assert [str(note) for note in unsure.notes] == ["the model is unsure of this translation"]
    assert [str(note) for note in several.notes] == ["sentence 2: the model is unsure of this translation"]
    greedy = translator.translate(["hi", "ok", "\u00a0车站在哪里？", "车站在哪里？"], search=Search())
    assert all(found.best.text for found in greedy)
    assert greedy[2].best.ids == greedy[3].best.ids


def test_what_a_translation_lost_is_named() -> None:
    for source, translation, missing in (
        ("iPhone 15 costs $999.", "iPhone 15卖$99。", ["999"]),
        ("在2024年有10,000人。", "In 2024 there were 10000 people.", []),
        ("15 and 15", "15", ["15"]),
        ("2019,2020年10,20日", "On the 10th and 20th, 2019 and 2020", []),
        ("1,234,567 and 1,2345", "1234567 and 1 2345", []),
        ("May 4, at 3 p.m.", "五月四日下午三点", []),
        ("电话010-12345678。", "The phone 12345678.", ["010"]),
        ("请看 https://a.org/b?c=12，谢谢。", "See http://a.org, thanks.", ["https://a.org/b?c=12"]),
        ("Mail a.b@c.org.", "发邮件到 a.b@c.org。", []),
    ):
        assert lost(source, translation) == missing, source


def test_texts_that_are_too_long_can_be_heard_of_one_by_one(translator: Translator) -> None:
    texts = ["你好。", "我" * 300, "好。" * 99, "好。" + "我" * 200]
    heard: dict[int, TooLong] = {}
    found = translator.translate(texts, search=Search(), limits=Limits(2), on_too_long=heard.__setitem__)
    assert list(heard) == [1, 3]
    assert "text 2 has" in str(heard[1]) and "sentence 2 of text 4 has" in str(heard[3])
    assert [bool(each.best.text) for each in found] == [True, False, True, False]
    assert len(found[2].sentences) == 99
    with pytest.raises(TooLong, match="the line has"):
        translator.translate(["我" * 300], names=["the line"])


def test_a_character_of_more_pieces_than_there_is_room_for_is_cut(translator: Translator) -> None:
    text = "e" + "\u0329" * 500
    [found] = translator.translate([text], truncate=True, search=Search(), limits=Limits(2))
    assert 94 <= len(found.source.ids) <= 96 and found.source.cut and found.best.ids


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
