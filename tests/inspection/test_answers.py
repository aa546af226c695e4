"""A question asked as commands and servers ask: what asks it again gives the same; a page says where it is from."""

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import command

from cutaway import CutawayError, Tokenizer, load
from cutaway.inspection.answers import Session, plain
from cutaway.inspection.question import Suggesting, find_question, names
from cutaway.inspection.runs import run
from cutaway.page.blocks import Code
from cutaway.tap import Trace
from cutaway.words import say

# Every question with what its own test asks.
CASES = [
    (name, *case)
    for name in names()
    for case in import_module(f"tests.inspection.questions.test_{name}").ASKED
]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train(command.LINES, "characters", None, min_count=1, template="<s> $A")
    return command.saved(
        tmp_path_factory.mktemp("mixture"),
        tokenizer,
        {"family": "decoder-only", "norm": "rmsnorm", "position": "rotary", "activation": "silu", "gated": True,
         "attn_bias": False, "mlp_bias": False, "eos_id": tokenizer.require("eos"), "max_len": 32, "n_experts": 4},
    )  # fmt: skip


@pytest.fixture
def folder(
    translator: Path, poet: Path, masked: Path, headless: Path, mixture: Path
) -> Callable[[str], Path]:
    named = {
        "translator": translator,
        "poet": poet,
        "masked": masked,
        "headless": headless,
        "mixture": mixture,
    }
    return lambda name: named[name]


@pytest.mark.parametrize(("name", "model", "text", "options"), CASES, ids=lambda value: str(value)[:24])
def test_the_command_and_the_python_of_a_page_give_the_same(
    cutaway: command.Run,
    folder: Callable[[str], Path],
    name: str,
    model: str,
    text: str | None,
    options: dict[str, Any],
) -> None:
    answer = Session(str(folder(model))).ask(find_question(name), text, options)
    expected = answer.json()
    # plain values that JSON can hold
    assert json.loads(json.dumps(expected, allow_nan=False)) == expected
    assert expected["options"] == options
    space: dict[str, Any] = {}
    exec(answer.python(), space)
    close(plain(space["result"]), expected["result"])
    first, second, *words = shlex.split(answer.command())
    assert (first, second) == ("cutaway", "inspect")
    words.insert(words.index("-m"), "--json")
    found = cutaway("inspect", *words)
    assert (found.code, found.err) == (0, ""), found
    again = json.loads(found.out)
    assert (again["question"], again["text"]) == (name, text)
    close(again["result"], expected["result"])


def close(found: Any, expected: Any) -> None:
    """Equal but for the last digits of numbers, which a busy machine's threads may round otherwise."""
    if isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            close(found[key], expected[key])
    else:
        assert found == expected


def test_a_page_says_what_was_asked_of_which_model(poet: Path, translator: Path, headless: Path) -> None:
    answer = Session(str(poet)).ask(find_question("lens"), "今天天气", {"at": 2})
    caption = answer.page().caption
    assert caption is not None
    assert (caption.model, caption.text, caption.output) == (str(poet), "今天天气", None)
    assert (caption.command, caption.python) == (answer.command(), answer.python())
    assert caption.date is not None and datetime.fromisoformat(caption.date)
    translated = Session(str(translator)).ask(find_question("word"), "好久不见。", {"target": "time"})
    assert translated.output == "time"
    of_model = Session(str(headless)).ask(find_question("similarity"), None, {"text": "今天", "other": "好"})
    shown = of_model.page().caption
    assert shown is not None and shown.text == "今天"
    assert Session("poet-zh").model == "poet-zh"
    assert set(answer.about()) == {"question", "model", "text", "command", "cutaway"}


def test_an_overview_says_what_to_ask_next_and_it_can_be_asked(
    cutaway: command.Run, translator: Path, poet: Path, masked: Path, headless: Path
) -> None:
    for model in (translator, poet, masked, headless):
        answer = Session(str(model)).ask(find_question("overview"), "It's 今天。", {})
        assert isinstance(answer.result, Suggesting)
        copied = [block.lines for block in answer.page().blocks if isinstance(block, Code)]
        assert len(copied) == 1 + len(list(answer.result.suggestions())) >= 4
        assert copied[-1] == "cutaway inspect --help"
        for lines in copied[:-1]:
            words = shlex.split(lines.replace("\\\n", " "))
            if words[2] in names():
                found = cutaway(*words[1:])
                assert (found.code, found.err) == (0, ""), words


def test_a_text_of_several_sentences_is_looked_into_in_one_piece_and_that_is_said(
    cutaway: command.Run, translator: Path, poet: Path
) -> None:
    text = "好久不见。今天天气很好。"
    for question in ("overview", "align"):
        asked = (question, text, "-m", translator, "--json")
        several, one = cutaway("inspect", *asked), cutaway("inspect", question, text[:5], *asked[2:])
        assert several.err.startswith("note: the text is looked into in one piece") and one.err == ""
        assert len(json.loads(several.out)["notes"]) == 1
    assert cutaway("inspect", text, "-m", poet).err == ""
    assert run(load(translator), text).source == run(load(translator), f"\u3000{text} ").source
    # what a translator would leave as it is can be looked into
    assert run(load(translator), "123").outcome.ids


