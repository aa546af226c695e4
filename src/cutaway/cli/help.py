"""The help of commands in the reader's language. typer writes the English page of a command; here is the Chinese one,
since typer breaks lines at spaces only, and counts a character as one column."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from cutaway.text.display import pad, width
from cutaway.words import reader_locale

if TYPE_CHECKING:  # typer has no public name for these
    from typer._click import Context, HelpFormatter

Say = Callable[[str, str], str]  # English and Chinese -> one of them
C = TypeVar("C", bound=Callable[..., object])
_USAGE = {"[OPTIONS]": "[选项]", "COMMAND [ARGS]...": "命令 [参数]..."}
_LEFT = 30  # columns of the names; what is longer has a line of its own


def in_chinese(about: str) -> Callable[[C], C]:
    """What a command is for, for a Chinese reader; its docstring says it in English."""

    def decorate(command: C) -> C:
        if reader_locale() == "zh":
            command.__doc__ = about
        return command

    return decorate


class Command(TyperCommand):
    """A command whose --help is in the reader's language."""

    def format_help(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        if reader_locale() == "en":
            super().format_help(ctx, formatter)
        else:
            formatter.write("\n".join(_page(self, ctx, (), formatter.width)))


class Group(TyperGroup):
    """A group of commands whose --help is in the reader's language."""

    def format_help(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        if reader_locale() == "en":
            super().format_help(ctx, formatter)
        else:
            commands = [
                (name, command.get_short_help_str(formatter.width)) for name, command in self.commands.items()
            ]
            formatter.write("\n".join(_page(self, ctx, commands, formatter.width)))


def _page(
    command: TyperCommand | TyperGroup, ctx: "Context", commands: Sequence[tuple[str, str]], columns: int
) -> Iterator[str]:
    """The lines of a command's help, none wider than `columns` terminal columns."""
    from cutaway.page.wrapping import folded, wrapped

    start = f"用法：{ctx.command_path} "
    pieces = [_USAGE.get(piece, piece) for piece in command.collect_usage_pieces(ctx)]
    for place, line in enumerate(folded(pieces, columns - width(start))):
        yield f"{' ' * width(start) if place else start}{line}"
    for paragraph in (command.help or "").split("\n\n"):
        yield ""
        yield from (f"  {line}" for line in wrapped(paragraph, columns - 2))
    rows: dict[type, list[tuple[str, str, str]]] = {TyperArgument: [], TyperOption: []}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and isinstance(parameter, TyperArgument | TyperOption):
            rows[type(parameter)].append((record[0], _about(parameter), _remarks(parameter, ctx)))
    sections = (
        ("参数", rows[TyperArgument]),
        ("选项", rows[TyperOption]),
        ("命令", [(*named, "") for named in commands]),
    )
    for title, listed in sections:
        if not listed:
            continue
        yield ""
        yield f"{title}："
        left = min(_LEFT, max(width(name) for name, _, _ in listed)) + 2
        for name, text, remarks in listed:
            *lines, last = wrapped(text, columns - left - 2)
            whole = f"{last} {remarks}".rstrip()
            lines += [whole] if width(whole) <= columns - left - 2 else [last, remarks]
            if width(name) > left - 2:
                yield f"  {name}"
                name = ""
            for line in lines:
                yield f"  {pad(name, left)}{line}"
                name = ""


def _about(parameter: TyperArgument | TyperOption) -> str:
    return "显示这些说明后退出。" if "--help" in parameter.opts else parameter.help or ""


def _remarks(parameter: TyperArgument | TyperOption, ctx: "Context") -> str:
    """A parameter's default and limits."""
    default = parameter.get_default(ctx, call=False)
    remarks = [] if default is None or default is False else [f"默认 {default}"]
    bounds = (("≥", parameter.min), ("≤", parameter.max))
    remarks += [f"{sign} {bound}" for sign, bound in bounds if bound is not None]
    remarks += ["必填"] if parameter.required else []
    return f"[{'；'.join(remarks)}]" if remarks else ""
