"""What is wrong with a command as it was typed, said as every other error is."""

from collections.abc import Mapping, Sequence
from typing import Any

from typer._click.exceptions import (
    BadOptionUsage,
    BadParameter,
    ClickException,
    MissingParameter,
    NoSuchOption,
    UsageError,
)

from cutaway.errors import brief, nearest
from cutaway.words import Phrase, Text, names_of, say


def usage_error(error: ClickException) -> Phrase:
    """The mistake as a phrase, in one line, with where to read on."""
    command = "cutaway"
    if isinstance(error, UsageError) and error.ctx is not None:
        command = error.ctx.command_path
    return say("{problem}; see {command} --help", problem=_problem(error, command), command=command)


def _problem(error: ClickException, command: str) -> Text:
    if isinstance(error, NoSuchOption):
        hint = nearest(error.option_name, error.possibilities or ())
        return say("{command} has no option {name}{hint}", command=command, name=error.option_name, hint=hint)
    if isinstance(error, MissingParameter):
        return say("{command} needs {name}", command=command, name=_name(error))
    if isinstance(error, BadOptionUsage):
        if "does not take" in error.message:
            return say("{name} takes no value", name=error.option_name)
        return say("{name} needs a value", name=error.option_name)
    if isinstance(error, BadParameter):
        return _bad_value(error)
    message = error.format_message()
    if message.startswith("No such command") and isinstance(error, UsageError) and error.ctx is not None:
        given, known = message.split("'")[1], list(getattr(error.ctx.command, "commands", {}))
        return say("{command} has no command {given!r}{hint}, expected one of {known}",
                   command=command, given=given, hint=nearest(given, known), known=names_of(known))  # fmt: skip
    if message.startswith("Got unexpected extra"):
        extra = message.rpartition("(")[2].removesuffix(")")
        return say("{command} does not take {extra!r} as well (a text of several words stands in quotes)",
                   command=command, extra=extra)  # fmt: skip
    return message


def _bad_value(error: BadParameter) -> Phrase:
    """A value that is none: pydantic, which typer asks, says why in data."""
    name, found = _name(error), _details(error)
    given = found.get("input")
    value = given if isinstance(given, str) else brief(given)
    context: Mapping[str, Any] = found.get("ctx") or {}
    kind = str(found.get("type", ""))
    choices = _choices(error)
    expected: Text
    if choices:
        return say("{name} is {value}{hint}, expected {choices}", name=name, value=value,
                   hint=nearest(given, choices) if isinstance(given, str) else "",
                   choices=_either(choices))  # fmt: skip
    if kind == "greater_than_equal":
        expected = say("at least {low:g}", low=context["ge"])
    elif kind == "less_than_equal":
        expected = say("at most {high:g}", high=context["le"])
    elif kind.startswith("int"):
        expected = say("a whole number")
    elif kind.startswith("float"):
        expected = say("a number")
    else:
        return say("{name}: {message}", name=name, message=error.message)
    return say("{name} is {value}, expected {expected}", name=name, value=value, expected=expected)


def _either(choices: Sequence[str]) -> Text:
    """`red`, `red or green`, `red, green or blue`."""
    *most, last = choices
    return say("{most} or {last}", most=names_of(most), last=last) if most else last


def _name(error: BadParameter) -> str:
    if error.param is None:
        return "a value"
    options = [each for each in error.param.opts if each.startswith("--")]
    return options[0] if options else str(error.param.name)


def _details(error: BadParameter) -> Mapping[str, Any]:
    cause = error.__cause__
    errors: Any = getattr(cause, "errors", None)
    return {} if errors is None else errors()[0]


def _choices(error: BadParameter) -> Sequence[str]:
    described = getattr(error.param, "type_descriptor", None)
    found = getattr(described, "choices", None) or ()
    return [str(getattr(each, "value", each)) for each in found]
