"""A text with gaps in, the words that belong there out: the encoder-only model with its tokenizer."""

import re
from dataclasses import dataclass

import torch

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.search import MAX_ALTERNATIVES
from cutaway.decode.stepping import check_finite
from cutaway.decode.text_model import mask_id_of, tokenizer_for
from cutaway.errors import CutawayError
from cutaway.models.encoder_only import EncoderOnly
from cutaway.text.tokens.encoding import Spans
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import listed, say

MARKS = ("[MASK]", "<mask>")


@dataclass(frozen=True)
class Candidate:
    """A token for a gap, with its probability there."""

    id: int
    piece: str  # as a reader sees it
    probability: float


@dataclass(frozen=True)
class Gap:
    position: int  # its place among the pieces
    candidates: list[Candidate]  # best first


@dataclass(frozen=True)
class Filled:
    """A text with its gaps filled, each with the best candidate for it, found independently of the other gaps."""

    source: str
    text: str
    ids: list[int]  # what the model read: the mask token at every gap
    pieces: list[str]  # as a reader sees them
    gaps: list[Gap]


def fill(loaded: Loaded, text: str, *, top: int = 5) -> Filled:
    """Fill the gaps of one text, each written as `[MASK]`, `<mask>` or the tokenizer's own mask piece.

    A gap is one token, and takes the space before it with it, as in training. Each gap gets its `top` best tokens.
    Raises CutawayError for a text without a gap, one beyond the position limit, or a model without a mask token.
    """
    tokenizer = tokenizer_for(loaded, "encoder-only")
    assert isinstance(loaded.model, EncoderOnly)
    mask_id = mask_id_of(loaded)
    if mask_id is None:
        mask_id = tokenizer.require("mask")  # which tells what the tokenizer has instead
    if not 1 <= top <= MAX_ALTERNATIVES:
        raise CutawayError("top is {top}, expected 1 to {most}", top=top, most=MAX_ALTERNATIVES)
    ids, pieces, _ = encode_with_gaps(tokenizer, text, mask_id)
    gaps = [position for position, id in enumerate(ids) if id == mask_id]
    if not gaps:
        marks = listed(MARKS, say(" or "))
        raise CutawayError("the text has no gap to fill; write {marks} where a word is missing", marks=marks)
    if len(ids) > loaded.config.max_len:
        raise CutawayError(
            "the text has {count} tokens, but this model reads at most {max_len}; shorten it",
            count=len(ids),
            max_len=loaded.config.max_len,
        )
    model = loaded.model.eval()
    with torch.inference_mode():
        hidden = model.hidden(torch.tensor([ids], device=next(model.parameters()).device))  # (1, T, D)
        logits = model.head(hidden[:, gaps])[0].float()  # (gaps, V)
        check_finite(logits.logsumexp(dim=-1), say("in a gap"))
        logits[:, never_filling(tokenizer, logits.shape[1])] = -torch.inf
        probabilities, best = logits.softmax(dim=-1).topk(min(top, tokenizer.vocab_size), dim=-1)
    found: list[Gap] = []
    filled = list(ids)
    for position, *row in zip(gaps, best.tolist(), probabilities.tolist(), strict=True):
        likely = [(id, probability) for id, probability in zip(*row, strict=True) if probability > 0]
        candidates = [Candidate(id, tokenizer.readable(id), probability) for id, probability in likely]
        found.append(Gap(position, candidates))
        filled[position] = candidates[0].id
    return Filled(text, tokenizer.decode(filled), ids, pieces, found)


def never_filling(tokenizer: Tokenizer, vocab_size: int) -> list[int]:
    """Ids that fill no gap: the control tokens, and the rows of the model's vocabulary that have no piece."""
    return [*tokenizer.controls, *range(tokenizer.vocab_size, vocab_size)]


def encode_with_gaps(
    tokenizer: Tokenizer, text: str, mask_id: int | None
) -> tuple[list[int], list[str], Spans]:
    """Ids and pieces of a text with its gaps, between what the tokenizer puts around a text ([CLS] and [SEP]), and what
    each stands for in the text, in code points; what is put around it has no width."""
    marks = [] if mask_id is None else [*dict.fromkeys([*MARKS, tokenizer.piece(mask_id)])]
    gaps = [found.span() for found in re.finditer("|".join(map(re.escape, marks)), text)] if marks else []
    ids: list[int] = []
    pieces: list[str] = []
    offsets: Spans = []

    def add_controls(controls: list[int], span: tuple[int, int]) -> None:
        ids.extend(controls)
        pieces.extend(map(tokenizer.readable, controls))
        offsets.extend([span] * len(controls))

    before, after = tokenizer.around
    add_controls(before, (0, 0))
    start = 0
    for gap in (*gaps, None):
        part = text[start:] if gap is None else text[start : gap[0]].rstrip()
        encoding = tokenizer.encode(part)
        ids += encoding.ids
        pieces += encoding.pieces
        offsets += [(start + first, start + last) for first, last in encoding.offsets]
        if gap is not None and mask_id is not None:
            add_controls([mask_id], gap)
            start = gap[1]
    add_controls(after, (len(text), len(text)))
    return ids, pieces, offsets
