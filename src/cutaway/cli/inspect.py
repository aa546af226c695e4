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

from cutaway.cli.help import Command, Group, Listed, argument, option
from cutaway.cli.terminal import note, progress, standard_input, texts_from, write, write_page
from cutaway.errors import CutawayError
from cutaway.words import Locale, names_of, reader_locale, say, told
from cutaway.zoo import TRANSLATOR

# a command's module loads nothing heavy at its top
if TYPE_CHECKING:
    from typer._click import Context

    from cutaway.inspection.answers import Answer
    from cutaway.inspection.options import Parameter
    from cutaway.inspection.question import Question

FIRST = "overview"  # the question of a text for which none is named


class Questions(Group):
    """The commands are the questions; their modules are loaded when they are asked for."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        from cutaway.inspection.question import find_question, names

        # A text on standard input, and no question named.
        if not args and not sys.stdin.isatty():
            args = [FIRST]
        if args and args[0] not in (*names(), "-h", "--help"):
            # No text of its own, for another one follows: a name misspelled.
            two = len(args) > 1 and not args[0].startswith("-") and not args[1].startswith("-")
            if two and get_close_matches(args[0], names(), 1, 0.7):
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
        shared = Shared(**{name: given[name] for name in SHARED})
        shared.check()
        text = _one_text(given["text"]) if question.subject == "text" else None

        from cutaway.inspection.answers import open_session

        said = ((each, given[name]) for name, each in parameters.items() if given[name] not in (None, []))
        values = ((each, _value(each, text)) for each, text in said)
        options = {each.name: value for each, value in values if value != each.default}
        answer = open_session(shared.model).ask(question, text, options, progress)
        for remark in answer.notes:
            note(remark)
        shared.write(answer)

    about_text = Annotated[str | None, argument("The text; without it, standard input.")]
    declared = [_parameter("text", about_text, None)] if question.subject == "text" else []
    declared += [_declared(name, each) for name, each in parameters.items()]
    setattr(ask, "__signature__", signatures.Signature([*declared, *SHARED.values()]))
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command(question.name, cls=Command, help=question.about.said(reader_locale()))(ask)
    made = typer.main.get_command(one)
    assert isinstance(made, TyperCommand)
    return made


def _one_text(argument: str | None) -> str:
    """The argument, or all of standard input."""
    if argument is not None:
        return texts_from(argument)[0]
    if sys.stdin.isatty():
        raise CutawayError("no text: give it as an argument or on standard input")
    return "\n".join(standard_input())


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

    asked, kind, default = parameter.option, parameter.kind, parameter.default
    about = asked.about.said(reader_locale())
    native = kind in (int, float, bool, str) or get_origin(kind) is Literal
    if isinstance(asked, Repeated):
        about = told("{about} One JSON object or a list; may be repeated.", about=asked.about)
        kind, default = list[str], None
    elif asked.positional and get_origin(kind) is tuple:
        kind, default = list[str], None
    elif not native:
        kind, default = str, ",".join(map(str, default)) or None if isinstance(default, tuple) else default
    if not parameter.required:
        kind = kind | None
    low, high = (asked.at_least, asked.at_most) if parameter.kind in (int, float) else (None, None)
    mark = typer.Argument if asked.positional else typer.Option
    if parameter.required:
        default = signatures.Parameter.empty
    return _parameter(name, Annotated[kind, mark(help=about, min=low, max=high)], default)


def _value(parameter: "Parameter", given: object) -> object:
    """An option as JSON has it."""
    from cutaway.inspection.options import read_token

    if isinstance(given, list) and parameter.option.positional:
        return [read_token(text) for text in given]
    if isinstance(given, list):
        read = [parameter.read(text) for text in given]
        return [each for value in read for each in (value if isinstance(value, list) else [value])]
    return parameter.read(given) if isinstance(given, str) else given


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The options of every question: its model, and where the answer goes beside the terminal, or in its place."""

    model: Annotated[
        str,
        option("A bundled model's name, a model's folder or GGUF file, or word vectors.", "--model", "-m"),
    ] = TRANSLATOR
    as_json: Annotated[bool, option("Everything as one JSON object.", "--json")] = False
    python: Annotated[bool, option("The Python that returns the same numbers.", "--python")] = False
    save: Annotated[Path | None, option("Write the arrays to a .safetensors, .npz or .csv file.")] = None
    svg: Annotated[Path | None, option("Write the figures to .svg files.")] = None
    html: Annotated[Path | None, option("Write the page to an .html file of its own.")] = None
    lang: Annotated[Locale | None, option("Language of the answer, en or zh; else the locale's.")] = None

    def check(self) -> None:
        """CutawayError for a file whose name does not say how to write it, or that has no folder."""
        from cutaway.inspection.saving import ENDINGS, check_ending

        for name, path, endings in (
            ("save", self.save, ENDINGS), ("svg", self.svg, (".svg",)), ("html", self.html, (".html", ".htm")),
        ):  # fmt: skip
            if path is not None:
                check_ending(name, path, endings)

    def write(self, answer: "Answer") -> None:
        from cutaway.inspection.saving import save
        from cutaway.page.figures import write_figures
        from cutaway.page.html import document

        page, locale = answer.page(), self.lang or reader_locale()
        if self.save is not None:
            names = save(self.save, answer.about(), answer.result)
            more = say(" and {n} more", n=len(names) - 6) if len(names) > 6 else ""
            note("{path}: {names}{more}", path=self.save, names=names_of(names[:6]), more=more)
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


SHARED = dict(signatures.signature(Shared).parameters)
