"""A model with its tokenizer: whether it can do what is asked, which ids it writes, and what they say to a reader."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.generation import Step
from cutaway.decode.stepping import Alternatives, Finish, Generated
from cutaway.errors import CutawayError
from cutaway.text.tokens.named_token import piece_label
from cutaway.text.tokens.tokenizer import Tokenizer

COMMANDS = {
    "encoder-decoder": "cutaway translate",
    "decoder-only": "cutaway generate",
    "encoder-only": "cutaway fill",
}


@dataclass(frozen=True)
class Alternative:
    """A token the model could have chosen."""

    id: int
    piece: str  # as a reader sees it
    log_prob: float


@dataclass(frozen=True)
class Hypothesis:
    """One generated text, token by token. The lists are parallel; the last token is the end token if there is one.

    `cross_attention` (L, H, T, S) is kept when "full" was asked for, `alignment` (T, S), its mean over layers and
    heads, when "full" or "mean" was: row t tells where the model looked when it chose token t, over the source pieces,
    and sums to 1.
    """

    text: str
    ids: list[int]
    pieces: list[str]  # as a reader sees them
    log_probs: list[float]
    score: float
    finish: Finish  # "stop": the model ended the text; "length": a limit did
    alternatives: list[list[Alternative]]  # best first, the chosen one among them; empty unless asked for
    alignment: Tensor | None = None
    cross_attention: Tensor | None = None


NOTHING = Hypothesis("", [], [], [], 0.0, "stop", [])


@dataclass(frozen=True)
class StreamedToken:
    """One token as soon as it is chosen. The joined `text` of all is the whole result; it may be empty while a
    character is incomplete."""

    text: str
    id: int
    piece: str
    log_prob: float
    finish: Finish | None
    alternatives: list[Alternative]
    attention: Tensor | None  # (S,), or (L, H, S) where every layer and head was asked for


def tokenizer_for(loaded: Loaded, family: str) -> Tokenizer:
    """The checkpoint's tokenizer, once it is clear that this model can do what is asked of it.

    Raises CutawayError when the model is of another family, or the tokenizer is missing or of another vocabulary.
    """
    if loaded.config.head == "none":
        raise CutawayError(
            "{path} has no output head: it gives vectors, not words; use it with `cutaway embed`",
            path=loaded.path,
        )
    if loaded.config.family != family:
        raise CutawayError(
            "{path} is a model of the {family} family, expected {expected}; use it with `{command}`",
            path=loaded.path,
            family=loaded.config.family,
            expected=family,
            command=COMMANDS[loaded.config.family],
        )
    if loaded.tokenizer is None:
        raise CutawayError(
            "{path} has no tokenizer, so it cannot work with text; "
            "lay the model's tokenizer.json or vocabulary files beside it",
            path=loaded.path,
        )
    if loaded.tokenizer.vocab_size > loaded.config.vocab_size:
        raise CutawayError(
            "{path}: the tokenizer has {pieces} pieces, but the model's vocab_size is "
            "{vocab_size}; they do not belong together",
            path=loaded.path,
            pieces=loaded.tokenizer.vocab_size,
            vocab_size=loaded.config.vocab_size,
        )
    return loaded.tokenizer


def end_ids_of(loaded: Loaded) -> list[int]:
    """The ids that end a text: generation_config.json's where it has them, else the config's."""
    given = loaded.generation.get("eos_token_id", loaded.config.eos_id)
    ids = [given] if isinstance(given, int) else given
    if ids is None:
        return []
    size = loaded.config.vocab_size
    if not (isinstance(ids, list) and all(isinstance(id, int) and 0 <= id < size for id in ids)):
        raise CutawayError(
            "{path}: eos_token_id is {given!r}, expected an id, or a list of ids, of the model",
            path=loaded.path,
            given=given,
        )
    return ids


def id_of(loaded: Loaded, key: str, usual: int | None = None) -> int | None:
    """The id that generation_config.json gives for `key`, else the `usual` one. Raises CutawayError for what is no id
    of the model."""
    given = loaded.generation.get(key, usual)
    if given is not None and not (isinstance(given, int) and 0 <= given < loaded.config.vocab_size):
        raise CutawayError(
            "{path}: {key} is {given!r}, expected an id of the model", path=loaded.path, key=key, given=given
        )
    return given


def mask_id_of(loaded: Loaded) -> int | None:
    """The id that stands where a word is hidden: the config's where it has one, else the tokenizer's `mask`."""
    if loaded.config.mask_id is not None or loaded.tokenizer is None:
        return loaded.config.mask_id
    return loaded.tokenizer.role("mask")


def unwanted_ids(loaded: Loaded, tokenizer: Tokenizer) -> list[int]:
    """Ids that decoding never writes: the rows of the model's vocabulary that have no piece, and the control tokens
    other than the end tokens; of a decoder-only model only those with a role but `eos` (a chat's marks have none)."""
    controls = set(tokenizer.controls)
    if loaded.config.family == "decoder-only":
        controls = {id for role, id in tokenizer.roles.items() if role != "eos"}
    beyond = range(tokenizer.vocab_size, loaded.config.vocab_size)
    return sorted({*controls, *beyond} - set(end_ids_of(loaded)))


def readable(tokenizer: Tokenizer, generated: Generated, n_source: int = 0, full: bool = False) -> Hypothesis:
    """`generated` as a Hypothesis; its attention is cut to the `n_source` tokens of its own source."""
    attention = generated.cross_attention
    if attention is not None:
        attention = attention[..., :n_source]
    return Hypothesis(
        tokenizer.decode(generated.ids),
        generated.ids,
        [tokenizer.readable(id) for id in generated.ids],
        generated.log_probs,
        generated.score,
        generated.finish,
        [_readable_alternatives(tokenizer, each) for each in generated.alternatives],
        attention.mean(dim=(0, 1)) if attention is not None and full else attention,
        attention if full else None,
    )


def _readable_alternatives(tokenizer: Tokenizer, alternatives: Alternatives) -> list[Alternative]:
    return [Alternative(id, piece_label(id, tokenizer), log_prob) for id, log_prob in alternatives]


def read_stream(tokenizer: Tokenizer, steps: Iterator[Step]) -> Iterator[StreamedToken]:
    """The steps of one row, with the text that becomes certain at each."""
    text = tokenizer.stream()
    for step in steps:
        id, finish = step.ids[0], step.finish[0]
        yield StreamedToken(
            text.push(id) + (text.finish() if finish else ""),
            id,
            tokenizer.readable(id),
            step.log_probs[0],
            finish,
            _readable_alternatives(tokenizer, step.alternatives[0]) if step.alternatives else [],
            None if step.cross_attention is None else step.cross_attention[0],
        )
