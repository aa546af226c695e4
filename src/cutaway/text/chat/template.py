"""A chat as the model was taught to read it: the model's own template, in which no message can spell a control token.

A template (Jinja, Hugging Face's `chat_template`) writes roles, ends of turns and the messages into one text. Only what
the template itself writes may become control tokens, whatever it does to the messages on the way. So the chat is also
rendered in disguise: in the messages every character that some control token has is another one that occurs nowhere
else. A control token in such a rendering is the template's own. Where the plain rendering has the same ones, it
stands, else the disguised one with its characters put back.

A template may look for words of its own in a message (`</think>`). These are left as they are in a second disguise,
each between two marks, and what touches marks is no control token. It is preferred where its control tokens are those
of the first: a template that cuts marks off a message cannot make one of it.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from cutaway.errors import CutawayError
from cutaway.text.chat import process
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.text.tokens.vocabulary import ROLES as CONTROL_ROLES
from cutaway.words import names_of

ROLES = ("system", "developer", "user", "assistant", "tool")
# Noncharacters first: no text has a use for them.
_UNUSED = [*range(0xFDD1, 0xFDF0), *range(0x10F000, 0x10FFFE)]
_LITERAL = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
Spans = list[tuple[int, int]]  # in code points, in order


@dataclass(frozen=True)
class Rendered:
    """A chat as one text, and where its template wrote control tokens: spans in code points, in order."""

    text: str
    controls: Spans

    @property
    def spelled(self) -> list[str]:
        """Its control tokens."""
        return [self.text[start:stop] for start, stop in self.controls]


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
    (`bos_token`, …), `reply` asks for the head of the answer that is to come. Raises CutawayError naming `where` for
    messages of unknown roles and whatever `TemplateProcess.render` refuses.
    """
    for number, message in enumerate(messages, start=1):
        if message.get("role") not in ROLES:
            raise CutawayError(
                "message {number} has the role {role!r}, expected one of {roles}",
                number=number,
                role=message.get("role"),
                roles=names_of(ROLES),
            )
    spellings = spellings_of(tuple(controls))
    chat = [dict(message) for message in messages]
    disguise = Disguise(spellings, template, chat)
    values = {**(variables or {}), "tools": None, "documents": None, "add_generation_prompt": reply}

    def rendered(messages: object) -> str:
        return process.SHARED.render(template, {**values, "messages": messages}, where)

    text = rendered(chat)
    found = Rendered(text, spellings.find(text, (), ()))
    whole = disguise.taken_off(rendered([disguise.put_on(message, ()) for message in chat]))
    if found == whole:
        return found
    marked = disguise.taken_off(rendered([disguise.put_on(message, literals(template)) for message in chat]))
    if marked.spelled != whole.spelled:
        return whole
    return found if found.spelled == whole.spelled else marked


