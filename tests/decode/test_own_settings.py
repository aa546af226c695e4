"""What a model's own files ask of decoding: followed as transformers follows it, unless something else is asked for."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from cutaway.checkpoint import generation_keys
from cutaway.checkpoint.folder import Loaded, load, save
from cutaway.decode.complete import continue_text, prepare_prompt, start_ids, stream_text
from cutaway.decode.own_settings import OwnSettings, own_settings, settings_of
from cutaway.decode.sampling import Sampling
from cutaway.decode.search import GREEDY, LengthPenalty, Limits, Rules, Search
from cutaway.decode.text_model import unwanted_ids
from cutaway.decode.translator import BEAM, Translator
from cutaway.errors import CutawayError
from cutaway.inspection.runs import run
from cutaway.text.tokens.tokenizer import Tokenizer

TEXTS = ["我爱", "Who", "这本书"]
# One or more values for each key that changes what a search finds; all of them also together.
VALUES: dict[str, list[object]] = {
    "num_beams": [1, 2, 4],
    "length_penalty": [0.0, 0.6, 1.0, 2.0],
    "repetition_penalty": [0.9, 1.3],
    "no_repeat_ngram_size": [1, 2, 3],
    "suppress_tokens": [[9, 40, 41]],
    "begin_suppress_tokens": [[50, 60, 300]],
    "bad_words_ids": [[[30], [5, 7]]],
    "forced_eos_token_id": [2],
    "max_length": [20, 34],
    "max_new_tokens": [3, 9],
    "min_length": [9, 18],
    "min_new_tokens": [2, 5],
}


def written(loaded: Loaded, folder: Path, settings: dict[str, object], in_config: bool) -> None:
    """A model's folder that asks for these settings, in generation_config.json or as older ones do in config.json."""
    save(folder, loaded.model, loaded.tokenizer, {} if in_config else settings)
    if in_config:
        file = folder / "config.json"
        values = {
            **json.loads(file.read_text()),
            **json.loads((folder / "generation_config.json").read_text()),
        }
        file.write_text(json.dumps({**values, **settings}))
        (folder / "generation_config.json").unlink()


def drawn_settings(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    chosen = draw.sample(list(VALUES), draw.randint(1, 6))
    found: dict[str, Any] = {key: draw.choice(VALUES[key]) for key in chosen}
    if not {"max_length", "max_new_tokens"} & found.keys():
        # transformers would stop at 20
        found["max_length"] = 30
    if (most := found.get("max_new_tokens")) is not None:
        found["min_new_tokens"] = min(found.get("min_new_tokens", 0), most)
    return {**found, "early_stopping": "never"}


@pytest.mark.parametrize("kind", ["llama", "marian"])
@pytest.mark.parametrize(
    "seed", [pytest.param(each, marks=pytest.mark.slow if each >= 6 else ()) for each in range(12)]
)
def test_what_is_written_is_what_transformers_writes(
    opened, tokenizer: Tokenizer, tmp_path: Path, kind: str, seed: int
):
    settings = drawn_settings(seed)
    assert tokenizer.role("eos") == 2
    written(opened(kind), tmp_path, settings, in_config=seed % 3 == 2)
    opens = {"llama": transformers.AutoModelForCausalLM, "marian": transformers.AutoModelForSeq2SeqLM}
    theirs: Any = opens[kind].from_pretrained(tmp_path)
    ours = load(tmp_path)
    assert not own_settings(ours).notes
    for text in TEXTS:
        if kind == "llama":
            (found,) = continue_text(ours, [text])
            read, result, begun = found.prompt.ids, found.best, len(found.prompt.ids)
        else:
            # what is in the wanted language is left as it is
            to = "zh" if text.isascii() else "en"
            (translation,) = Translator(ours).translate([text], to=to)
            read, result, begun = translation.source.ids, translation.best, 1
            assert run(ours, text, to=to).outcome.ids == result.ids, "what is looked into"
        if kind == "marian" and "num_beams" not in settings:
            # of what the file leaves open ours is a beam of 4, theirs greedy
            continue
        with torch.no_grad():
            expected = theirs.generate(
                torch.tensor([read]),
                attention_mask=torch.ones(1, len(read)).long(),
                # controls are never written here
                suppress_tokens=[*settings.get("suppress_tokens", []), *unwanted_ids(ours, tokenizer)],
            )
        assert result.ids == expected[0, begun:].tolist()[: len(result.ids)], settings
        assert set(expected[0, begun + len(result.ids) :].tolist()) <= {ours.config.pad_id}


def test_generation_config_comes_before_config(opened, tmp_path: Path):
    written(opened("llama"), tmp_path, {"max_new_tokens": 5}, in_config=False)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "max_new_tokens": 9, "min_new_tokens": 5}))
    own = own_settings(load(tmp_path))
    assert own.stated == {"max_new_tokens": 5, "min_new_tokens": 5}
    assert own.limits() == Limits(5, 5)


