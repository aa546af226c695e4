"""A chat as the model was taught to read it: the model's own template, in which no message can spell a control token.

A template (Jinja, Hugging Face's `chat_template`) writes roles, ends of turns and the messages into one text. Only what
the template itself writes may become control tokens. So before rendering, whatever in a message could be read as one,
alone or together with what the template puts beside it, is put between two marks, characters that occur nowhere else;
what stands between marks in the rendered text is plain text, and the marks are taken out again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cutaway.errors import CutawayError
from cutaway.text.chat import process
from cutaway.text.chat.marks import Marks, Spans, spellings_of
from cutaway.text.tokenizer import ROLES as CONTROL_ROLES
from cutaway.text.tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class Rendered:
    """A chat as one text, and where its template wrote control tokens: spans in code points, in order."""

    text: str
    controls: Spans


def render(
    template: str,
    messages: Sequence[Mapping[str, object]],
    *,
    controls: Collection[str] = (),
    variables: Mapping[str, str] | None = None,
    reply: bool = True,
    where: str = "the model",
) -> Rendered:
    """The messages, each with `role` and `content` (and whatever else plain JSON holds), as the template writes them.

    `controls` are the spellings of control tokens, `variables` what the template finds beside the messages
    (`bos_token`, …), `reply` asks for the head of the answer that is to come.
    Raises CutawayError naming `where` for messages of unknown roles and whatever `TemplateProcess.render` refuses.
    """
    for number, message in enumerate(messages, start=1):
        if message.get("role") not in ROLES:
            raise CutawayError(
                "message {number} has the role {get!r}, expected one of {roles}",
                number=number,
                get=message.get("role"),
                roles=", ".join(ROLES),
            )
    spellings = spellings_of(tuple(controls))
    chat = [dict(message) for message in messages]
    marks = Marks(spellings, template, chat)
    marked = [
        {name: value if name == "role" else marks.put(value) for name, value in message.items()}
        for message in chat
    ]
    values = {**(variables or {}), "tools": None, "documents": None, "add_generation_prompt": reply}
    text = process.SHARED.render(template, {**values, "messages": chat}, where)
    found = spellings.find(text, [], ())
    if marked == chat:
        return Rendered(text, found)
    plain, own = marks.take_out(process.SHARED.render(template, {**values, "messages": marked}, where))
    if [text[start:stop] for start, stop in found] == [plain[start:stop] for start, stop in own]:
        return Rendered(text, found)  # what the messages spell, the template has left out
    return Rendered(plain, own)


def encode(tokenizer: Tokenizer, rendered: Rendered) -> list[int]:
    """The ids of a rendered chat. Nothing is added to what the template wrote, no start token either."""
    by_content = {content: id for id, content in tokenizer.controls.items()}
    own = [by_content[rendered.text[start:stop]] for start, stop in rendered.controls]
    if tokenizer.encode("a").pieces[:1] != ["a"]:
        # Such a tokenizer puts a space before a text, some do after a control token too: its own rule decides.
        [whole] = tokenizer.encode_ids([rendered.text], controls=True)
        if [id for id in whole if tokenizer.is_silent(id)] == [id for id in own if tokenizer.is_silent(id)]:
            return whole
    edges = [0, *(edge for span in rendered.controls for edge in span), len(rendered.text)]
    runs = [rendered.text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    plain = tokenizer.encode_ids(runs)
    ids = plain[0]
    for control, run in zip(own, plain[1:], strict=True):
        ids += [control, *run]
    return ids


def chat_ids(
    tokenizer: Tokenizer,
    template: str,
    messages: Sequence[Mapping[str, object]],
    *,
    reply: bool = True,
    where: str = "the model",
) -> list[int]:
    """The ids that a model reads for a chat: those of `transformers`' `apply_chat_template`, but that no message can
    contribute a control token. Arguments and errors as in `render`."""
    return encode(tokenizer, render_for(tokenizer, template, messages, reply=reply, where=where))


def render_for(
    tokenizer: Tokenizer,
    template: str,
    messages: Sequence[Mapping[str, object]],
    *,
    reply: bool = True,
    where: str = "the model",
) -> Rendered:
    """`render` with the control tokens of a tokenizer, which the template finds by their roles."""
    variables = {
        f"{role}_token": tokenizer.piece(id)
        for role in CONTROL_ROLES
        if (id := tokenizer.role(role)) is not None
    }
    return render(
        template,
        messages,
        controls=tokenizer.controls.values(),
        variables=variables,
        reply=reply,
        where=where,
    )
