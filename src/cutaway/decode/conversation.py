"""Messages in, the answer out: a decoder-only model that was taught to chat, through its own template."""

from bisect import bisect_left
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.generation import stream
from cutaway.decode.own_settings import own_settings
from cutaway.decode.search import GREEDY, Limits, Search
from cutaway.decode.stepping import looks_back
from cutaway.decode.text_model import StreamedToken, end_ids_of, read_stream, tokenizer_for, unwanted_ids
from cutaway.errors import CutawayError
from cutaway.models.decoder_only import DecoderOnly
from cutaway.text.chat.template import chat_ids, render_for
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Phrase, say

Role = Literal["system", "user", "assistant"]
_NEW_TOKENS = 512  # most new tokens of an answer, unless given


@dataclass(frozen=True)
class Message:
    """What one side said. A system message tells the model how to behave; it comes first."""

    role: Role
    content: str


@dataclass(frozen=True)
class ChatPrompt:
    """A chat made ready to be answered."""

    ids: list[int]  # as the model's template writes the messages, with the head of the answer
    notes: tuple[Phrase, ...]  # what was done to the chat on the way


@dataclass(frozen=True)
class Answer:
    """An answer under way. The joined `text` of the tokens is all of it; the token that ends it has none."""

    prompt: ChatPrompt
    tokens: Generator[StreamedToken, None, None]


class Memory:
    """What a model has read and written of a chat, so that the next prompt is read only from where it differs."""

    def __init__(self, model: DecoderOnly) -> None:
        self._model = model
        self.cache = model.begin(1)
        self.ids: list[int] = []  # the first `cache.length` of them are in the cache

    def rewind(self, prompt: Sequence[int]) -> int:
        """Keep what `prompt` begins with; returns how many of its ids need not be read again, never all of them."""
        layers = self.cache.self_attn
        # Where a step was interrupted, the layers disagree.
        if any(layer.length != self.cache.length for layer in layers):
            self.cache, self.ids = self._model.begin(1), []
            return 0
        pairs = zip(self.ids[: self.cache.length], prompt[:-1], strict=False)
        kept = next((i for i, (known, new) in enumerate(pairs) if known != new), None)
        if kept is None:
            kept = min(self.cache.length, len(prompt) - 1)
        self.cache.length = kept
        for layer in layers:
            layer.length = kept
        return kept


def answer(
    loaded: Loaded,
    messages: Sequence[Message],
    *,
    search: Search | None = None,
    limits: Limits | None = None,
    turn: int = 0,
    memory: Memory | None = None,
) -> Answer:
    """Answer the last message, token by token.

    `search` and `limits` are the model's own unless given (see `own_settings`; a beam is never the default), and where
    it has none greedy, and at most 512 new tokens. What a `search` leaves open, its `rules`, is the model's.
    The answer ends at the model's end tokens and at what its template puts after an answer. `turn` changes what is
    drawn, so that the same words later in a chat need not get the same answer. `memory` is of the same model.
    Raises CutawayError at once for a model that has no chat template or another family, for a chat that does not
    end with a user's message or is refused by the template, and for a last message that leaves no room.
    """
    tokenizer, template, model = _open(loaded)
    own = own_settings(loaded)
    search, limits = own.settled(search, GREEDY, beam=1), limits or own.limits()
    prompt = prepare_chat(loaded, messages, limits=limits)
    ends = _stop_ids(loaded, tokenizer, template)
    # What depends on the tokens that stand there must see the whole prompt.
    if memory is None or looks_back(search):
        memory = Memory(model)
    kept = memory.rewind(prompt.ids)
    memory.ids = list(prompt.ids)
    steps = stream(
        model,
        memory.cache,
        [prompt.ids[kept:]],
        search=search,
        limits=limits.within(loaded.config.max_len, _NEW_TOKENS).after(kept),
        eos_id=ends,
        places=[turn],
        forbidden=sorted({*unwanted_ids(loaded, tokenizer)} - {*ends}),
    )

    def tokens() -> Generator[StreamedToken, None, None]:
        # Control tokens inside an answer (<think>) are spelled, since templates look for them in earlier answers.
        text = tokenizer.stream(skip_special=False)
        for token in read_stream(tokenizer, steps):
            memory.ids.append(token.id)
            certain = "" if token.id in ends else text.push(token.id)
            yield replace(token, text=certain + (text.finish() if token.finish else ""))

    return Answer(prompt, tokens())