def test_control_tokens_come_from_generation_config_first(opened: Callable[..., Loaded]):
    loaded = opened(
        "marian", {"decoder_start_token_id": 9, "forced_bos_token_id": 11, "eos_token_id": [7, 8]}
    )
    translator = Translator(loaded)
    assert translator.end_ids == [7, 8]
    assert translator.start(translator.prepare("我", to="zh"))[0] == 9
    assert start_ids(opened("gpt2", {"bos_token_id": 5}), empty=True) == [5]
    with pytest.raises(CutawayError, match="tiny-marian: decoder_start_token_id is 'x', expected an id"):
        Translator(opened("marian", {"decoder_start_token_id": "x"}))


@pytest.mark.parametrize(
    ("generation", "usual", "given", "expected"),
    [
        ({}, GREEDY, {}, Search()),
        ({}, BEAM, {"beam": None}, BEAM),
        # a file that asks for beams and says no more means transformers' length penalty
        ({"num_beams": 5}, BEAM, {}, Search(beam=5, length_penalty=LengthPenalty(1.0, "power"))),
        ({"num_beams": 1}, BEAM, {}, Search()),
        (
            {"num_beams": 5, "length_penalty": 0.8},
            BEAM,
            {"beam": 2},
            Search(beam=2, length_penalty=LengthPenalty(0.8, "power")),
        ),
        ({"num_beams": 5}, BEAM, {"length_penalty": LengthPenalty()}, Search(beam=5)),
        # drawing likewise; without it, what shapes it changes nothing
        (
            {"do_sample": True, "temperature": 0.6},
            GREEDY,
            {},
            Search(sampling=Sampling(temperature=0.6, top_k=50)),
        ),
        (
            {"do_sample": True, "top_k": 0, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2},
            BEAM,
            {"seed": 3},
            Search(sampling=Sampling(1.2, 1.0, 0, 0.9, 0.1, 3)),
        ),
        ({"temperature": 0.6, "top_k": 7}, GREEDY, {}, Search()),
        ({"do_sample": False}, Search(sampling=Sampling(temperature=0.8)), {}, Search()),
        # what is given decides between drawing and beams
        (
            {"num_beams": 5},
            GREEDY,
            {"temperature": 0.7},
            Search(sampling=Sampling(temperature=0.7), length_penalty=LengthPenalty()),
        ),
        ({"do_sample": True, "top_k": 9}, GREEDY, {"beam": 3}, Search(beam=3, sampling=Sampling(top_k=9))),
        ({"num_beams": 4}, Search(sampling=Sampling(temperature=0.8)), {"beam": 1, "temperature": 0.0},
         Search(length_penalty=LengthPenalty(1.0, "power"))),
    ],
)  # fmt: skip
def test_what_is_asked_for_comes_first_then_the_models_own(generation, usual, given, expected: Search):
    found = settings_of(generation, 100).search(usual, **given)
    assert found.rules == Rules()
    if given.get("beam") == 3:
        assert found.beam == 3
        assert found.sampling.greedy
    else:
        assert (found.beam, found.sampling) == (expected.beam, expected.sampling)
    if found.beam > 1:
        assert found.length_penalty == expected.length_penalty


