"""`cutaway chat`: talk with a model, line by line; the answers are shown as they are written."""

import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.help import in_chinese
from cutaway.cli.terminal import note, write
from cutaway.errors import CutawayError
from cutaway.page.locale import told
from cutaway.zoo import find

if TYPE_CHECKING:
    from cutaway.decode.chat import Conversation


@in_chinese(
    "与学过对话的模型交谈。标准输入的每一行是一条消息。\n\n在终端里，Ctrl-C 打断回答，Ctrl-D 结束对话。"
)
def chat(
    model: Annotated[
        str,
        typer.Argument(
            help=told(
                "A model's folder or GGUF file; it must have a chat template.",
                "模型文件夹或 GGUF 文件；它必须带有对话模板。",
            )
        ),
    ],
    system: Annotated[
        str | None,
        typer.Option(
            help=told("Tell the model beforehand how to behave.", "事先告诉模型该怎样应答。"),
            metavar=told("TEXT", "文字"),
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(
            help=told(
                "0 takes the likeliest token; 1 draws as learned.", "0 总取最可能的词块；1 按学到的概率抽取。"
            )
        ),
    ] = 0.7,
    top_p: Annotated[
        float,
        typer.Option(
            help=told(
                "Draw from the fewest tokens that have this mass.",
                "只从概率之和达到此值的最少几个词块中抽取。",
            )
        ),
    ] = 0.95,
    max_tokens: Annotated[
        int, typer.Option(help=told("Most new tokens of an answer.", "一次回答最多多少个新词块。"))
    ] = 512,
    seed: Annotated[
        int, typer.Option(help=told("The same seed gives the same answers.", "种子相同，回答就相同。"))
    ] = 0,
) -> None:
    """Talk with a model that was taught to chat. Each line of standard input is a message.

    At a terminal Ctrl-C stops an answer, Ctrl-D ends the chat."""
    path = find(model)

    from cutaway.checkpoint.folder import load
    from cutaway.decode.chat import Conversation
    from cutaway.decode.sampling import Sampling

    conversation = Conversation(
        load(path),
        system=system,
        max_new_tokens=max_tokens,
        sampling=Sampling(temperature=temperature, top_p=top_p, seed=seed),
    )
    if not sys.stdin.isatty():
        for message in _piped():
            _answer(conversation, message)
        return
    note(told("Ctrl-C stops an answer, Ctrl-D ends the chat", "Ctrl-C 打断回答，Ctrl-D 结束对话"))
    for message in _typed("> " if sys.stdout.isatty() else ""):
        try:
            _answer(conversation, message)
        except KeyboardInterrupt:
            write()
        except CutawayError as error:  # a message that this model cannot take need not end the chat
            note(str(error))


def _answer(conversation: "Conversation", message: str) -> None:
    answer = conversation.say(message)
    for remark in answer.prompt.notes:
        note(remark)
    finish = None
    with closing(answer.tokens):  # also when interrupted, so that what was said so far is remembered
        for token in answer.tokens:
            write(token.text, end="")
            finish = token.finish
    write()
    if finish == "length":
        note(
            told(
                "the answer was cut: --max-tokens was reached, or the end of the model's positions",
                "回答被截断：到了 --max-tokens，或用完了模型的位置",
            )
        )


def _piped() -> Iterator[str]:
    """The lines of standard input that are not blank, each as soon as it is there."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise CutawayError(
                f"standard input:{number}: not UTF-8 at byte {error.start + 1} of the line "
                f"(0x{line[error.start]:02X})"
            ) from error
        if text.strip():
            yield text


def _typed(sign: str) -> Iterator[str]:
    """The lines typed at a terminal that are not blank, until Ctrl-D."""
    with suppress(ImportError):  # not on every system; where it is, lines can be edited and come back
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
            note(told("that was not UTF-8; please type it again", "输入的不是 UTF-8，请重新输入"))
            continue
        if text.strip():
            yield text
