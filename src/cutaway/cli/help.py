"""The help of commands in the reader's language, in lines that break where Chinese may break too: typer breaks them at
spaces only, and counts a wide character as one column."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer._click.exceptions import UsageError
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from cutaway.text.display import pad, width
from cutaway.words import phrase, said, told

# typer has no public name for these
if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

C = TypeVar("C", bound=Callable[..., object])
Listed = Sequence[tuple[str, str]]  # names of commands, and what each is for
LEFT = 30  # columns of the names; what is longer has a line of its own


def described(about: str) -> Callable[[C], C]:
    """What a command is for, as its help says it."""

    def decorate(command: C) -> C:
        command.__doc__ = said(phrase(about))
        return command

    return decorate


def argument(about: str, **more: Any) -> Any:
    """An argument of a command, and what it means."""
    return typer.Argument(help=said(phrase(about)), **more)


def option(about: str, *names: str, **more: Any) -> Any:
    """An option of a command: what it means, and its names where they are not the parameter's."""
    return typer.Option(*names, help=said(phrase(about)), **more)


class Command(TyperCommand):
    """A command whose --help is in the reader's language."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        # some do not say of which command they are
        except UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_help(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        formatter.write("\n".join(_page(self, ctx, (), formatter.width)))


class Group(TyperGroup):
    """A group of commands whose --help is in the reader's language."""

    def format_help(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        formatter.write("\n".join(_page(self, ctx, list(self.sections(ctx)), formatter.width)))

    def sections(self, ctx: "Context") -> Iterator[tuple[str, Listed]]:
        """The commands under their headings."""
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        yield (
            told("Commands:"),
            [(name, each.get_short_help_str(200)) for name, each in listed if each is not None],
        )


def _page(
    command: TyperCommand | TyperGroup, ctx: "Context", groups: Sequence[tuple[str, Listed]], columns: int
) -> Iterator[str]:
    """The lines of a command's help, none wider than `columns` terminal columns."""
    from cutaway.page.wrapping import folded, wrapped

    start = told("Usage: {command} ", command=ctx.command_path)
    usage = {"[OPTIONS]": told("[options]"), "COMMAND [ARGS]...": told("COMMAND ...")}
    pieces = [usage.get(piece, piece) for piece in command.collect_usage_pieces(ctx)]
    for place, line in enumerate(folded(pieces, columns - width(start))):
        yield f"{' ' * width(start) if place else start}{line}"
    for paragraph in (command.help or "").split("\n\n"):
        yield ""
        yield from (f"  {line}" for line in wrapped(paragraph, columns - 2))
    rows: dict[type, list[tuple[str, str, str]]] = {TyperArgument: [], TyperOption: []}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and isinstance(parameter, TyperArgument | TyperOption):
            name = record[0].replace(" range>", ">")
            rows[type(parameter)].append((name, _about(parameter), _remarks(parameter, ctx)))
    sections = [
        (told("Arguments:"), rows[TyperArgument]),
        (told("Options:"), rows[TyperOption]),
        *((title, [(*named, "") for named in listed]) for title, listed in groups),
    ]
    inner = max((width(name) for _, listed in groups for name, _ in listed), default=0)
    for title, listed in sections:
        if not listed:
            continue
        yield ""
        yield title
        left = min(LEFT, max(inner, *(width(name) for name, _, _ in listed))) + 2
        for name, text, remarks in listed:
            *lines, last = wrapped(text, columns - left - 2)
            whole = f"{last} {remarks}".rstrip()
            lines += (
                [whole]
                if width(whole) <= columns - left - 2
                else [last, *wrapped(remarks, columns - left - 2)]
            )
            if width(name) > left - 2:
                yield f"  {name}"
                name = ""
            for line in lines:
                yield f"  {pad(name, left)}{line}"
                name = ""


def _about(parameter: TyperArgument | TyperOption) -> str:
    return told("Show this page and exit.") if "--help" in parameter.opts else parameter.help or ""


def _remarks(parameter: TyperArgument | TyperOption, ctx: "Context") -> str:
    """A parameter's default and limits."""
    default = parameter.get_default(ctx, call=False)
    # of what a model may decide; see `arguments.own`
    usual = getattr(parameter, "show_default", None)
    default = usual if isinstance(usual, str) else parameter.opts[0] if default is True else default
    remarks = [] if default is None or default is False else [told("default {default}", default=default)]
    remarks += [told("a model's own comes first")] if isinstance(usual, str) else []
    bounds = (("≥", parameter.min), ("≤", parameter.max))
    remarks += [f"{sign} {bound}" for sign, bound in bounds if bound is not None]
    remarks += [told("required")] if parameter.required else []
    between = told("; ")
    return f"[{between.join(remarks)}]" if remarks else ""