@pytest.mark.parametrize(
    ("generation", "given", "expected"),
    [
        ({"max_length": 30, "min_length": 5}, (), Limits(None, 0, 30, 5)),
        ({"max_length": 30, "min_length": 5}, (8,), Limits(8, 0, None, 5)),
        ({"max_length": 30, "max_new_tokens": 9}, (), Limits(9)),
        ({"min_new_tokens": 9}, (4,), Limits(4, 4)),
        ({"min_new_tokens": 9, "min_length": 30}, (), Limits(None, 9)),
        ({"min_length": 30}, (None, 0), Limits()),
        ({"min_new_tokens": 9}, (4, 2), Limits(4, 2)),
        ({"max_new_tokens": 9}, (None, 3), Limits(9, 3)),
        ({}, (), Limits()),
    ],
)
def test_limits_that_are_asked_for_come_first(generation, given, expected: Limits):
    assert settings_of(generation, 100).limits(*given) == expected


def test_rules_are_the_models_even_where_a_search_is_given(opened: Callable[..., Loaded]):
    text = TEXTS[0]
    first = continue_text(opened("llama"), [text], search=Search(), limits=Limits(4))[0].best.ids
    loaded = opened("llama", {"suppress_tokens": first[:1]})
    for search in (None, Search(), Search(beam=3)):
        found = continue_text(loaded, [text], search=search, limits=Limits(4))[0].best.ids
        assert first[0] not in found
    assert first[0] not in [token.id for token in stream_text(loaded, text, limits=Limits(4))]
    # an explicit one is followed
    free = Search(rules=Rules())
    assert continue_text(loaded, [text], search=free, limits=Limits(4))[0].best.ids == first


def test_what_is_not_supported_is_noted_by_its_key_and_what_changes_nothing_is_not():
    quiet = {
        "early_stopping": False, "num_beam_groups": 1, "diversity_penalty": 0.0, "typical_p": 0.5,
        "renormalize_logits": False, "use_cache": True, "transformers_version": "5.0", "num_return_sequences": 3,
        "temperature": 0.6, "encoder_repetition_penalty": 1.0, "sequence_bias": None, "_from_model_config": True,
    }  # fmt: skip
    assert settings_of(quiet, 100) == OwnSettings({}, {}, 100)
    loud = {
        "early_stopping": True, "num_beam_groups": 2, "do_sample": True, "typical_p": 0.5, "stop_strings": ["."],
        "num_beams": 3, "top_p": 7.0, "suppress_tokens": "x", "max_length": True, "bad_words_ids": [[]],
    }  # fmt: skip
    own = settings_of(loud, 100)
    assert own.stated == {"do_sample": True}
    assert sorted(own.unsupported) == sorted(loud.keys() - {"do_sample"})
    assert "this model's files ask for early_stopping True, which is not supported and left out" in [
        str(note) for note in own.notes
    ]


def test_ids_that_the_model_does_not_have_change_nothing():
    generation = {
        "suppress_tokens": [5, 100], "begin_suppress_tokens": [100], "bad_words_ids": [[5, 100], [6, 7]],
        "forced_eos_token_id": [3, 100],
    }  # fmt: skip
    assert settings_of(generation, 100).rules == Rules(0, (5,), (), ((6, 7),), (3,))


def test_a_limit_of_the_files_that_the_prompt_fills_is_said(opened: Callable[..., Loaded]):
    loaded = opened("llama", {"max_length": 4})
    with pytest.raises(CutawayError, match=r"the prompt has \d+ tokens.*limit it to 4.*give max_new_tokens"):
        prepare_prompt(loaded, TEXTS[2])
    assert len(continue_text(loaded, [TEXTS[2]], limits=Limits(3, 3))[0].best.ids) == 3


def test_no_key_has_two_meanings():
    groups = (generation_keys.KEYS, generation_keys.NEUTRAL, generation_keys.NEUTRAL_DRAWN)
    assert sum(map(len, groups)) == len({key for group in groups for key in group})
    known = vars(transformers.GenerationConfig())
    # those of earlier versions stand in files, too
    older = {"constraints", "force_words_ids", "forced_decoder_ids", "num_beam_groups", "diversity_penalty"}
    older |= {"penalty_alpha", "dola_layers"}
    assert {key for group in groups for key in group} <= {*known, *older}
