"""How other people's models are told a language: before the source, before source and target, or not at all."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from tests.decode.conftest import TEXTS, tiny_model

from cutaway.checkpoint.folder import Loaded, save
from cutaway.decode.length_penalty import LengthPenalty
from cutaway.decode.translate import Translator
from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer

ROLES = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>", "bos": "<s>"}


def tokenizer_with(*controls: str, template: str | None = None) -> Tokenizer:
    return Tokenizer.train(
        TEXTS * 3, "bpe", 360, alphabet=60, roles=ROLES, controls=controls, template=template
    )


def open_with(opened: Any, tokenizer: Tokenizer, generation: dict[str, object] | None = None) -> Loaded:
    loaded = opened("marian")
    model = tiny_model("marian", tokenizer.vocab_size, eos_id=tokenizer.role("eos"), pad_id=0)
    return replace(loaded, model=model, config=model.config, tokenizer=tokenizer, generation=generation or {})


def test_opus_mt_wants_the_target_language_before_the_source(opened: Any) -> None:
    tokenizer = tokenizer_with(">>cmn_Hans<<", ">>cmn_Hant<<")
    translator = Translator(open_with(opened, tokenizer))
    assert translator.languages == ["zh"]
    source = translator.prepare("Who are you?")
    assert source.to == "zh"
    assert source.pieces[0] == ">>cmn_Hans<<"
    assert source.pieces[-1] == "</s>"
    with pytest.raises(CutawayError, match="does not translate into 'en', only into zh"):
        translator.prepare("你是谁？", to="en")
    # Only our own models were trained on simplified characters alone.
    assert translator.prepare("你是誰？", to="zh").text == "你是誰？"
    assert not any("traditional" in note.en for note in translator.prepare("你是誰？", to="zh").notes)


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
        found = translator.translate(
            ["Who are you?"], beam=beam, max_new_tokens=8, length_penalty=LengthPenalty(1.0, "power")
        )[0]
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
    forced = translator.translate(["Who are you?"], beam=1, max_new_tokens=6)[0]
    free = Translator(replace(loaded, generation={})).translate(["Who are you?"], beam=1, max_new_tokens=6)[0]
    assert forced.log_probs != free.log_probs
    with pytest.raises(CutawayError, match="forced_bos_token_id is 'x', expected an id of the model"):
        Translator(replace(loaded, generation={"forced_bos_token_id": "x"}))