def encode(tokenizer: Tokenizer, rendered: Rendered) -> list[int]:
    """The ids of a rendered chat. Nothing is added to what the template wrote, no start token either."""
    by_content = {content: id for id, content in tokenizer.controls.items()}
    edges = [0, *(edge for span in rendered.controls for edge in span), len(rendered.text)]
    runs = [rendered.text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    plain = tokenizer.encode_ids(runs)
    ids = plain[0]
    for control, run in zip(rendered.spelled, plain[1:], strict=True):
        ids += [by_content[control], *run]
    if tokenizer.encode("a").pieces[:1] != ["a"]:
        # Such a tokenizer puts a space before a text, some do after a control token too: its own rule decides, as long
        # as it sees no control token in a message; unk stands for a character in one as well.
        [whole] = tokenizer.encode_ids([rendered.text], controls=True)
        if list(filter(tokenizer.is_control, whole)) == list(filter(tokenizer.is_control, ids)):
            return whole
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


# Disguises.


class Spellings:
    """How control tokens are spelled."""

    def __init__(self, controls: Sequence[str]) -> None:
        longest_first = sorted(controls, key=len, reverse=True)
        exact = "|".join(map(re.escape, longest_first)) or "(?!)"  # which nothing matches
        self._exact = re.compile(exact)
        # In any case of letters, since a template may change it.
        self.any_case = re.compile(exact, re.IGNORECASE)
        every = "".join(controls)
        self.characters = frozenset(
            each for each in every + every.lower() + every.upper() if not each.isspace()
        )

    def find(self, text: str, said: Spans | tuple[()], cuts: Collection[int]) -> Spans:
        """Where the `tokenizers` library sees control tokens (the leftmost, of several the longest), without those that
        touch a span of `said` or have a cut inside."""
        plain = bytearray(len(text))
        for start, stop in said:
            plain[start:stop] = b"\1" * (stop - start)
        inside = set(cuts)
        found, position = [], 0
        while match := self._exact.search(text, position):
            start, stop = match.span()
            own = 1 not in plain[start:stop] and inside.isdisjoint(range(start + 1, stop))
            if own:
                found.append((start, stop))
            position = stop if own else start + 1
        return found


spellings_of = lru_cache(maxsize=8)(Spellings)


@lru_cache(maxsize=8)
def literals(template: str) -> tuple[str, ...]:
    """The texts in quotation marks that a template's code has, the longest first."""
    found = (each[1:-1] for each in _LITERAL.findall(template))
    spelled = {each.replace("\\n", "\n").replace("\\t", "\t") for each in found}
    return tuple(sorted((each for each in spelled if each and not each.isspace()), key=len, reverse=True))


class Disguise:
    """Characters that occur in none of the `texts` (any plain JSON) in the place of those of control tokens, and two as
    marks."""

    def __init__(self, spellings: Spellings, *texts: object) -> None:
        there = set(json.dumps(texts, ensure_ascii=False))
        unused = (chr(code) for code in _UNUSED if chr(code) not in there)
        wanted = sorted(spellings.characters & there)
        given = list(islice(unused, len(wanted) + 2))
        if len(given) < len(wanted) + 2:
            raise CutawayError("the messages use up Unicode's private characters; leave some of them out")
        self._opening, self._closing, *others = given
        self._on = str.maketrans(dict(zip(wanted, others, strict=True)))
        self._off = str.maketrans(dict(zip(others, wanted, strict=True)))
        self._spellings = spellings

    def put_on(self, value: object, kept: Sequence[str]) -> Any:
        """Plain JSON with its texts disguised, but for those of `kept` in them, which are marked, and for a message's
        role. A field's name is not disguised, since the template asks for it: one that spells a control token is a
        CutawayError."""
        if isinstance(value, str):
            if not kept:
                return value.translate(self._on)
            parts = re.split(f"({'|'.join(map(re.escape, kept))})", value)
            return "".join(
                f"{self._opening}{part}{self._closing}" if place % 2 else part.translate(self._on)
                for place, part in enumerate(parts)
            )
        if isinstance(value, Mapping):
            for name in value:
                if self._spellings.any_case.search(str(name)):
                    raise CutawayError(
                        "a message has a field {name!r}, whose name spells a control token", name=name
                    )
            return {
                name: inner if name == "role" and inner in ROLES else self.put_on(inner, kept)
                for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.put_on(inner, kept) for inner in value]
        return value

    def taken_off(self, text: str) -> Rendered:
        """A rendered text as it is without disguise, and where the template itself spelled control tokens: nothing
        between two marks is one, nor what goes across a mark."""
        pieces = re.split(f"([{self._opening}{self._closing}])", text)  # every second one is a mark
        said: Spans = []
        cuts: set[int] = set()
        at = 0
        for i in range(1, len(pieces), 2):
            at += len(pieces[i - 1])
            cuts.add(at)
            if pieces[i] == self._opening:
                said.append((at, at + len(pieces[i + 1])))
        plain = "".join(pieces[::2])
        found = self._spellings.find(plain, said, cuts)
        return Rendered(plain.translate(self._off), found)
