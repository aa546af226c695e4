"""Languages by their marks: whatever a vocabulary has can be asked for, where and how each kind of model wants it."""

from typing import Any

import pytest
import torch
import transformers
from babel.core import get_global
from tests.decode.test_translator import open_with, tokenizer_with

from cutaway.checkpoint.folder import save
from cutaway.decode.language_codes import tag
from cutaway.decode.search import LengthPenalty, Limits, Search
from cutaway.decode.translator import Translator
from cutaway.errors import CutawayError

ROMANCE = (">>cmn_Hant<<", ">>fra<<", ">>pt_BR<<", ">>spa<<")
MBART = ("en_XX", "fr_XX", "ro_RO", "zh_CN")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("fra", "fra"), ("fr", "fra"), ("fre", "fra"), ("FR", "fra"), (">>fra<<", "fra"), ("spa", "spa"),
        ("cmn_Hant", "cmn_Hant"), ("zh-Hant", "cmn_Hant"), ("zh", "cmn_Hant"), ("pt", "pt_BR"), ("pt-br", "pt_BR"),
        ("por", "pt_BR"),
    ],
)  # fmt: skip
def test_any_language_of_the_vocabulary_can_be_named_in_any_spelling(
    opened: Any, asked: str, found: str
) -> None:
    translator = Translator(open_with(opened, tokenizer_with(*ROMANCE)))
    source = translator.prepare("Hello", to=asked)
    assert source.to == found
    assert source.pieces[0] == f">>{found}<<"


@pytest.mark.parametrize("asked", ["de", "zh_CN", "pt_PT", "", "fra_Latn", ">>deu<<"])
def test_a_language_that_is_not_there_is_refused_with_those_that_are(opened: Any, asked: str) -> None:
    translator = Translator(open_with(opened, tokenizer_with(*ROMANCE)))
    with pytest.raises(CutawayError, match=r"to is .*expected one of cmn_Hant, fra, pt_BR, spa"):
        translator.prepare("Hello", to=asked)


def test_a_model_of_other_languages_is_never_steered_to_ours(opened: Any) -> None:
    translator = Translator(open_with(opened, tokenizer_with(">>fra<<", ">>spa<<")))
    with pytest.raises(CutawayError, match=r"does not translate into 'zh'; name the language .* fra, spa"):
        translator.prepare("Hello")
    assert Translator(open_with(opened, tokenizer_with(">>fra<<"))).prepare("Hello").to == "fra"


def test_a_mark_in_the_text_stays_text_and_is_noted(opened: Any) -> None:
    translator = Translator(open_with(opened, tokenizer_with(*ROMANCE)))
    source = translator.prepare(">>fra<< Hello", to="spa")
    assert source.pieces.count(">>fra<<") == 0
    assert "read as letters" in str(source.notes[0])


def test_the_codes_of_three_letters_are_those_of_cldr() -> None:
    for code, language in get_global("language_aliases").items():
        if len(code) == 3 and len(language) == 2:
            assert tag(code) == (language, ())


@pytest.mark.parametrize("start", ["</s>", "ro_RO"])
def test_mbart_25_reads_the_language_after_the_end_and_begins_with_it_once(
    opened: Any, tmp_path: Any, start: str
) -> None:
    tokenizer = tokenizer_with(*MBART, template="$A </s> en_XX")
    loaded = open_with(opened, tokenizer, decoder_start_id=tokenizer.id(start))
    translator = Translator(loaded)
    source = translator.prepare("Who are you?", to="ro")
    assert source.to == "ro_RO"
    assert source.pieces[-2:] == ["</s>", "en_XX"]
    begins = [tokenizer.id("ro_RO")] if start == "ro_RO" else [tokenizer.id("</s>"), tokenizer.id("ro_RO")]
    assert translator.start(source) == begins
    # what an en→ro model writes when it is not asked: never Chinese, though the vocabulary has its mark
    usual = translator.prepare("Who are you?")
    assert usual.to == ("ro_RO" if start == "ro_RO" else "zh")
    assert translator.prepare("你是谁？", to="fr").pieces[-1] == "zh_CN"
    save(tmp_path, loaded.model)
    theirs: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    found = translator.translate(
        ["Who are you?"],
        to="ro",
        search=Search(length_penalty=LengthPenalty(1.0, "power")),
        limits=Limits(8),
    )
    expected = theirs.generate(
        torch.tensor([source.ids]), decoder_start_token_id=begins[0], max_new_tokens=7 + len(begins), do_sample=False,
        forced_bos_token_id=begins[1] if len(begins) > 1 else None, forced_eos_token_id=None, num_beams=1,
        bad_words_ids=[[id] for id in tokenizer.controls if id not in (tokenizer.id("</s>"), *begins)],
    )[0].tolist()  # fmt: skip
    assert found[0].best.ids == expected[len(begins) : len(begins) + len(found[0].best.ids)]


def test_mbart_50_reads_the_language_first_and_forces_it(opened: Any) -> None:
    tokenizer = tokenizer_with(*MBART, template="en_XX $A </s>")
    end = tokenizer.id("</s>")
    translator = Translator(open_with(opened, tokenizer, decoder_start_id=end))
    source = translator.prepare("Who are you?", to="fr")
    assert (source.pieces[0], source.pieces[-1]) == ("en_XX", "</s>")
    assert translator.start(source) == [end, tokenizer.id("fr_XX")]
    # many languages into one: the first word that the model's files force is what it writes
    forced = {"forced_bos_token_id": tokenizer.id("ro_RO")}
    many_to_one = Translator(open_with(opened, tokenizer, forced, decoder_start_id=end))
    assert many_to_one.prepare("Who are you?").to == "ro_RO"
    assert many_to_one.prepare("你是谁？").pieces[0] == "zh_CN"
