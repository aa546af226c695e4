"""`cutaway inspect`: every question of the library as a command of its own, made from its declaration."""

import inspect as signatures
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin

import typer
from typer.core import TyperCommand

from cutaway.cli.help import Command, Group, Listed, argument
from cutaway.cli.terminal import note, progress, standard_input, texts_from, write, write_page
from cutaway.errors import CutawayError
from cutaway.words import Locale, reader_locale, say, told
from cutaway.zoo import TRANSLATOR

if TYPE_CHECKING:  # a command's module loads nothing heavy at its top
    from typer._click import Context

    from cutaway.inspection.answers import Answer
    from cutaway.inspection.options import Parameter
    from cutaway.inspection.question import Question

FIRST = "overview"  # the question of a text for which none is named


class Questions(Group):
    """The commands are the questions; their modules are loaded when they are asked for."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        from cutaway.inspection.question import find_question, names

        if args and args[0] not in (*names(), "-h", "--help"):
            # No text of its own, for another one follows: a name misspelled.
            if (
                len(args) > 1
                and "-" not in (args[0][:1], args[1][:1])
                and get_close_matches(args[0], names(), 1, 0.7)
            ):
                find_question(args[0])
            args = [FIRST, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: "Context") -> list[str]:
        from cutaway.inspection.question import all_questions

        return [question.name for question in all_questions()]

    def get_command(self, ctx: "Context", cmd_name: str) -> TyperCommand:
        from cutaway.inspection.question import find_question

        return command_of(find_question(cmd_name))

    def sections(self, ctx: "Context") -> Iterator[tuple[str, Listed]]:
        from cutaway.inspection.question import GROUPS, all_questions

        locale = reader_locale()
        for group, title in GROUPS.items():
            listed = [each for each in all_questions() if each.group == group]
            if listed:
                yield title.said(locale), [(each.name, each.about.said(locale)) for each in listed]


app = typer.Typer(cls=Questions, no_args_is_help=True, rich_markup_mode=None)


@app.callback(
    help=told(
        "Ask about a text on its way through a model, or about a model. Without a question's name: {first}.",
        first=FIRST,
    )
)
def inspect() -> None:
    pass


def command_of(question: "Question") -> TyperCommand:
    """The command `cutaway inspect NAME …`: the question's options, its model and text, and where the answer goes."""
    from cutaway.inspection.question import RUN_OPTIONS

    of_run = RUN_OPTIONS if question.subject == "text" else ()
    parameters = {_spelled(each): each for each in (*question.parameters, *of_run)}

    def ask(**given: Any) -> None:
        outputs = Outputs(
            given.pop("as_json"), given.pop("python"), given.pop("save"), given.pop("svg"), given.pop("html")
        )
        outputs.check()
        locale: Locale = given.pop("lang") or reader_locale()
        model: str = given.pop("model")
        text = _one_text(given.pop("text")) if question.subject == "text" else None

        from cutaway.inspection.answers import Session

        read = {
            each.name: _value(each, given[name])
            for name, each in parameters.items()
            if given[name] not in (None, [])
        }
        defaults = {each.name: each.default for each in parameters.values()}
        options = {name: value for name, value in read.items() if value != defaults[name]}
        outputs.write(Session(model).ask(question, text, options, progress), locale)

    own = [_declared(name, each) for name, each in parameters.items()]
    declared = [*_text(question), *own, *_shared()]
    setattr(ask, "__signature__", signatures.Signature(declared))
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command(question.name, cls=Command, help=question.about.said(reader_locale()))(ask)
    made = typer.main.get_command(one)
    assert isinstance(made, TyperCommand)
    return made


def _text(question: "Question") -> list[signatures.Parameter]:
    if question.subject != "text":
        return []
    return [
        _parameter("text", Annotated[str | None, argument("The text; without it, standard input.")], None)
    ]


def _one_text(argument: str | None) -> str:
    """The argument, or all of standard input."""
    if argument is not None:
        return texts_from(argument)[0]
    if sys.stdin.isatty():
        raise CutawayError("no text: give it as an argument or on standard input")
    return "\n".join(standard_input())


