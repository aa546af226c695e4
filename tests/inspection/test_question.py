"""Questions as they are declared: what there is, what each needs, and that one word has one meaning."""

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import pytest

from cutaway import CutawayError, inspection
from cutaway.checkpoint.folder import Loaded
from cutaway.config import ModelConfig
from cutaway.inspection import question as declaring
from cutaway.inspection.options import Option, Progress
from cutaway.inspection.question import (
    GROUPS,
    QUESTIONS,
    RUN_OPTIONS,
    WORDS,
    Question,
    all_questions,
    find_question,
    names,
    question,
)
from cutaway.inspection.runs import Run
from cutaway.page.blocks import Page, Remark
from cutaway.page.drawn import Drawn
from cutaway.words import LOCALES, say

RunOf = Callable[..., Run]
FOLDER = Path(declaring.__file__).with_name("questions")


def test_a_question_is_the_file_of_its_name() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert set(names()) == files and len(files) >= 15
    for name in names():
        found = find_question(name)
        module = importlib.import_module(f"cutaway.inspection.questions.{name}")
        assert found.name == name and found.function is getattr(module, name) is getattr(inspection, name)
        assert issubclass(signature(found.function, eval_str=True).return_annotation, Drawn)


def test_questions_come_group_by_group() -> None:
    order = [list(GROUPS).index(each.group) for each in all_questions()]
    assert order == sorted(order) and {each.name for each in all_questions()} == set(names())


def test_a_misspelled_one_is_told_the_nearest() -> None:
    with pytest.raises(
        CutawayError, match=r"no question 'leens' \(did you mean 'lens'\?\), expected one of .*align"
    ):
        find_question("leens")


def test_everything_says_what_it_means_in_both_languages() -> None:
    for each in all_questions():
        assert str(each.about).endswith(".")
        for phrase in (each.about, *(parameter.option.about for parameter in each.parameters)):
            texts = [phrase.said(locale).strip() for locale in LOCALES]
            assert all(texts), (each.name, phrase)


def test_an_option_has_one_meaning_whatever_the_question() -> None:
    """The same name is of the same type everywhere; what its default and its help say may differ."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for each in all_questions():
        of_run = RUN_OPTIONS if each.subject == "text" else ()
        for parameter in (*each.parameters, *of_run):
            kinds[parameter.name].add(str(parameter.kind))
    sides = {str(Any), *kinds.pop("side")}  # every one has the sides that it can be asked of
    assert len(sides) <= 3
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


def bounded() -> Iterator[tuple[str, str, float]]:
    for each in all_questions():
        for parameter in each.parameters:
            if parameter.option.at_least is not None and parameter.kind in (int, float):
                yield each.name, parameter.name, parameter.option.at_least - 1


@pytest.mark.parametrize(("name", "option", "value"), list(bounded()))
def test_python_callers_hear_of_bounds_too(run_of: RunOf, name: str, option: str, value: float) -> None:
    asked = find_question(name)
    read = run_of("BERT" if name == "similarity" else "pair with experts")
    required: dict[str, Any] = {
        "a": 9, "b": 11, "c": 12, "token": 9, "tokens": (9, 11, 12), "word": read.outcome.pieces[0], "other": read,
        "text": "今天", "changes": [], "centre": 9, "context": 11,
    }  # fmt: skip
    given = {each.name: required[each.name] for each in asked.parameters if each.required}
    given |= {"other": "天气"} if name == "similarity" else {}
    kind = next(each.kind for each in asked.parameters if each.name == option)
    with pytest.raises(CutawayError, match=rf"{option} is {kind(value)}, expected"):
        asked.function(read.loaded if asked.subject == "model" else read, **{**given, option: kind(value)})


@dataclass(frozen=True, repr=False)
class Length(Drawn):
    tokens: int
    heard: bool

    def page(self) -> Page:
        return Page("length", (Remark(f"{self.tokens}"),))


@pytest.fixture
def declared() -> Question:
    @question(say("How many tokens a text has, some of them more often."), "text", WORDS)
    def length(
        run: Run,
        *,
        times: Annotated[int, Option(say("How often each counts."), at_least=1)] = 1,
        told: Progress | None = None,
    ) -> Length:
        if told is not None:
            told(say("counting"), 1, 1)
        return Length(len(run.outcome) * times, told is not None)

    return QUESTIONS.pop("length")


def test_a_question_is_declared_by_its_function_alone(declared: Question, run_of: RunOf) -> None:
    assert (declared.name, declared.subject, declared.group) == ("length", "text", "text")
    assert [each.name for each in declared.parameters] == ["times"] and declared.progress == "told"
    read = run_of("Llama")
    # it stays the plain function
    assert declared.function(read, times=2) == Length(14, False)
    heard: list[tuple[int, int]] = []
    found = declared(read, declared.options({"times": 3}), lambda _, done, total: heard.append((done, total)))
    assert found == Length(21, True) and heard == [(1, 1)]
    # those of its run among them
    assert declared.options({"beam": 2, "times": 1}) == {"beam": 2, "times": 1}
    with pytest.raises(CutawayError, match=r"length: unknown key 'baem' \(did you mean 'beam'\?\)"):
        declared.options({"baem": 2})


def test_what_a_model_lacks_is_told_by_its_config_alone(declared: Question, run_of: RunOf) -> None:
    config: ModelConfig = run_of("BERT").loaded.config
    declared.check(config, "tiny")
    with pytest.raises(
        CutawayError, match=r"^tiny is encoder-only; length needs an output head: a model that gives"
    ):
        declared.check(replace(config, head="none", head_bias=False), "tiny")


def test_the_subject_is_told_by_the_first_parameter() -> None:
    def of_model(loaded: Loaded) -> Length:
        return Length(0, False)

    try:
        question(say("Of a model."), "model")(of_model)
        assert QUESTIONS["of_model"].subject == "model"
    finally:
        QUESTIONS.pop("of_model", None)
    subjects = {each.name: each.subject for each in all_questions()}
    assert (subjects["lens"], subjects["neighbours"], subjects["anatomy"]) == ("text", "model", "files")
