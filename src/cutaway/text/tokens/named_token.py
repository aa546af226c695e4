"""A token that a reader names: by its id, as a word, or by its piece."""

from collections.abc import Iterable, Iterator, Sequence
from operator import index
from typing import SupportsIndex

from cutaway.errors import CutawayError, brief, nearest
from cutaway.text.display import SPACE, truncate, visible
from cutaway.text.tokens.tokenizer import Tokenizer

_PIECES = 80  # columns of a message that the pieces of a text may take


def find_token(token: SupportsIndex | str, size: int, tokenizers: Sequence[Tokenizer]) -> int:
    """The id, below `size`, of the token that `token` names: a whole number is an id, a text is looked up.

    A text means, and the first of these that is one token counts:
    1. a control token, by its exact spelling (`[MASK]`);
    2. a word as it stands at the beginning of a text (`king` is `▁king`, though `king` may also be a piece, the end of
       another word: that one has to be named by its id);
    3. a piece as the vocabulary spells it (`##ing`, `Ġcat`);
    4. a word as it stands after a space;
    5. a piece as a reader sees it (`⟨E4⟩`, `⏎`).
    `▁` and a space are the same in it; a text that begins with one is no word as in 2.

    `tokenizers` cut texts into the same ids in several ways where the token may be of either side of a pair; where
    there are none, only ids can be named.
    Raises CutawayError for an id out of range, for a text that is no single token, with its pieces and the nearest
    piece, and for one that is several different tokens, with those.
    """
    if not isinstance(token, str):
        try:
            id = index(token)  # of NumPy and torch too
        except TypeError:
            raise CutawayError(
                "a token is {token}, expected an id, 0 to {last}, or a text",
                token=brief(token),
                last=size - 1,
            ) from None
        if not 0 <= id < size:
            raise CutawayError(
                "token id {id} is not in the vocabulary, expected 0 to {last}", id=id, last=size - 1
            )
        return id
    if not tokenizers:
        raise CutawayError(
            "there is no tokenizer to find {token} with: give an id, 0 to {last}",
            token=brief(token),
            last=size - 1,
        )
    for found in zip(*(_meanings(token, tokenizer) for tokenizer in tokenizers), strict=True):
        named = {id for ids in found for id in ids if id < size}
        if len(named) > 1:
            several = ", ".join(f"{piece_label(id, tokenizers[0])} (id {id})" for id in sorted(named))
            raise CutawayError(
                "{token} may be any of {several}: give the id", token=brief(token), several=several
            )
        if named:
            return named.pop()
    raise _not_one(token, tokenizers[0])


def piece_label(id: int, tokenizer: Tokenizer | None) -> str:
    """The piece of an id as a reader sees it; `⟨32001⟩` for a row of a model's table that no piece belongs to."""
    if tokenizer is None or id >= tokenizer.vocab_size:
        return f"⟨{id}⟩"
    try:
        return tokenizer.readable(id)
    # a hole in the vocabulary
    except CutawayError:
        return f"⟨{id}⟩"


def _meanings(text: str, tokenizer: Tokenizer) -> Iterator[Iterable[int]]:
    """The tokens that a text may mean, in the order that `find_token` gives."""
    spaced = text.replace(SPACE, " ")
    begins_with_space = spaced.startswith(" ")
    yield [id for id, spelled in tokenizer.controls.items() if spelled == text]
    yield [] if begins_with_space else _single(spaced, tokenizer)
    pieces = (tokenizer.id(spelled) for spelled in (text, spaced, spaced.replace(" ", SPACE)))
    yield [id for id in pieces if id is not None]
    yield _single(spaced if begins_with_space else f" {spaced}", tokenizer)
    shown = visible(text)
    yield [id for id, label in enumerate(_labels(tokenizer)) if label == shown]


def _single(text: str, tokenizer: Tokenizer) -> list[int]:
    """The tokens of a text where it is one, and known."""
    [ids] = tokenizer.encode_ids([text])
    return ids if len(ids) == 1 and ids[0] != tokenizer.role("unk") else []


def _not_one(text: str, tokenizer: Tokenizer) -> CutawayError:
    hint = nearest(text, _labels(tokenizer))
    ids = tokenizer.encode_ids([text])[0]
    if not ids or tokenizer.role("unk") in ids:
        return CutawayError(
            "{token} is not in the vocabulary{hint}; give a word or a piece that is, or an id",
            token=brief(text),
            hint=hint,
        )
    return CutawayError(
        "{token} is {count} tokens in this vocabulary ({pieces}), expected one; give a piece{hint}, or an id",
        token=brief(text),
        count=len(ids),
        pieces=truncate(" ".join(piece_label(id, tokenizer) for id in ids), _PIECES),
        hint=hint,
    )


def _labels(tokenizer: Tokenizer) -> list[str]:
    return [piece_label(id, tokenizer) for id in range(tokenizer.vocab_size)]