def _shared() -> list[signatures.Parameter]:
    """What all questions have: their model, and where the answer goes."""
    model = told("A bundled model's name, or a model's folder or GGUF file.")
    as_json, python = (
        told("Everything as one JSON object."),
        told("The Python that returns the same numbers."),
    )
    arrays = told("Write the arrays to a .safetensors, .npz or .csv file.")
    figures, page = (
        told("Write the figures to .svg files."),
        told("Write the page to an .html file of its own."),
    )
    lang = told("Language of the answer, en or zh; else the locale's.")
    return [
        _parameter("model", Annotated[str, typer.Option("--model", "-m", help=model)], TRANSLATOR),
        _parameter("as_json", Annotated[bool, typer.Option("--json", help=as_json)], False),
        _parameter("python", Annotated[bool, typer.Option("--python", help=python)], False),
        _parameter("save", Annotated[Path | None, typer.Option(help=arrays)], None),
        _parameter("svg", Annotated[Path | None, typer.Option(help=figures)], None),
        _parameter("html", Annotated[Path | None, typer.Option(help=page)], None),
        _parameter("lang", Annotated[Locale | None, typer.Option(help=lang)], None),
    ]


def _parameter(name: str, annotation: Any, default: object) -> signatures.Parameter:
    return signatures.Parameter(
        name, signatures.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _spelled(parameter: "Parameter") -> str:
    """What a command calls it: one of those that are listed, where it may be given several times."""
    from cutaway.inspection.options import Repeated

    return parameter.option.each if isinstance(parameter.option, Repeated) else parameter.name


def _declared(name: str, parameter: "Parameter") -> signatures.Parameter:
    from cutaway.inspection.options import Repeated

    option, kind, default = parameter.option, parameter.kind, parameter.default
    about = option.about.said(reader_locale())
    native = kind in (int, float, bool, str) or get_origin(kind) is Literal
    if isinstance(option, Repeated):
        about = told("{about} One JSON object or a list; may be repeated.", about=option.about)
        kind, default = list[str], None
    elif option.positional and get_origin(kind) is tuple:
        kind, default = list[str], None
    elif not native:
        kind, default = str, ",".join(map(str, default)) or None if isinstance(default, tuple) else default
    if not parameter.required:
        kind = kind | None
    low, high = (option.at_least, option.at_most) if parameter.kind in (int, float) else (None, None)
    mark = typer.Argument if option.positional else typer.Option
    if parameter.required:
        default = signatures.Parameter.empty
    return _parameter(name, Annotated[kind, mark(help=about, min=low, max=high)], default)


def _value(parameter: "Parameter", given: object) -> object:
    """An option as JSON has it."""
    from cutaway.inspection.options import read_token

    if isinstance(given, list) and parameter.option.positional:
        return [read_token(text) for text in given]
    if isinstance(given, list):
        return [each for text in given for each in _many(parameter.read(text))]
    return parameter.read(given) if isinstance(given, str) else given


def _many(read: object) -> list[object]:
    return read if isinstance(read, list) else [read]


@dataclass(frozen=True)
class Outputs:
    """Where an answer goes beside the terminal, or in its place; None where it does not."""

    as_json: bool
    python: bool
    save: Path | None
    svg: Path | None
    html: Path | None

    def check(self) -> None:
        """CutawayError for a file whose name does not say how to write it, or that has no folder."""
        from cutaway.inspection.saving import ENDINGS, check_ending

        for option, path, endings in (
            ("save", self.save, ENDINGS), ("svg", self.svg, (".svg",)), ("html", self.html, (".html", ".htm")),
        ):  # fmt: skip
            if path is not None:
                check_ending(option, path, endings)

    def write(self, answer: "Answer", locale: Locale) -> None:
        from cutaway.inspection.saving import save
        from cutaway.page.figures import write_figures
        from cutaway.page.html import document

        page = answer.page()
        if self.save is not None:
            names = save(self.save, answer.about(), answer.result)
            more = say(" and {n} more", n=len(names) - 6) if len(names) > 6 else ""
            note("{path}: {names}{more}", path=self.save, names=", ".join(names[:6]), more=more)
        if self.svg is not None:
            for path in write_figures(self.svg, page, locale):
                note("{path}: {size:,.0f} kB", path=path, size=path.stat().st_size / 1000)
        if self.html is not None:
            self.html.write_text(document(page, locale), encoding="utf-8")
            note("{path}: {size:,.0f} kB", path=self.html, size=self.html.stat().st_size / 1000)
        if self.as_json:
            write(json.dumps(answer.json(), ensure_ascii=False, allow_nan=False))
        elif self.python:
            write(answer.python())
        else:
            write_page(page, locale)
