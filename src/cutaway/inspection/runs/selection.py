"""What a reader points at: a token of the vocabulary, a place in the text, a layer. Checked before anything is run."""

from collections.abc import Iterable

from cutaway.errors import CutawayError
from cutaway.inspection.runs.run import Run, Tokens
from cutaway.inspection.runs.sides import Side
from cutaway.text.tokens.named_token import find_token, piece_label
from cutaway.text.tokens.tokenizer import Tokenizer


def token_id(run: Run, token: int | str, side: Side = "decoder") -> int:
    """The id of a token given by its id, as a word, or by its piece (see `text.named_token.find_token`).

    In an encoder-decoder a text is cut as those of `side` are: a pair may have two tokenizers with the same ids.
    Raises CutawayError for an id that the model does not have, and for a text of several tokens, naming them.
    """
    tokenizers = [tokenizer_of(run, side)] if isinstance(token, str) else ()
    return find_token(token, run.model.config.vocab_size, tokenizers)


def tokenizer_of(run: Run, side: Side) -> Tokenizer:
    """What cuts the texts of a side into tokens. CutawayError for a model without a tokenizer."""
    tokenizer = run.loaded.require_tokenizer()
    return tokenizer if side == "encoder" else tokenizer.target


def piece_of(run: Run, id: int) -> str:
    """The piece of an id as a reader sees it; `⟨32001⟩` for a row of the output matrix that no piece belongs to."""
    return piece_label(id, run.loaded.tokenizer)


def place(tokens: Tokens, position: int) -> int:
    """A position in the text from 0, where -1 means the last. CutawayError when there is none such."""
    if not -len(tokens) <= position < len(tokens):
        raise CutawayError(
            "position {position} is not in the text, which has {count} tokens: expected 0 to "
            "{count2}, or -1 for the last",
            position=position,
            count=len(tokens),
            count2=len(tokens) - 1,
        )
    return position % len(tokens)


def layer_number(n_layers: int, layer: int, what: str) -> int:
    """A layer from 0, where -1 means the last of `n_layers`. CutawayError when there is none such."""
    if not -n_layers <= layer < n_layers:
        raise CutawayError(
            "{what} has no layer {layer}: expected 0 to {n_layers}, or -1 for the last",
            what=what,
            layer=layer,
            n_layers=n_layers - 1,
        )
    return layer % n_layers


def at_least_one(**counts: int) -> None:
    """CutawayError for a count below 1, naming it."""
    for name, count in counts.items():
        if count < 1:
            raise CutawayError("{name} is {count}, expected at least 1", name=name, count=count)


def word_ids(run: Run, tokens: Iterable[int | str]) -> tuple[int, ...]:
    """`token_id` of each, in order."""
    return tuple(token_id(run, token) for token in tokens)
