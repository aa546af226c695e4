"""A question asked of a model and a text as commands and servers ask: options in, result and page out."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any

from torch import Tensor

from cutaway import __version__
from cutaway.checkpoint.folder import Loaded, load, open_contents, read_config
from cutaway.checkpoint.word_vectors import WordVectors, holds_vectors, load_vectors
from cutaway.errors import CutawayError
from cutaway.glossary import GLOSSARY
from cutaway.inspection.changes.change import Change
from cutaway.inspection.changes.lists import write_change
from cutaway.inspection.options import Progress, Repeated
from cutaway.inspection.question import (
    RUN_OPTIONS,
    Question,
    Suggesting,
    Translating,
    all_questions,
    find_question,
    names,
)
from cutaway.inspection.runs import Run, run
from cutaway.page.blocks import Caption, Code, Page
from cutaway.page.drawn import Drawn
from cutaway.text.display import width
from cutaway.text.sentence_ends import sentences
from cutaway.words import Phrase, Text, names_of, say
from cutaway.zoo import bundled, find

LINE = 80  # columns of a command before it goes on in the next line
_OF_RUN = {each.name for each in RUN_OPTIONS}


@dataclass(frozen=True)
class Answer:
    """A question's result, with what it was asked of, in words that ask it again."""

    question: Question
    model: str  # a bundled model's name, or a path
    text: str | None
    options: Mapping[str, object]  # those that were given, as they were given
    output: str | None  # what the model wrote
    result: Drawn
    notes: tuple[Phrase, ...] = ()  # what to know of how the text was read
    opened_by: str = "load"  # the function that opens the model in Python

    def page(self) -> Page:
        """The result's page, captioned."""
        page = self.result.page()
        # What a question of a model reads is an option of its own.
        own = None if "text" not in self.options else str(self.options["text"])
        if isinstance(self.result, Suggesting):
            page = page.then(self._next(self.result, self.text or own))
        return page.explained(_terms_in(page)).captioned(
            Caption(
                model=self.model,
                text=self.text or own,
                output=self.output,
                command=self.command(),
                python=self.python(),
                date=datetime.now().astimezone().date().isoformat(),
            )
        )

    def _next(self, result: Suggesting, text: str | None) -> Page:
        of_run = {name: value for name, value in self.options.items() if name in _OF_RUN}
        steps: list[Code] = []
        for each in result.suggestions():
            question = find_question(each.question)
            known = {one.name for one in question.parameters} | (
                _OF_RUN if question.subject == "text" else set()
            )
            options = {**each.options, **{name: value for name, value in of_run.items() if name in known}}
            steps.append(Code(each.about, continued(parts_for(question, self.model, text, options))))
        steps.append(Code(say("all questions"), "cutaway inspect --help"))
        return Page(say("What to look at next"), tuple(steps))

    def command(self) -> str:
        """The command that gives this answer."""
        return " ".join(parts_for(self.question, self.model, self.text, self.options))

    def python(self) -> str:
        """Lines of Python that give this answer's result."""
        question, of_text = self.question, self.question.subject == "text"
        others = {each.name for each in question.parameters if each.is_text}
        used = [question.name, *(["run"] if of_text or others & set(self.options) else [])]
        imports = [f"from cutaway import find, {self.opened_by}"]
        subject, opened = "loaded", f"{self.opened_by}(find({self.model!r}))"
        if question.subject == "files":
            imports = ["from cutaway import find", "from cutaway.checkpoint.folder import open_contents"]
            opened = f"open_contents(find({self.model!r}))"
        of_run = {name: value for name, value in self.options.items() if of_text and name in _OF_RUN}
        given = [f"{name}={value!r}" for name, value in of_run.items()]
        alike = [f"{name}={value!r}" for name, value in of_run.items() if name != "target"]
        if of_text:
            subject = f"run({', '.join(['loaded', repr(self.text), *given])})"
        arguments = [
            f"{name}=run({', '.join(['loaded', repr(value), *alike])})"
            if name in others
            else f"{name}={value!r}"
            for name, value in self.options.items()
            if name not in of_run
        ]
        return "\n".join(
            [
                *imports,
                f"from cutaway.inspection import {', '.join(sorted(used))}",
                "",
                f"loaded = {opened}",
                f"result = {question.name}({', '.join([subject, *arguments])})",
            ]
        )

    def json(self) -> dict[str, object]:
        """The result as plain values, with what it is about."""
        return {
            "question": self.question.name,
            "model": self.model,
            "text": self.text,
            "options": plain(self.options),
            "output": self.output,
            "notes": plain(self.notes),
            "command": self.command(),
            "python": self.python(),
            "result": plain(self.result),
        }

    def about(self) -> dict[str, str]:
        """What a file of the result came from: enough to ask again."""
        text = {} if self.text is None else {"text": self.text}
        asked = {"question": self.question.name, "model": self.model, **text}
        return {**asked, "command": self.command(), "cutaway": __version__}


