"""What a function's parameters mean to a reader: types, defaults, bounds and help, read off its signature.

def lens(run: Run, *, top: Annotated[int, Option(say("Readings of a layer."), at_least=1)] = 5) -> Lens: ...
"""

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce, wraps
from operator import or_
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from cutaway.config import parse
from cutaway.errors import CutawayError, about, brief, nearest
from cutaway.files import json_value
from cutaway.words import Phrase, Text, listed, say

# What is being done, how much of it is done, how much there is.
Progress = Callable[[Text, int, int], None]
F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Option:
    """What a parameter means, its bounds, and whether a command takes it without its name."""

    about: Phrase
    at_least: float | None = None
    at_most: float | None = None
    positional: bool = False


@dataclass(frozen=True)
class OtherText(Option):
    """A parameter of type `Run`: another text, which whoever asks makes a run of, with the same model."""


@dataclass(frozen=True)
class Repeated(Option):
    """A list of JSON objects, which `read` checks: a command takes one, or a list of them, by each `--<each>`."""

    each: str = ""
    read: Callable[[Any], object] = list


@dataclass(frozen=True)
class Parameter:
    """One option: its name and type, its default (`inspect.Parameter.empty` where it must be given)."""

    name: str
    hint: Any
    default: object
    option: Option

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def is_text(self) -> bool:
        return isinstance(self.option, OtherText)

    @property
    def names_tokens(self) -> bool:
        """Whether it is a token or several, of which a number is the id."""
        kind = get_args(self.kind)[0] if get_origin(self.kind) is tuple else self.kind
        return set(get_args(kind)) == {int, str}

    @property
    def kind(self) -> Any:
        """The type without `None`; `str` for another text."""
        return str if self.is_text else without_none(self.hint)

    def read(self, text: str) -> object:
        """A value as a command line spells it: JSON objects, numbers with commas between them, a token's id as `#123`.
        CutawayError for what it cannot be."""
        if isinstance(self.option, Repeated):
            with about(f"{self.option.each} {brief(text)}"):
                read = json_value(text)
            return read if isinstance(read, list) else [read]
        if get_origin(self.kind) is tuple and self.names_tokens:
            return tuple(read_token(part) for part in text.split(","))
        if get_origin(self.kind) is tuple:
            try:
                return tuple(int(number) for number in text.split(","))
            except ValueError:
                raise CutawayError(
                    "{name} is {text!r}, expected whole numbers with commas between them, such as 0,3,-1",
                    name=self.name,
                    text=text,
                ) from None
        return read_token(text) if self.names_tokens else text

    def check(self, value: object) -> None:
        """CutawayError for what is none of the choices, and for a number beyond the bounds."""
        if get_origin(self.kind) is Literal and value is not None:
            check_choice(self.name, value, self.kind)
        low, high = self.option.at_least, self.option.at_most
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, int | float) or isinstance(number, bool):
                continue
            if (low is not None and number < low) or (high is not None and number > high):
                expected = say("{low:g} to {high:g}", low=low, high=high)
                if high is None:
                    expected = say("at least {low:g}", low=low)
                elif low is None:
                    expected = say("at most {high:g}", high=high)
                values = {"name": self.name, "number": number, "expected": expected}
                raise CutawayError("{name} is {number}, expected {expected}", **values)


def check_choice(name: str, value: object, kind: Any) -> None:
    """CutawayError, naming the nearest, for a value that is none of those of a `Literal` type."""
    choices = get_args(kind)
    if value not in choices:
        raise CutawayError(
            "{name} is {value!r}{hint}, expected {choices}",
            name=name,
            value=value,
            hint=nearest(str(value), choices),
            choices=listed(choices, say(" or ")),
        )


def read_signature(function: Callable[..., object]) -> tuple[Any, tuple[Parameter, ...], str | None]:
    """The type of a function's first parameter, its options, and the name of its parameter of type `Progress`."""
    hints = get_type_hints(function, include_extras=True)
    (first, *others) = inspect.signature(function).parameters.values()
    parameters: list[Parameter] = []
    progress = None
    for given in others:
        hint = hints[given.name]
        if without_none(hint) == Progress:
            progress = given.name
            continue
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Option)]
        if not marks:
            raise TypeError(
                f"{function.__name__}({given.name}) says nothing about itself: Annotated[type, Option(…)]"
            )
        parameters.append(Parameter(given.name, get_args(hint)[0], given.default, marks[0]))
    return hints[first.name], tuple(parameters), progress


def bounded(function: F) -> F:
    """The function, whose callers hear of a value beyond its options' bounds, as those of a command do."""
    signature, parameters = inspect.signature(function), read_signature(function)[1]

    @wraps(function)
    def within(*positional: object, **named: object) -> object:
        given = signature.bind(*positional, **named).arguments
        for parameter in parameters:
            if parameter.name in given:
                parameter.check(given[parameter.name])
        return function(*positional, **named)

    return cast(F, within)


def checked(name: str, parameters: Sequence[Parameter], given: Mapping[str, object]) -> dict[str, object]:
    """Options as JSON or a command line have them, checked and of their types; other texts stay texts.

    Raises CutawayError that names an unknown option with the nearest one, one that is missing, or a wrong value.
    """
    fields: list[tuple[str, Any, Any]] = []
    for parameter in sorted(parameters, key=lambda each: not each.required):
        hint = str | None if parameter.is_text else parameter.hint
        if isinstance(parameter.option, Repeated):
            hint = object
            if parameter.required and parameter.name not in given:
                raise CutawayError(
                    "{question}: {name} is missing, expected JSON objects; a command takes each by --{each}",
                    question=name,
                    name=parameter.name,
                    each=parameter.option.each,
                )
        default = dataclasses.MISSING if parameter.required else parameter.default
        fields.append((parameter.name, hint, dataclasses.field(default=default)))
    read = parse(dataclasses.make_dataclass(name, fields), given, name)
    values = {key: getattr(read, key) for key in given}
    for parameter in parameters:
        if parameter.name in given and isinstance(parameter.option, Repeated):
            values[parameter.name] = parameter.option.read(values[parameter.name])
        elif parameter.name in given:
            parameter.check(values[parameter.name])
    return values


def read_token(text: str) -> int | str:
    """A token as a command line spells it: `#123` is an id, anything else a piece or a text."""
    return int(text[1:]) if text[:1] == "#" and text[1:].isdecimal() else text


def without_none(hint: Any) -> Any:
    """A type hint without `None` and without what is annotated."""
    if get_origin(hint) is Annotated:
        return without_none(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return reduce(or_, (kind for kind in get_args(hint) if kind is not type(None)))
    return hint
