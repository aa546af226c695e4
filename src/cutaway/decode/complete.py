"""Texts in, their continuations out: the decoder-only model with its tokenizer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutaway.checkpoint.folder import Loaded
from cutaway.decode import text_model
from cutaway.decode.generation import generate, stream
from cutaway.decode.own_settings import own_settings
from cutaway.decode.search import GREEDY, Limits, Search
from cutaway.decode.stepping import Generated
from cutaway.errors import CutawayError, TooLong, about
from cutaway.models.decoder_only import DecoderOnly
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Phrase, Text, say

_NEW_TOKENS = 100  # most new tokens, unless given
_ONE = say("the prompt")


@dataclass(frozen=True)
class Prompt:
    """A text made ready to be continued."""

    text: str  # as it was given
    ids: list[int]  # the start token where the model has one, then the text
    pieces: list[str]  # as a reader sees them
    notes: tuple[Phrase, ...]  # what was done to the text on the way


@dataclass(frozen=True)
class Continuation:
    """A prompt and what the model went on to write, the best first; their texts are the new ones alone."""

    prompt: Prompt
    hypotheses: list[text_model.Hypothesis]

    @property
    def best(self) -> text_model.Hypothesis:
        return self.hypotheses[0]


def continue_text(
    loaded: Loaded,
    prompts: Sequence[str],
    *,
    search: Search | None = None,
    limits: Limits | None = None,
    truncate: bool = False,
    batch_size: int = 16,
) -> list[Continuation]:
    """Go on writing every prompt; one continuation a prompt, in order, each as if it had been alone.

    `search` and `limits` are the model's own unless given (see `own_settings`), and where it has none greedy, and at
    most 100 new tokens. What a `search` leaves open, its `rules`, is the model's. An empty prompt is legal where the
    model has a start or end token to begin from: the model then writes from nothing. `truncate` keeps the end of a
    prompt that is too long for the model (and notes it) instead of refusing it.
    Raises CutawayError for prompts that leave no room within the position limit, or less than `limits` asks for at
    least; that it is less than what it asks for at most is noted.
    """
    if batch_size < 1:
        raise CutawayError("batch_size is {size}, expected at least 1", size=batch_size)
    tokenizer, model = _open(loaded)
    own = own_settings(loaded)
    search, limits = own.settled(search, GREEDY), limits or own.limits()
    several = len(prompts) > 1
    names = [
        say("prompt {number}", number=number) if several else _ONE for number in range(1, len(prompts) + 1)
    ]
    ready = [
        prepare_prompt(loaded, text, limits=limits, truncate=truncate, name=name)
        for text, name in zip(prompts, names, strict=True)
    ]
    limits = limits.within(loaded.config.max_len, _NEW_TOKENS)
    results: dict[int, list[Generated]] = {}
    for batch in _batches([prompt.ids for prompt in ready], limits, batch_size):
        found = generate(
            model,
            model.begin(len(batch)),
            [ready[i].ids for i in batch],
            search=search,
            limits=limits,
            eos_id=text_model.end_ids_of(loaded),
            forbidden=text_model.unwanted_ids(loaded, tokenizer),
            places=batch,
        )
        results |= zip(batch, found, strict=True)
    texts = ([text_model.readable(tokenizer, each) for each in results[i]] for i in range(len(ready)))
    return list(map(Continuation, ready, texts))


def stream_text(
    loaded: Loaded,
    prompt: str,
    *,
    search: Search | None = None,
    limits: Limits | None = None,
    truncate: bool = False,
) -> Iterator[text_model.StreamedToken]:
    """Go on writing one prompt, token by token. Arguments and errors as in `continue_text`, save that a beam is never
    the default; errors are raised at once."""
    tokenizer, model = _open(loaded)
    own = own_settings(loaded)
    search, limits = own.settled(search, GREEDY, beam=1), limits or own.limits()
    ready = prepare_prompt(loaded, prompt, limits=limits, truncate=truncate)
    steps = stream(
        model,
        model.begin(1),
        [ready.ids],
        search=search,
        limits=limits.within(loaded.config.max_len, _NEW_TOKENS),
        eos_id=text_model.end_ids_of(loaded),
        forbidden=text_model.unwanted_ids(loaded, tokenizer),
    )
    return text_model.read_stream(tokenizer, steps)


def prepare_prompt(
    loaded: Loaded, text: str, *, limits: Limits | None = None, truncate: bool = False, name: Text = _ONE
) -> Prompt:
    """What the model will read for `text`; `name` is what messages call it. Errors as in `continue_text`."""
    limits = limits or own_settings(loaded).limits()
    tokenizer = text_model.tokenizer_for(loaded, "decoder-only")
    encoding = tokenizer.encode(text)
    before = start_ids(loaded, empty=not encoding.ids)
    if not before and not encoding.ids:
        raise CutawayError(
            "{name} is empty, and this model has no start token to begin from; give it a text", name=name
        )
    room, kept, notes = loaded.config.max_len - len(before) - 1, len(encoding.ids), ()
    if kept > room:
        if not truncate or room < 1:
            raise TooLong(
                "{name} has {kept} tokens, but this model's limit is {max_len} positions for prompt "
                "and continuation together; shorten the prompt to {room} tokens or fewer, or cut it "
                "(truncate)",
                name=name,
                kept=kept,
                max_len=loaded.config.max_len,
                room=max(room, 0),
            )
        # Half of the positions, so that there is room to write.
        room = max(1, min(room, loaded.config.max_len // 2))
        notes = (say("only the last {room} of the prompt's {kept} tokens were read", room=room, kept=kept),)
        kept = room
    first = len(encoding.ids) - kept
    ids = [*before, *encoding.ids[first:]]
    pieces = [*map(tokenizer.readable, before), *encoding.pieces[first:]]
    if limits.max_len is not None and limits.max_len <= len(ids) < loaded.config.max_len:
        raise CutawayError(
            "{name} has {count} tokens, but this model's files limit it to {max_len} with the continuation "
            "(max_length); give max_new_tokens, which takes its place",
            name=name,
            count=len(ids),
            max_len=limits.max_len,
        )
    with about(name):
        limits.within(loaded.config.max_len, _NEW_TOKENS).least(ids)
    return Prompt(text, ids, pieces, (*notes, *limits.shortened(ids, loaded.config.max_len)))


def start_ids(loaded: Loaded, empty: bool = False) -> list[int]:
    """What the tokenizer puts before every text: the start token, where the model was trained with one. An `empty`
    prompt begins with the model's start or end token in any case, as after a text's end."""
    before, _ = loaded.require_tokenizer().around
    if before or not empty:
        return before
    bos = text_model.id_of(loaded, "bos_token_id", loaded.config.bos_id)
    return text_model.end_ids_of(loaded)[:1] if bos is None else [bos]


def _open(loaded: Loaded) -> tuple[Tokenizer, DecoderOnly]:
    tokenizer = text_model.tokenizer_for(loaded, "decoder-only")
    assert isinstance(loaded.model, DecoderOnly)
    return tokenizer, loaded.model.eval()


def _batches(prompts: list[list[int]], limits: Limits, size: int) -> Iterator[list[int]]:
    """Places of prompts to continue together, of similar length. Padding takes room in the model's positions, so a
    short prompt that would run into the limit beside a long one is left for the next batch."""
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    while order:
        longest = len(prompts[order[0]])
        fitting = [i for i in order if longest + limits.room(prompts[i]) <= (limits.max_len or 0)][: size - 1]
        batch = list(dict.fromkeys([order[0], *fitting]))[:size]
        order = [i for i in order if i not in set(batch)]
        yield batch
