"""Answers of a running server are those of the library, page and result, alone and among others."""

import base64
import html
import json
import re
import shutil
import threading
import urllib.parse
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from tests.serve.conftest import Serving, started

from cutaway.inspection.answers import Answer, Session, plain
from cutaway.inspection.options import Repeated
from cutaway.inspection.question import all_questions, find_question
from cutaway.page.blocks import Edit
from cutaway.page.html import fragment
from cutaway.serve.engine import Engine
from cutaway.serve.refusal import Refusal
from cutaway.serve.wire import Packer
from cutaway.words import LOCALES, Locale

TEXTS = {"translate-zh-en": "好久不见。", "poet-zh": "床前明月", "bert-tiny": "The [MASK] is here."}
OTHERS = {"translate-zh-en": "好久没见。", "poet-zh": "床前明日", "bert-tiny": "The [MASK] was here."}
WORDS = {
    "translate-zh-en": ["▁I", "▁you", "▁see"],
    "poet-zh": ["月", "明", "山"],
    "bert-tiny": ["king", "man", "woman"],
}
SHARED = {"translate-zh-en": "好久", "poet-zh": "明", "bert-tiny": "here"}
SIDES = {"translate-zh-en": "cross", "poet-zh": "decoder", "bert-tiny": "encoder"}
# What others would take long without.
QUICK = {"rank": {"ranks": [2]}, "gradients": {"most_points": 12, "tolerance": 1.0}}
ONE_HEAD = ("rank", "svd")


@cache
def session(model: str) -> Session:
    return Session(model)


def needed(name: str, model: str) -> dict[str, Any]:
    """Values for the options that a question cannot do without, by what they are."""
    found: dict[str, Any] = {}
    tokens = iter(WORDS[model])
    for each in find_question(name).parameters:
        if not each.required:
            continue
        if isinstance(each.option, Repeated):
            found[each.name] = [{"op": "head", "side": SIDES[model], "layer": 0, "head": 0}]
        elif each.is_text or each.name == "other":
            found[each.name] = OTHERS[model]
        elif each.names_tokens:
            found[each.name] = WORDS[model] if each.name == "tokens" else next(tokens)
        else:
            found[each.name] = SHARED[model] if each.name == "word" else TEXTS[model]
    head = {"side": SIDES[model], "layer": 0, "head": 0} if name in ONE_HEAD else {}
    return {**found, **head, **QUICK.get(name, {})}


def asked() -> Iterator[tuple[str, str]]:
    for model in TEXTS:
        config = session(model).config
        for each in all_questions():
            if all(need.has(config) for need in each.needs):
                yield model, each.name


STRUCTURE = frozenset(("kind", "f16", "f32", "scale", "align", "of"))  # what no reader is told