def prepare_chat(loaded: Loaded, messages: Sequence[Message], *, limits: Limits | None = None) -> ChatPrompt:
    """What the model will read for `messages`.

    A chat that has outgrown the model's positions loses its oldest turns, with a note: a quarter of the positions,
    or the answer's limit if that is less, stay free for the answer. System messages at its head stay.
    Errors as in `answer`.
    """
    tokenizer, template, _ = _open(loaded)
    if not messages or messages[-1].role != "user":
        raise CutawayError("there is nothing to answer: the last message of a chat must be the user's")
    n_system = next(i for i, message in enumerate(messages) if message.role != "system")
    later = [i for i in range(n_system + 1, len(messages)) if messages[i].role == "user"]
    starts = [n_system, *later]  # a turn goes from one message of the user's to the next

    def ids_from(start: int) -> list[int]:
        chat = [*messages[:n_system], *messages[start:]]
        values = [{"role": message.role, "content": message.content} for message in chat]
        return chat_ids(tokenizer, template, values, where=str(loaded.path))

    limits = limits or own_settings(loaded).limits()
    limit = loaded.config.max_len if limits.max_len is None else min(limits.max_len, loaded.config.max_len)
    most = _NEW_TOKENS if limits.max_new_tokens is None else limits.max_new_tokens
    room = limit - max(1, min(most, limit // 4))
    ids = ids_from(starts[0])
    if len(ids) <= room:
        return ChatPrompt(ids, ())
    last = len(starts) - 1  # the turn that is to be answered, which stays in any case
    dropped = bisect_left(starts, True, min(1, last), last, key=lambda start: len(ids_from(start)) <= room)
    ids = ids_from(starts[dropped])
    if len(ids) >= limit:
        raise CutawayError(
            "the last message makes a prompt of {count} tokens, but this model's limit is {limit} "
            "positions for messages and answer together; shorten it",
            count=len(ids),
            limit=limit,
        )
    note = say(
        "the chat has outgrown this model's {limit} positions; oldest turns that are left out: {dropped}",
        limit=limit,
        dropped=dropped,
    )
    return ChatPrompt(ids, (note,) if dropped else ())


class Conversation:
    """A chat that goes on: it keeps what was said, and what the model has read of it."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        system: str | None = None,
        search: Search | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Every answer is found by `search` within `limits`, as in `answer`. Raises CutawayError for a model that
        cannot chat."""
        _, _, model = _open(loaded)
        self.messages = [] if system is None else [Message("system", system)]
        self._loaded, self._search, self._limits = loaded, search, limits
        self._memory = Memory(model)
        self._turn = 0

    def say(self, text: str) -> Answer:
        """The answer to `text`; errors as in `answer`. Both are remembered when the answer has ended or its tokens
        are closed; an answer that was closed before its first word leaves no trace."""
        said = Message("user", text)
        found = answer(
            self._loaded,
            [*self.messages, said],
            search=self._search,
            limits=self._limits,
            turn=self._turn,
            memory=self._memory,
        )
        self._turn += 1
        return Answer(found.prompt, self._remember(said, found.tokens))

    def _remember(
        self, said: Message, tokens: Generator[StreamedToken, None, None]
    ) -> Generator[StreamedToken, None, None]:
        text, ended = "", False
        try:
            for token in tokens:
                text += token.text
                ended = token.finish is not None
                yield token
        finally:
            if text or ended:
                self.messages += [said, Message("assistant", text)]


def _open(loaded: Loaded) -> tuple[Tokenizer, str, DecoderOnly]:
    tokenizer = tokenizer_for(loaded, "decoder-only")
    assert isinstance(loaded.model, DecoderOnly)
    if loaded.chat_template is None:
        raise CutawayError(
            "{path} has no chat template, so nothing says how messages are written for it; let it go on with "
            "a text: use it with `cutaway generate`",
            path=loaded.path,
        )
    return tokenizer, loaded.chat_template, loaded.model.eval()


def _stop_ids(loaded: Loaded, tokenizer: Tokenizer, template: str) -> list[int]:
    """The model's end tokens, and the control token that its template writes after an answer, which the config of
    some models misses."""
    ends, answered = end_ids_of(loaded), "Quite so"
    chat = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": answered},
        {"role": "user", "content": "?"},
    ]
    # A template that refuses such a chat tells nothing.
    with suppress(CutawayError):
        rendered = render_for(tokenizer, template, chat, where=str(loaded.path))
        stop = rendered.text.rfind(answered) + len(answered)
        following = next((span for span in rendered.controls if span[0] >= stop), None)
        if following is not None and rendered.text[: following[0]].rstrip().endswith(answered):
            id = tokenizer.id(rendered.text[slice(*following)])
            assert id is not None, "rendered.controls are spellings of the tokenizer's"
            return list(dict.fromkeys([*ends, id]))
    return ends