def test_options_of_the_run_stay_in_what_is_asked_next(translator: Path) -> None:
    given = {"target": "It's", "to": "en"}
    answer = Session(str(translator)).ask(find_question("overview"), "它's", given)
    for block in answer.page().blocks:
        if isinstance(block, Code) and "--help" not in block.lines:
            words = shlex.split(block.lines.replace("\\\n", " "))
            assert "它's" in words and words[-4:] == ["--target", "It's", "--to", "en"]


def test_a_text_may_be_given_apart_to_a_question_that_makes_its_own_run(translator: Path) -> None:
    session = Session(str(translator))
    for name in ("cover", "align"):
        question = find_question(name)
        apart = session.ask(question, "好久不见。", {"beam": 2})
        assert apart.json() == session.ask(question, None, {"text": "好久不见。", "beam": 2}).json()
        caption = apart.page().caption
        assert caption is not None and caption.text == "好久不见。"


def test_what_was_written_of_a_text_is_written_once(translator: Path) -> None:
    session, tap = Session(str(translator)), "decoder.layers.0.resid_post"

    def asked(text: str, **options: object) -> tuple[int, dict[str, Any]]:
        """The decoder's passes for an answer, and the answer."""
        with Trace(session.loaded.model, [tap]) as trace:
            answer = session.ask(find_question("candidates"), text, options)
        return len(trace.calls[tap]), answer.json()

    passes, first = asked("好久不见。", at=0)
    assert passes > 1 and asked("好久不见。", at=0) == (1, first)
    assert asked("好久不见。", at=0, temperature=0.5)[0] == 1
    assert asked("好久不见。", at=0, beam=1)[0] > 1 and asked("今天。", at=0, beam=1)[0] > 1
    assert asked("好久不见。", at=0) == (passes, first)


@pytest.mark.parametrize(
    "text", ["It's fine.", 'She said "no".', "$HOME `id` !1 \\", "two\nlines", "-m", "lens"]
)
def test_any_text_comes_through_a_shell(poet: Path, text: str) -> None:
    answer = Session(str(poet)).ask(find_question("rollout"), text, {})
    assert text in shlex.split(answer.command())


def test_what_does_not_go_together_is_refused_before_weights_are_read(
    monkeypatch: pytest.MonkeyPatch, poet: Path, headless: Path
) -> None:
    monkeypatch.setattr("cutaway.inspection.answers.load", lambda path: pytest.fail("weights were read"))
    for model, name, text, options, message in (
        (poet, "align", None, {"text": "好"}, "is decoder-only; align needs an encoder-decoder model"),
        (headless, "lens", "好", {}, "lens needs an output head"),
        (poet, "lens", None, {}, "lens needs a text to look into"),
        (
            poet,
            "neighbours",
            "好",
            {"token": 5},
            "neighbours is asked of the model alone: leave the text out",
        ),
        (poet, "lens", "好", {"topp": 3}, r"lens: unknown key 'topp' \(did you mean 'top'\?\)"),
        (poet, "lens", "好", {"beem": 3}, r"lens: unknown key 'beem' \(did you mean 'beam'\?\)"),
        (poet, "neighbours", None, {"token": 5, "beam": 3}, "neighbours: unknown key 'beam'"),
        (poet, "lens", "好", {"beam": 0}, "beam is 0, expected 1 to 32"),
        (poet, "lens", "好", {"max_new_tokens": -1}, "max_new_tokens is -1, expected at least 0"),
        (poet, "drift", "好", {"word": "好"}, "drift: key 'other' is missing"),
    ):
        given: Any = options
        with pytest.raises(CutawayError, match=message):
            Session(str(model)).ask(find_question(name), text, given)


def test_weights_are_read_once(monkeypatch: pytest.MonkeyPatch, poet: Path) -> None:
    from cutaway.inspection import answers

    read: list[Path] = []
    plain_load = answers.load
    monkeypatch.setattr(answers, "load", lambda path: read.append(path) or plain_load(path))
    session = Session(str(poet))
    session.ask(find_question("anatomy"))
    assert read == []
    for name in ("lens", "rollout"):
        session.ask(find_question(name), "今天")
    assert read == [poet]


def test_progress_is_heard(poet: Path) -> None:
    heard: list[tuple[int, int]] = []
    Session(str(poet)).ask(
        find_question("sweep"), "今天", {}, lambda _, done, total: heard.append((done, total))
    )
    assert heard[-1] == (2, 2)


def test_results_are_plain_values() -> None:
    value = {"t": torch.tensor([1.0, float("-inf")]), "i": (0, slice(None), slice(1, 3)), "f": float("nan"),
             "p": Path("a/b"), "s": frozenset({(1, 0), (0, 2)}), "n": None, 3: True}  # fmt: skip
    assert plain(value) == {
        "t": [1.0, None], "i": [0, ":", "1:3"], "f": None, "p": "a/b", "s": [[0, 2], [1, 0]], "n": None, "3": True,
    }  # fmt: skip
    assert plain(say("token")) == {"en": "token", "zh": "词元"}
    assert plain(math.inf) is None

    @dataclass
    class Part:
        seen: int
        _hidden: int

    assert plain(Part(1, 2)) == {"seen": 1}
