"""Texts to vectors that say what the texts are about: sentence embeddings (Reimers and Gurevych 2019)."""

# Shapes: N texts, B batch, T tokens, D width.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.sentence_settings import Pooling, SentenceSettings, read_settings
from cutaway.decode.stepping import batches, pad_right
from cutaway.decode.text_model import COMMANDS
from cutaway.errors import CutawayError, nearest
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Phrase, listed, say


@dataclass(frozen=True)
class Embeddings:
    """One vector a text, in the order of the texts, and how they were made."""

    vectors: Tensor  # (N, D) fp32
    pooling: Pooling
    normalised: bool
    max_tokens: int  # tokens that are read of a text, the control tokens around it included
    source: str  # where the settings come from: "modules.json" of the model's folder, or "defaults"
    n_tokens: list[int]  # read of each text, the control tokens around it included
    notes: tuple[Phrase, ...]  # texts that were cut, and those without a token that the model knows


def embed(
    loaded: Loaded,
    texts: Sequence[str],
    *,
    pooling: Pooling | None = None,
    normalise: bool | None = None,
    batch_size: int = 32,
    progress: Callable[[int], object] | None = None,
) -> Embeddings:
    """The sentence vectors of `texts`, by an encoder-only or a decoder-only model.

    `pooling` makes one vector of the tokens' last hidden states: their "mean", the first token's ("cls"), the last
    one's ("last"), or the greatest value of each dimension ("max"). `normalise` divides it by its length (L2). None
    takes what the model's folder says (its sentence-transformers files), else the mean, normalised. A text that is
    too long for the model, or for its folder's max_seq_length, is cut at its end, with a note. An empty text is the
    control tokens that stand around every text; where there are none, its vector is 0. A vector depends on its text
    alone: not on the order, nor on what else is in its batch. `progress` is called after each batch with its size.

    Raises CutawayError for a model of another family or without a tokenizer, an unknown pooling, "cls" with a
    decoder-only model (whose first token sees nothing else), a folder that asks for a step not known here, or vectors
    that are no numbers.
    """
    model = loaded.model.eval()
    if isinstance(model, EncoderDecoder):
        raise CutawayError(
            "{path} is a model of the encoder-decoder family, expected encoder-only or "
            "decoder-only; use it with `{command}`",
            path=loaded.path,
            command=COMMANDS["encoder-decoder"],
        )
    tokenizer = loaded.require_tokenizer()
    settings = read_settings(loaded.path)
    how = settings.pooling if pooling is None else pooling
    if how not in get_args(Pooling):
        raise CutawayError(
            "pooling is {pooling!r}{hint}, expected one of {known}",
            pooling=how,
            hint=nearest(how, get_args(Pooling)),
            known=listed(get_args(Pooling)),
        )
    if how == "cls" and isinstance(model, DecoderOnly):
        raise CutawayError(
            "{path}: pooling is 'cls', but a decoder-only model's first token sees no other", path=loaded.path
        )
    rows, most, notes = _rows(loaded, tokenizer, texts, settings)
    normal = settings.normalise if normalise is None else normalise
    device = next(model.parameters()).device
    vectors = torch.zeros(len(rows), loaded.config.d_model)
    for places in batches(rows, batch_size):
        if batch := [i for i in places if rows[i]]:
            ids, mask = pad_right([rows[i] for i in batch], loaded.config.pad_id or 0, device)
            with torch.inference_mode():
                hidden = model.hidden(ids, mask=mask).float()
                pooled = pool(hidden, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask, how)
                vectors[batch] = (normalize(pooled, dim=-1) if normal else pooled).cpu()
                if not bool(vectors[batch].isfinite().all()):
                    raise CutawayError(
                        "{path}: the vector of a text is not a number: the model's weights are damaged, or too "
                        "large for their type; fetch the weights again, or load them as float32",
                        path=loaded.path,
                    )
        if progress is not None:
            progress(len(places))
    return Embeddings(vectors, how, normal, most, settings.source, [len(row) for row in rows], notes)


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """hidden (B, T, D) of tokens, where mask (B, T) is True: at least one in every row, padding on the right
    -> (B, D)."""
    lengths = mask.sum(dim=1)
    if pooling == "mean":
        return hidden.masked_fill(~mask[..., None], 0.0).sum(dim=1) / lengths[:, None]
    if pooling == "max":
        return hidden.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
    if pooling == "cls":
        return hidden[:, 0]
    return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]


def cosine_similarity(vectors: Tensor) -> Tensor:
    """vectors (N, D) -> (N, N) fp64: the cosine of the angle between each two, 0 where one is the zero vector."""
    directions = normalize(vectors.double(), dim=-1)
    return (directions @ directions.T).clamp(-1.0, 1.0)


def _rows(
    loaded: Loaded, tokenizer: Tokenizer, texts: Sequence[str], settings: SentenceSettings
) -> tuple[list[list[int]], int, tuple[Phrase, ...]]:
    """What the model reads for each text, how many tokens that are at most, and what is to be said about it."""
    before, after = tokenizer.around
    most = min(loaded.config.max_len, settings.max_tokens or loaded.config.max_len)
    room = most - len(before) - len(after)
    if room < 1:
        raise CutawayError(
            "{path}: the model reads at most {most} tokens, which leaves none for a text; raise max_seq_length",
            path=loaded.path,
            most=most,
        )
    whole = [settings.read(text) for text in texts]
    rows: list[list[int]] = []
    notes: list[Phrase] = []
    unknown = tokenizer.role("unk")
    for number, ids in enumerate(tokenizer.encode_ids(whole), start=1):
        row = [*before, *ids[:room], *after]
        which = say("text {number}", number=number) if len(texts) > 1 else say("the text")
        if len(ids) > room:
            notes.append(
                say(
                    "{which}: only the first {room} of its {count:,} tokens were read",
                    which=which,
                    room=room,
                    count=len(ids),
                )
            )
        elif not row:
            notes.append(say("{which} has no token, so its vector is 0", which=which))
        elif ids and set(ids) == {unknown}:
            notes.append(
                say(
                    "{which}: the model knows none of its pieces, so its vector says nothing of it",
                    which=which,
                )
            )
        rows.append(row)
    return rows, most, tuple(notes)
