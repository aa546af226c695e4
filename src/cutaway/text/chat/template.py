"""A chat as the model was taught to read it: the model's own template, in which no message can spell a control token.

A template (Jinja, Hugging Face's `chat_template`) writes roles, ends of turns and the messages into one text. Only what
the template itself writes may become control tokens. So before rendering, whatever in a message could be read as one,
alone or together with what the template puts beside it, is put between two marks, characters that occur nowhere else;
what stands between marks in the rendered text is plain text, and the marks are taken out again. (A template that cuts
single characters off a message could lose them.)
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from cutaway.errors import CutawayError
from cutaway.text.chat import process
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.text.tokens.vocabulary import ROLES as CONTROL_ROLES
from cutaway.words import names_of

ROLES = ("system", "developer", "user", "assistant", "tool")
# Noncharacters first: no text has a use for them.
_MARKS = [*range(0xFDD1, 0xFDF0), *range(0x10F000, 0x10FFFE)]
Spans = list[tuple[int, int]]  # in code points, in order


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
        # what the messages spell, the template has left out
        return Rendered(text, found)
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


# Marks.


class Spellings:
    """How control tokens are spelled, whole and in part."""

    def __init__(self, controls: Sequence[str]) -> None:
        longest_first = sorted(controls, key=len, reverse=True)
        exact = "|".join(map(re.escape, longest_first)) or "(?!)"  # which nothing matches
        self._exact = re.compile(exact)
        # In any case of letters, since a template may change it.
        self.any_case = re.compile(exact, re.IGNORECASE)
        self._begins = {control[:n].lower() for control in controls for n in range(1, len(control))}
        self._ends = {control[n:].lower() for control in controls for n in range(1, len(control))}
        self._longest = max(map(len, controls), default=1) - 1

    def find(self, text: str, said: Spans, cuts: Collection[int]) -> Spans:
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

    def suspects(self, text: str) -> Iterator[tuple[int, int]]:
        """Spans of a message that could be read as a control token, or as the part of one whose rest a template puts
        beside the message."""
        start, stop = len(text) - len(text.lstrip()), len(text.rstrip())  # templates strip
        yield from (found.span() for found in self.any_case.finditer(text))
        for n in range(1, min(self._longest, stop - start) + 1):
            if text[start : start + n].lower() in self._ends:
                yield start, start + n
            if text[stop - n : stop].lower() in self._begins:
                yield stop - n, stop


spellings_of = lru_cache(maxsize=8)(Spellings)


class Marks:
    """Two characters that occur in none of the `texts` (any plain JSON), put around suspects and taken out again."""

    def __init__(self, spellings: Spellings, *texts: object) -> None:
        there = set(json.dumps(texts, ensure_ascii=False))
        unused = list(islice((chr(code) for code in _MARKS if chr(code) not in there), 2))
        if len(unused) < 2:
            raise CutawayError("the messages use up Unicode's private characters; leave some of them out")
        self._opening, self._closing = unused
        self._spellings = spellings
        self._marked: set[str] = set()

    def put(self, value: object) -> object:
        """Plain JSON with marks in its texts. A field's name is not marked, since the template asks for it: one that
        spells a control token is a CutawayError."""
        if isinstance(value, str):
            return self._put(value)
        if isinstance(value, Mapping):
            for name in value:
                if self._spellings.any_case.search(str(name)):
                    raise CutawayError(
                        "a message has a field {name!r}, whose name spells a control token", name=name
                    )
            return {name: self.put(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.put(inner) for inner in value]
        return value

    def _put(self, text: str) -> str:
        spans: Spans = []
        for start, stop in sorted(self._spellings.suspects(text)):
            if spans and start < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
            else:
                spans.append((start, stop))
        self._marked |= {text[start:stop].lower() for start, stop in spans}
        parts, at = [], 0
        for start, stop in spans:
            parts += [text[at:start], self._opening, text[start:stop], self._closing]
            at = stop
        return "".join([*parts, text[at:]])

    def take_out(self, text: str) -> tuple[str, Spans]:
        """A rendered text without its marks, and where the template itself spelled control tokens.

        Where a template has cut a marked text apart, a mark stands alone: no control token goes across it."""
        pieces = re.split(f"([{self._opening}{self._closing}])", text)  # every second one is a mark
        said: Spans = []
        cuts: set[int] = set()
        at = 0
        for i in range(1, len(pieces), 2):
            at += len(pieces[i - 1])
            inner = pieces[i + 1]
            closed = pieces[i : i + 3 : 2] == [self._opening, self._closing]
            if closed and inner.lower() in self._marked:
                said.append((at, at + len(inner)))
            else:
                cuts.add(at)
        plain = "".join(pieces[::2])
        return plain, self._spellings.find(plain, said, cuts)
