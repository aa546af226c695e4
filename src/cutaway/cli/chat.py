"""`cutaway chat`: talk with a model, line by line; the answers are shown as they are written."""

import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from cutaway.cli.arguments import Seed, TopP, drawing, own
from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import note, open_model, standard_lines, write
from cutaway.errors import CutawayError
from cutaway.words import told

if TYPE_CHECKING:
    from cutaway.decode.conversation import Conversation


@described(
    "Talk with a model that was taught to chat. Each line of standard input is a "
    "message.\n\nAt a terminal Ctrl-C stops an answer, Ctrl-D ends the chat."
)
def chat(
    model: Annotated[str, argument("A model's folder or GGUF file; it must have a chat template.")],
    system: Annotated[
        str | None, option("Tell the model beforehand how to behave.", metavar=told("TEXT"))
    ] = None,
    temperature: Annotated[float | None, drawing(0.7)] = None,
    top_p: TopP = None,
    max_new_tokens: Annotated[
        int | None, option("Most new tokens of an answer.", show_default=own(512))
    ] = None,
    seed: Seed = 0,
) -> None:
    loaded = open_model(model)

    from cutaway.decode.conversation import Conversation
    from cutaway.decode.own_settings import own_settings
    from cutaway.decode.sampling import Sampling
    from cutaway.decode.search import Search

    settings = own_settings(loaded)
    usual = Search(sampling=Sampling(temperature=0.7, top_p=0.95))
    conversation = Conversation(
        loaded,
        system=system,
        search=settings.search(usual, beam=1, temperature=temperature, top_p=top_p, seed=seed),
        limits=settings.limits(max_new_tokens),
    )
    for remark in settings.notes:
        note(remark)
    if not sys.stdin.isatty():
        for message in standard_lines():
            if message.strip():
                _answer(conversation, message)
        return
    note("Ctrl-C stops an answer, Ctrl-D ends the chat")
    for message in _typed("> " if sys.stdout.isatty() else ""):
        try:
            _answer(conversation, message)
        except KeyboardInterrupt:
            write()
        # a message that this model cannot take need not end the chat
        except CutawayError as error:
            note(error.message)


def _answer(conversation: "Conversation", message: str) -> None:
    answer = conversation.say(message)
    for remark in answer.prompt.notes:
        note(remark)
    finish = None
    # also when interrupted, so that what was said so far is remembered
    with closing(answer.tokens):
        for token in answer.tokens:
            write(token.text, end="")
            finish = token.finish
    write()
    if finish == "length":
        note("the answer was cut: --max-new-tokens was reached, or the end of the model's positions")


def _typed(sign: str) -> Iterator[str]:
    """The lines typed at a terminal that are not blank, until Ctrl-D."""
    # not on every system; where it is, lines can be edited and come back
    with suppress(ImportError):
        import_module("readline")
    while True:
        try:
            text = input(sign)
        except EOFError:
            write()
            return
        except KeyboardInterrupt:
            write()
            continue
        except UnicodeDecodeError:
            note("that was not UTF-8; please type it again")
            continue
        if text.strip():
            yield text
