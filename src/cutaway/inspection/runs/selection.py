"""What a reader points at: a token of the vocabulary, a place in the text, a layer. Checked before anything is run."""

from collections.abc import Iterable

from cutaway.errors import CutawayError
from cutaway.inspection.runs.run import Run, Tokens
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.text.display import SPACE


def token_id(run: Run, token: int | str) -> int:
    """The id of a token given by its id, by its piece as the vocabulary spells it (`[MASK]`), or by a text that is a
    single token, in which `▁` may stand for a space. An encoder-decoder's tokens are those of its target.

    Raises CutawayError for an id that the model has no score for, and for a text of several tokens, naming them.
    """
    size = run.model.config.vocab_size
    if isinstance(token, int):
        if not 0 <= token < size:
            raise CutawayError(f"token id {token} is not in the vocabulary, expected 0 to {size - 1}")
        return token
    tokenizer = run.loaded.require_tokenizer()
    if isinstance(run.model, EncoderDecoder):
        tokenizer = tokenizer.target
    found = tokenizer.id(token)
    if found is None:
        encoded = tokenizer.encode(token.replace(SPACE, " "))
        if len(encoded.ids) != 1:
            pieces = " ".join(encoded.pieces) or "none"
            raise CutawayError(
                f"{token!r} is {len(encoded.ids)} tokens in this vocabulary ({pieces}), expected one; "
                "give a piece, or an id"
            )
        found = encoded.ids[0]
    return found


def piece_of(run: Run, id: int) -> str:
    """The piece of an id as a reader sees it; `⟨id 32001⟩` for a row of the output matrix that no piece belongs to."""
    tokenizer = run.loaded.tokenizer
    if tokenizer is None or tokenizer.vocab_size <= id:
        return f"⟨id {id}⟩"
    return tokenizer.readable(id)


def place(tokens: Tokens, position: int) -> int:
    """A position in the text from 0, where -1 means the last. CutawayError when there is none such."""
    if not -len(tokens) <= position < len(tokens):
        raise CutawayError(
            f"position {position} is not in the text, which has {len(tokens)} tokens: expected 0 to "
            f"{len(tokens) - 1}, or -1 for the last"
        )
    return position % len(tokens)


def layer_number(n_layers: int, layer: int, what: str) -> int:
    """A layer from 0, where -1 means the last of `n_layers`. CutawayError when there is none such."""
    if not -n_layers <= layer < n_layers:
        raise CutawayError(f"{what} has no layer {layer}: expected 0 to {n_layers - 1}, or -1 for the last")
    return layer % n_layers


def at_least_one(**counts: int) -> None:
    """CutawayError for a count below 1, naming it."""
    for name, count in counts.items():
        if count < 1:
            raise CutawayError(f"{name} is {count}, expected at least 1")


def word_ids(run: Run, tokens: Iterable[int | str]) -> tuple[int, ...]:
    """`token_id` of each, in order."""
    return tuple(token_id(run, token) for token in tokens)
