"""What a page is told before it asks: models, words, colours, tokens."""

import json
from typing import Any

import pytest
from tests.serve.conftest import Serving

from cutaway.checkpoint.folder import load
from cutaway.glossary import GLOSSARY
from cutaway.inspection import run
from cutaway.inspection.changes.lists import OPS, read_changes
from cutaway.inspection.changes.presets import presets
from cutaway.inspection.question import GROUPS, RUN_OPTIONS, all_questions
from cutaway.page.colours import NEGATIVE, POSITIVE, WEIGHT, opaque
from cutaway.tap import TAPS
from cutaway.zoo import examples, find


@pytest.fixture(scope="module")
def vocabulary(serving: Serving) -> Any:
    return json.loads(serving.get("/api/v1/vocabulary").body)


def test_everything_that_can_be_asked_is_there(vocabulary: Any):
    """Nothing is written down a second time: what is declared is told."""
    assert [each["name"] for each in vocabulary["questions"]] == [each.name for each in all_questions()]
    assert [each["name"] for each in vocabulary["groups"]] == [*GROUPS]
    assert {each["op"] for each in vocabulary["changes"]} == set(OPS)
    assert [each["term"]["en"] for each in vocabulary["glossary"]] == [*GLOSSARY]
    assert [each["name"] for each in vocabulary["taps"]] == [*TAPS]
    assert [each["name"] for each in vocabulary["run_options"]] == [each.name for each in RUN_OPTIONS]
    for told, question in zip(vocabulary["questions"], all_questions(), strict=True):
        assert [each["name"] for each in told["options"]] == [each.name for each in question.parameters]
        assert [each["required"] for each in told["options"]] == [
            each.required for each in question.parameters
        ]
        assert told["subject"] == question.subject
        assert told["about"] == {"en": question.about.said("en"), "zh": question.about.said("zh")}


def test_options_say_what_they_take(vocabulary: Any):
    options = {
        (question["name"], each["name"]): each
        for question in vocabulary["questions"]
        for each in question["options"]
    }
    kinds = {
        "boolean", "integer", "number", "string", "choice", "token", "tokens", "text", "changes", "list",
    }  # fmt: skip
    assert {each["kind"] for each in options.values()} == kinds
    assert options["lens", "top"] | {"about": None} == {
        "name": "top", "about": None, "kind": "integer", "default": 5, "required": False, "at_least": 1,
        "positional": False,
    }  # fmt: skip
    assert options["attention", "stage"]["choices"] == ["scores", "scaled", "masked", "pattern"]
    assert (options["drift", "other"]["kind"], options["diff", "changes"]["kind"]) == ("text", "changes")
    assert (options["projection", "tokens"]["kind"], options["analogy", "a"]["positional"]) == (
        "tokens",
        True,
    )


def test_every_example_of_a_change_is_one(vocabulary: Any):
    for each in vocabulary["changes"]:
        read_changes([each["example"]])
        assert {"op"} <= each["example"].keys() <= {"op", *(field["name"] for field in each["fields"])}
        assert each["name"] == {
            "en": OPS[each["op"]].title.said("en"),
            "zh": OPS[each["op"]].title.said("zh"),
        }


def test_fields_of_changes_that_take_all_say_so(vocabulary: Any):
    takes = {
        (each["op"], field["name"])
        for each in vocabulary["changes"]
        for field in each["fields"]
        if field["all"]
    }
    assert {("head", "layer"), ("head", "head"), ("neuron", "token"), ("attn", "q")} <= takes
    assert not takes & {("resid", "layer"), ("attn", "k"), ("hide", "token")}


def test_models(serving: Serving):
    found = json.loads(serving.get("/api/v1/models").body)
    assert found["version"]
    models = {each["id"]: each for each in found["models"]}
    for path in map(find, ("translate-zh-en", "poet-zh", "bert-tiny")):
        told, loaded = models[path.name], load(path)
        assert told["state"] == "ready"
        config = loaded.config
        for name in (
            "family",
            "n_layers",
            "n_heads",
            "d_model",
            "d_ff",
            "vocab_size",
            "max_len",
            "n_experts",
            "head",
        ):
            assert told[name] == getattr(config, name)
        assert told["parameters"] == sum(each.numel() for each in loaded.model.parameters())
        assert [each["name"] for each in told["presets"]] == [each.name for each in presets(config)]
    translator, headless = models["translate-zh-en"], models["headless0"]
    assert (translator["sides"], translator["languages"]) == (["encoder", "decoder"], ["en", "zh"])
    assert "align" in translator["questions"]
    assert "align" not in models["poet-zh"]["questions"]
    assert "lens" not in headless["questions"]
    assert models["poet-zh"]["languages"] == []
    assert models["bert-tiny"]["examples"] == examples("bert-tiny")
    assert models["bert-tiny"]["examples"]
    assert headless["examples"] == []


def test_colours_are_those_of_pages(serving: Serving):
    found = serving.get("/api/v1/palette.css")
    assert found.headers["content-type"].startswith("text/css")
    css = found.body.decode()
    for name, colour in (("weight", WEIGHT), ("above", POSITIVE), ("below", NEGATIVE)):
        assert f"--{name}: {opaque(colour)};" in css
    assert css.count("color-scheme: dark;") == 2


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("translate-zh-en", "我的猫在桌子下面睡觉。"),
        ("translate-zh-en", "  A cat, 𠮷 and 👩‍👩‍👧.  "),
        ("translate-zh-en", "Ｈｅｌｌｏ　１２３"),
        ("poet-zh", "床前明月光"),
        ("bert-tiny", "The [MASK] sat on the <mask>."),
        ("headless0", "one two"),
    ],
)
def test_tokens_are_those_that_are_read(serving: Serving, model: str, text: str):
    loaded = load(serving.engine.models[model].given if model == "headless0" else find(model))
    asked = run(loaded, text)
    read = asked.source or asked.target
    assert read is not None
    found = json.loads(serving.post("tokenize", {"model": model, "text": text}).body)
    tokens = found["tokens"]
    expected = read.ids
    # a decoder-only model writes on
    assert [each["id"] for each in tokens][: len(expected)] == expected[: len(tokens)]
    assert [each["piece"] for each in tokens][: len(expected)] == read.pieces[: len(tokens)]
    assert found["max_len"] == loaded.config.max_len
    last = 0
    for each in tokens:
        if each["start"] is None:
            assert each["end"] is None
            assert each["group"] is None
            continue
        assert last <= each["start"] < each["end"] <= len(text) or each["start"] < last
        last = each["end"]
    covered = {
        place for each in tokens if each["start"] is not None for place in range(each["start"], each["end"])
    }
    assert {text[place] for place in set(range(len(text))) - covered} <= {" ", "　"}


def test_tokens_of_one_character_are_one_group(serving: Serving):
    tokens = json.loads(serving.post("tokenize", {"model": "translate-zh-en", "text": "𠮷了"}).body)["tokens"]
    groups = [each["group"] for each in tokens if each["start"] == 0]
    assert len(groups) > 1
    assert len(set(groups)) == 1


def test_the_language_decides_the_mark(serving: Serving):
    def first(to: str | None) -> str:
        body = {"model": "translate-zh-en", "text": "你好", "to": to}
        return json.loads(serving.post("tokenize", body).body)["tokens"][0]["piece"]

    assert (first(None), first("en"), first("zh")) == (">>eng<<", ">>eng<<", ">>zho<<")
    refused = serving.post("tokenize", {"model": "translate-zh-en", "text": "a", "to": "xx"})
    assert (refused.status, refused.kind) == (400, "bad_request")
