"""Sentence vectors of a text that is looked into: what a model without output head reads, and what it gives."""

# Shapes: R rows of the same text, T tokens, D width.

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.sentence_settings import Pooling, SentenceSettings, read_settings
from cutaway.decode.sentence_vectors import pool
from cutaway.errors import CutawayError, TooLong
from cutaway.models.decoder_only import DecoderOnly
from cutaway.words import Phrase, say

POOLINGS: dict[Pooling, Phrase] = {
    "mean": say("the mean of all tokens"),
    "cls": say("the first token's vector"),
    "max": say("the greatest of all tokens, number by number"),
    "last": say("the last token's vector"),
}


def sentence_ids(loaded: Loaded, text: str) -> list[int]:
    """The ids that `embed` reads of a text: after the prompt of the model's folder, in lower case where that asks for
    it, between the control tokens that the tokenizer puts there.

    Raises CutawayError for an empty text, and for one that is longer than the model reads, which `embed` would cut.
    """
    tokenizer, settings = loaded.require_tokenizer(), read_settings(loaded.path)
    if not text.strip():
        raise CutawayError("the text is empty: there is nothing to look into; give a sentence")
    before, after = tokenizer.around
    ids = [*before, *tokenizer.encode_ids([settings.read(text)])[0], *after]
    most = min(loaded.config.max_len, settings.max_tokens or loaded.config.max_len)
    if len(ids) > most:
        raise TooLong(
            "the text has {count} tokens, but this model reads at most {most}; give a shorter text",
            count=len(ids),
            most=most,
        )
    if len(ids) == len(before) + len(after):
        raise CutawayError(
            "no piece of the vocabulary is in the text {text!r}: there is nothing to look into; give another text",
            text=text,
        )
    if max(ids) >= loaded.config.vocab_size:
        raise CutawayError(
            "{path}: the tokenizer gives id {id}, but the model's vocab_size is {vocab_size}; "
            "they do not belong together",
            path=loaded.path,
            id=max(ids),
            vocab_size=loaded.config.vocab_size,
        )
    return ids


def sentence_settings(loaded: Loaded) -> SentenceSettings:
    """How the model's folder wants sentence vectors to be made; the mean, of length 1, where it does not say.

    Raises CutawayError for a pooling that this family cannot have: the first token of a decoder-only model sees no
    other.
    """
    settings = read_settings(loaded.path)
    if settings.pooling == "cls" and isinstance(loaded.model, DecoderOnly):
        raise CutawayError(
            "{path}: pooling is 'cls', but a decoder-only model's first token sees no other", path=loaded.path
        )
    return settings


def sentence_vectors(loaded: Loaded, states: Tensor) -> Tensor:
    """Last hidden states (R, T, D) of R versions of one text -> (R, D) fp32, pooled as `embed` pools them, and of
    length 1 where the model's folder asks for that."""
    pooled = pooled_states(loaded, states)
    return normalize(pooled, dim=-1) if sentence_settings(loaded).normalise else pooled


def pooled_states(loaded: Loaded, states: Tensor) -> Tensor:
    """`sentence_vectors` before they are brought to length 1."""
    mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
    return pool(states.float(), mask, sentence_settings(loaded).pooling)


def cosine_distance(base: Tensor, changed: Tensor) -> Tensor:
    """base (D,), changed (R, D) -> (R,) fp64: 1 - cos of the angle between them, 0 to 2, without unit.

    It is computed as ½‖b/‖b‖ - c/‖c‖‖², so that a small one is not lost in rounding and that of equal vectors is 0.
    Where one alone of two vectors is zero, the cosine counts as 0.
    """
    b, c = (normalize(vectors.double(), dim=-1) for vectors in (base, changed))
    distance = (c - b).square().sum(dim=-1) / 2
    return distance.masked_fill(b.any(dim=-1) != c.any(dim=-1), 1.0)