class Session:
    """One model that questions are asked of; its weights are read when a question first needs them, and once."""

    def __init__(self, model: str):
        self.path = find(model)
        self.model = self.path.name if self.path in bundled() else str(model)
        self._contents = open_contents(self.path)
        self.config, _ = read_config(self._contents)
        self._loaded: Loaded | None = None
        self._run: tuple[object, Run] | None = None

    @property
    def loaded(self) -> Loaded:
        if self._loaded is None:
            self._loaded = load(self.path)
        return self._loaded

    def check(
        self, question: Question, text: str | None = None, given: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Options as JSON has them, those of the run among them, of their types. No weights are read.

        Raises CutawayError for what does not go together.
        """
        question.check(self.config, self.model)
        text, given = _told_apart(question, text, given)
        options: dict[str, Any] = question.options(given)
        if question.subject == "text" and text is None:
            raise CutawayError(
                "{question} needs a text to look into; give it as the first argument", question=question.name
            )
        if question.subject != "text" and text is not None:
            raise CutawayError(
                "{question} is asked of the model alone: leave the text out", question=question.name
            )
        return options

    def ask(
        self,
        question: Question,
        text: str | None = None,
        given: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> Answer:
        """Ask with options as JSON has them. `text` is what is looked into; of a question that makes its own run of a
        text it is the option of that name. Raises CutawayError as `check` does, before any weights are read."""
        text, given = _told_apart(question, text, given)
        options = self.check(question, text, given)
        of_run = _OF_RUN if question.subject == "text" else set()
        run_options = {name: options.pop(name) for name in of_run & set(options)}
        subject: object = self._contents if question.subject == "files" else self.loaded
        output = None
        if question.subject == "text" and text is not None:
            subject = asked = self._run_of(text, run_options)
            if asked.source is not None and asked.target is not None:
                output = asked.loaded.require_tokenizer().decode(asked.outcome.ids)
        for parameter in question.parameters:
            other = options.get(parameter.name)
            if parameter.is_text and isinstance(other, str):
                options[parameter.name] = run(self.loaded, other, **{**run_options, "target": None})
        result = question(subject, options, progress)
        if isinstance(result, Translating):
            output = result.output
        notes = self._notes(text or options.get("text"))
        return Answer(question, self.model, text, given, output, result, notes)

    def _run_of(self, text: str, options: dict[str, Any]) -> Run:
        """The run of a text, the newest kept: whoever asks again of the same text does not wait for its writing."""
        if self._run is None or self._run[0] != (text, options):
            self._run = (text, options), run(self.loaded, text, **options)
        return self._run[1]

    def _notes(self, text: object) -> tuple[Phrase, ...]:
        """That a translator reads several sentences as one here, though not where it translates."""
        several = (
            self.config.family == "encoder-decoder" and isinstance(text, str) and len(sentences(text)) > 1
        )
        remark = say(
            "the text is looked into in one piece; `cutaway translate` goes through it sentence by sentence, so ask "
            "of one sentence to see what it does"
        )
        return (remark,) if several else ()


class VectorSession:
    """Word vectors that questions are asked of, as `Session` has it for a model."""

    def __init__(self, model: str):
        self.path = find(model)
        self.model = self.path.name if self.path in bundled() else str(model)
        self.vectors = load_vectors(self.path)

    def check(
        self, question: Question, text: str | None = None, given: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Options as JSON has them, of their types. Raises CutawayError for a question that word vectors cannot answer,
        and what does not go together."""
        if not question.of_vectors:
            able = [each.name for each in all_questions() if each.of_vectors]
            raise CutawayError(
                "{model} holds word vectors, of which {question} cannot be asked; they answer {able}",
                model=self.model,
                question=question.name,
                able=names_of(able),
            )
        return question.options(given or {})

    def ask(
        self,
        question: Question,
        text: str | None = None,
        given: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> Answer:
        """Ask with options as JSON has them. Raises CutawayError as `check` does."""
        options, given = self.check(question, text, given), dict(given or {})
        result = question(self.vectors, options, progress)
        return Answer(
            question, self.model, None, given, None, result, self.vectors.notes, load_vectors.__name__
        )


def open_session(model: str) -> Session | VectorSession:
    """The model of a bundled name or a path, or the word vectors there, to be asked."""
    return VectorSession(model) if holds_vectors(find(model)) else Session(model)


def _terms_in(page: Page) -> Iterator[tuple[Text, Text]]:
    """The terms of the glossary that a page's own words use, each with its sentence."""
    words = " ".join(_phrases((page.title, page.blocks)))
    for entry in GLOSSARY.values():
        if re.search(rf"\b{re.escape(str(entry.term))}s?\b", words, re.IGNORECASE):
            yield entry.term, entry.about


def _phrases(value: object) -> Iterator[str]:
    """The English of every phrase in blocks of a page."""
    if isinstance(value, Phrase):
        yield str(value)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _phrases(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _phrases(getattr(value, field.name))


def _told_apart(
    question: Question, text: str | None, given: Mapping[str, object] | None
) -> tuple[str | None, dict[str, object]]:
    """The text that is looked into, and the options; a question of a model that makes its own run has it as one."""
    options = dict(given or {})
    own = question.subject == "model" and "text" in (each.name for each in question.parameters)
    return (None, {"text": text, **options}) if own and text is not None else (text, options)


# The same asked again.


def continued(parts: Sequence[str]) -> str:
    """A command in lines of at most 80 columns, where its parts are no longer, which a shell joins."""
    lines = [parts[0]]
    for part in parts[1:]:
        if width(lines[-1]) + width(part) + len("  \\") > LINE:
            lines.append(f"  {part}")
        else:
            lines[-1] += f" {part}"
    return " \\\n".join(lines)


def parts_for(question: Question, model: str, text: str | None, options: Mapping[str, object]) -> list[str]:
    """The words of a command, each option together with its value."""
    words = ["cutaway", "inspect"]
    words += [] if question.name == "overview" and text not in names() else [question.name]
    parameters = {each.name: each for each in (*question.parameters, *RUN_OPTIONS)}
    positional = [] if text is None else [text]
    named: list[str] = []
    for name, value in options.items():
        if value is None:
            continue
        option, tokens = parameters[name].option, parameters[name].names_tokens
        if option.positional:
            values = value if isinstance(value, list | tuple) else [value]
            positional += [_spelled(each, tokens) for each in values]
            continue
        flag = (option.each if isinstance(option, Repeated) else name).replace("_", "-")
        if isinstance(value, bool):
            named.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(option, Repeated) and isinstance(value, list):
            named += [f"--{flag} {_quoted(json.dumps(each, ensure_ascii=False))}" for each in value or [[]]]
        else:
            named.append(f"--{flag} {_quoted(_spelled(value, tokens))}")
    texts = [_quoted(each) for each in positional]
    if any(each.startswith("-") for each in positional):
        return [*words, f"-m {_quoted(model)}", *named, "--", *texts]
    return [*words, *texts, f"-m {_quoted(model)}", *named]


def _spelled(value: object, tokens: bool) -> str:
    """A value as a command reads it; among tokens a number is an id."""
    if isinstance(value, list | tuple):
        return ",".join(_spelled(each, tokens) for each in value)
    return f"#{value}" if tokens and isinstance(value, int) else str(value)


def _quoted(text: str) -> str:
    """A text as an argument: in double quotes, which most texts can be read in, unless a shell sees more in them."""
    if text and all(each.isascii() and (each.isalnum() or each in "-_./,") for each in text):
        return text
    return quote(text) if any(mark in text for mark in '"$`\\!') else f'"{text}"'


# A result as plain values.


def rows(tensor: Tensor) -> Any:
    """A tensor as lists of numbers."""
    return plain(tensor.tolist())


def plain(value: object, tensor: Callable[[Tensor], Any] = rows) -> Any:
    """Dataclasses as objects, tensors as rows unless `tensor` makes something else of them, tuples as lists, sets in
    order; numbers that are not finite as null; a phrase in English and Chinese. A model that a result refers to, and
    what begins with `_`, is left out."""
    match value:
        case None | bool() | int() | str():
            return value
        case Phrase():
            return {"en": value.said("en"), "zh": value.said("zh")}
        case float():
            return value if math.isfinite(value) else None
        case Tensor():
            return tensor(value)
        case slice():
            return f"{'' if value.start is None else value.start}:{'' if value.stop is None else value.stop}"
        case Path():
            return str(value)
        case Mapping():
            return {str(key): plain(each, tensor) for key, each in value.items()}
        case frozenset():
            return plain(sorted(value))
        case list() | tuple():
            return [plain(each, tensor) for each in value]
    return {name: plain(each, tensor) for name, each in fields_of(value)}


def fields_of(value: object) -> Iterator[tuple[str, object]]:
    """The fields of a dataclass that are data."""
    assert dataclasses.is_dataclass(value) and not isinstance(value, type), f"{value!r} is no plain value"
    # a change, as it is written in a list of changes
    if isinstance(value, Change):
        yield from write_change(value).items()
        return
    for field in dataclasses.fields(value):
        each = getattr(value, field.name)
        if not field.name.startswith("_") and not isinstance(each, Loaded | WordVectors):
            yield field.name, each