def words(value: object, locale: Locale, without: Set[str] = STRUCTURE) -> Iterator[str]:
    """Every text in what was sent of a page, in one language, but for what has one of these names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        if value.keys() == set(LOCALES):
            yield value[locale]
            return
        for name, each in value.items():
            if name not in without:
                yield from words(each, locale, without)
    elif isinstance(value, list):
        # a part of an edited text: what happened to it, which is drawn, and its words
        edited = len(value) == 3 and value[0] in get_args(Edit)
        for each in value[1:] if edited else value:
            yield from words(each, locale, without)


def told(page: Any, locale: Locale) -> set[str]:
    """Whole texts of the blocks that HTML writes as texts, figures apart."""
    blocks = [
        each for each in page["blocks"]
        if each["kind"] in ("Heading", "Remark", "Line", "Prose", "Table", "Code") and not each.get("drawn")
    ]  # fmt: skip
    # hints and tints stand in HTML under other names
    without = STRUCTURE | {"hint", "tint"}
    found = words([page["title"], blocks, page["caption"], page["terms"]], locale, without)
    return {" ".join(each.split()) for each in found}


def shown(answer: Answer, locale: Locale) -> str:
    """The words of the page as HTML, without marks."""
    return spaced(html.unescape(re.sub(r"<[^>]*>", " ", fragment(answer.page(), locale))))


def spaced(text: str) -> str:
    return re.sub(r"\s+", "", text.replace("\u00a0", " "))


@pytest.fixture
def given_by_library(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """The answers that the library gives to the server, from now on."""
    found: list[Answer] = []
    ask = Session.ask

    def heard(self: Session, *given: Any, **named: Any) -> Answer:
        found.append(ask(self, *given, **named))
        return found[-1]

    monkeypatch.setattr(Session, "ask", heard)
    return found


@pytest.mark.parametrize(("model", "question"), list(asked()))
def test_every_question_of_every_bundled_model(
    serving: Serving, given_by_library: list[Answer], model: str, question: str
):
    given, subject = needed(question, model), find_question(question).subject
    text = TEXTS[model] if subject == "text" else None
    reply = serving.ask(question, model, text, options=given, want=["page", "result"])
    assert reply.status == 200, reply.body
    answer = reply.last["answer"]
    [expected] = given_by_library
    assert (expected.question.name, expected.text, expected.options) == (question, text, given)
    assert answer["command"] == expected.command()
    assert answer["python"] == expected.python()
    assert answer["output"] == expected.output
    assert [each["kind"] for each in answer["page"]["blocks"]] == [
        type(each).__name__ for each in expected.page().blocks
    ]
    for locale in LOCALES:
        page = shown(expected, locale)
        missing = [each for each in told(answer["page"], locale) if spaced(each) not in page]
        assert not missing, missing
    same(answer["result"], plain(expected.result))


def same(found: Any, expected: Any, where: str = "result") -> None:
    """A result that was sent, held against the library's plain values."""
    if isinstance(found, dict) and found.keys() in ({"shape", "f16"}, {"shape", "f32"}):
        kind = "f16" if "f16" in found else "f32"
        values = np.frombuffer(base64.b64decode(found[kind]), "<f2" if kind == "f16" else "<f4")
        right = np.array(expected, dtype=np.float64).ravel()
        assert list(np.shape(expected)) == found["shape"], where
        finite = np.isfinite(right)
        bits = 2.0**-11 if kind == "f16" else 2.0**-24
        error = np.abs(values[finite] - right[finite])
        assert (error <= bits * np.abs(right[finite]) + 2.0**-25).all(), where
        assert not np.isfinite(values[~finite]).any(), where
    elif isinstance(found, dict):
        assert found.keys() == expected.keys(), where
        for key in found:
            same(found[key], expected[key], f"{where}.{key}")
    elif isinstance(found, list):
        assert len(found) == len(expected), where
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            same(one, other, f"{where}[{place}]")
    elif isinstance(found, float):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6), where
    else:
        assert found == expected, where


def test_a_box_says_that_it_is_one_and_of_what(serving: Serving):
    page = serving.ask("anatomy", "bert-tiny").last["answer"]["page"]
    [diagram] = [each for each in page["blocks"] if each["kind"] == "Diagram"]
    [tower] = diagram["towers"]
    boxes = [*tower["above"], *tower["repeated"], *tower["below"]]
    assert {each["kind"] for each in boxes} == {"Box"}
    assert {each["of"] for each in boxes} >= {"attention", "feed-forward", "embedding"}


def test_alone_and_among_sixteen(serving: Serving):
    """S30: the same question has the same answer, whatever else is asked meanwhile."""

    def ask(text: str) -> dict[str, Any]:
        found = serving.ask("attention", "translator0", text, want=["page", "result"]).last["answer"]
        return {name: value for name, value in found.items() if name != "ms"}

    texts = [f"我爱你{'。' * n}" for n in range(1, 17)]
    found: dict[str, Any] = {}

    def put(text: str) -> None:
        found[text] = ask(text)

    threads = [threading.Thread(target=put, args=(text,)) for text in texts]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    kept = found[texts[0]]
    assert ask(texts[0]) == kept
    # and by itself, not from what is kept
    alone = session(serving.engine.models["translator0"].given).ask(find_question("attention"), texts[0], {})
    same(kept["result"], plain(alone.result))
    assert len(found) == 16


def test_a_second_time_it_is_not_computed_again(serving: Serving):
    first = serving.ask("lens", "bert-tiny", "The [MASK] barks.").last["answer"]
    assert serving.ask("lens", "bert-tiny", "The [MASK] barks.").last["answer"] == first


def test_only_what_is_wanted_is_sent(serving: Serving):
    answer = serving.ask("lens", "bert-tiny", "The [MASK] barks.", want=["result"]).last["answer"]
    assert "page" not in answer
    assert "result" in answer


def test_options_travel_as_they_were_given(serving: Serving):
    answer = serving.ask("lens", "bert-tiny", "The [MASK] barks.", options={"top": 2}).last["answer"]
    assert answer["options"] == {"top": 2}
    assert "--top 2" in answer["command"]


def test_hidden_cells_stay_hidden(serving: Serving):
    """-inf, what a mask hides, arrives as such."""
    page = serving.ask(
        "attention", "poet-zh", TEXTS["poet-zh"], options={"stage": "masked", "layer": 0, "head": 0}
    ).last["answer"]["page"]
    [matrix] = [each["values"] for each in page["blocks"] if each["kind"] == "Matrix"][:1]
    values = np.frombuffer(base64.b64decode(matrix["f16"]), "<f2").reshape(matrix["shape"])
    assert np.isneginf(values[np.triu_indices_from(values, 1)]).all()
    assert np.isfinite(values[np.tril_indices_from(values)]).all()


@pytest.mark.parametrize("ending", ["svg", "html", "json", "safetensors", "npz", "csv"])
def test_files(serving: Serving, ending: str):
    asked = {"model": "bert-tiny", "text": "The [MASK] barks.", "question": "attention", "format": ending}
    reply = serving.post("export", {**asked, "locale": "zh"})
    assert reply.status == 200
    named = reply.headers["content-disposition"]
    assert named == f"attachment; filename*=UTF-8''cutaway_bert-tiny_attention.{ending}"
    begins = {"svg": b"<svg", "html": b"<!doctype html>", "json": b"{", "npz": b"PK", "csv": b"array,"}
    assert reply.body.startswith(begins.get(ending, b""))
    if ending in ("svg", "html"):
        assert re.search("[一-鿿]", reply.body.decode())
    if ending == "json":
        assert json.loads(reply.body)["question"] == "attention"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array([0.1, 70.0]), "f16"),
        (np.array([0.1, 70_000.0]), "f32"),
        (np.array([2048]), "f16"),
        (np.array([4569]), "f32"),
        # an id that is held as a float
        (np.array([4569.0, 3.0]), "f32"),
        (np.array([4569.5]), "f16"),
        (np.array([-np.inf, 0.0]), "f16"),
    ],
)
def test_whole_numbers_travel_exactly(values: np.ndarray, kind: str):
    packed = Packer().array(values)
    assert packed.keys() == {"shape", kind}
    if np.array_equal(values, np.trunc(values)):
        sent = np.frombuffer(base64.b64decode(str(packed[kind])), {"f16": "<f2", "f32": "<f4"}[kind])
        assert np.array_equal(sent, values)


def test_what_is_held_in_float64_travels_with_every_digit():
    tensor = torch.tensor([1 / 3], dtype=torch.float64)
    assert Packer().tensor(tensor).keys() == {"shape", "f32"}
    assert Packer().tensor(tensor.float()).keys() == {"shape", "f16"}


def test_what_travels_in_four_bytes_counts_as_four(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cutaway.serve.wire.LARGEST", 400)
    Packer().tensor(torch.full((100,), 1 / 3))
    with pytest.raises(Refusal):
        Packer().tensor(torch.full((100,), 1 / 3, dtype=torch.float64))


def test_a_file_of_a_model_of_any_name(masked: Path, tmp_path: Path):
    """A header holds Latin letters, and no quotation mark."""
    folder = tmp_path / '模"型'
    shutil.copytree(masked, folder)
    serving = started(Engine([str(folder)]))
    asked = {"model": folder.name, "text": "我爱你", "question": "attention", "format": "json"}
    reply = serving.post("export", asked)
    assert reply.status == 200
    named = reply.headers["content-disposition"].partition("UTF-8''")[2]
    assert urllib.parse.unquote(named) == f"cutaway_{folder.name}_attention.json"
    serving.server.should_exit = True


def test_a_file_without_a_figure_is_refused(serving: Serving):
    asked = {"model": "bert-tiny", "question": "explain", "text": "The [MASK] barks.", "format": "svg"}
    reply = serving.post("export", asked)
    assert (reply.status, reply.kind) == (400, "bad_request")
