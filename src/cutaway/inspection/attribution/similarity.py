"""Why two texts are similar: which pairs of tokens the cosine of their vectors is made of."""

# Shapes: A tokens of the first text, B of the second, D width.

from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.sentence_settings import Pooling, read_settings
from cutaway.decode.sentence_vectors import embed
from cutaway.errors import CutawayError
from cutaway.inspection.pages.similarity import similarity_page
from cutaway.inspection.runs.run import Tokens
from cutaway.models.decoder_only import DecoderOnly
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.tap import Trace
from cutaway.words import Phrase, say


@dataclass(frozen=True, repr=False)
class SimilarityAttribution(Drawn):
    """cos(ā, b̄) = Σ_ij s_ij with s_ij = a_i · b_j / (A · B · ‖ā‖ · ‖b̄‖), where a_i and b_j are the last hidden states
    of the tokens and ā, b̄ their means (Reimers and Gurevych 2019, §3: mean pooling).

    The sum is exact, because a mean is a sum. A hidden state has seen its whole text, so the share of a pair belongs to
    two tokens in their contexts, not to two words. Control tokens around a text count as tokens, as they do in the
    mean. Where both means are zero vectors no share is anything but 0.
    """

    first: Tokens  # A tokens as the model reads them
    second: Tokens  # B tokens
    shares: Tensor  # (A, B) fp64
    first_shares: Tensor  # (A,): sums over the second text
    second_shares: Tensor  # (B,): sums over the first text
    cosine: float  # of the mean vectors, computed from them
    difference: float  # cosine - sum of the shares: rounding
    pooling: Pooling  # what the model's own folder pools by
    approximate: Phrase | None  # why the model's own similarity is another number, where it is

    def page(self) -> Page:
        return similarity_page(self)


def attribute_similarity(loaded: Loaded, first: str, second: str) -> SimilarityAttribution:
    """Take the similarity of two texts apart by pairs of tokens, for mean-pooled vectors of an encoder-only or
    decoder-only model.

    Texts are read as `embed` reads them: with its prompt, lower-cased and cut where the model's folder says so.
    Raises CutawayError for a model of another family, and for a text without a token.
    """
    left, a, mean_a = _states(loaded, first)
    right, b, mean_b = _states(loaded, second)
    lengths = float(mean_a.norm() * mean_b.norm())
    shares = (
        a @ b.T / (len(a) * len(b) * lengths) if lengths else torch.zeros(len(a), len(b), dtype=torch.float64)
    )
    cosine = float(mean_a @ mean_b) / lengths if lengths else 0.0
    own = read_settings(loaded.path).pooling
    return SimilarityAttribution(
        first=left,
        second=right,
        shares=shares,
        first_shares=shares.sum(dim=1),
        second_shares=shares.sum(dim=0),
        cosine=cosine,
        difference=cosine - float(shares.sum()),
        pooling=own,
        approximate=None
        if own == "mean"
        else say(
            "this model's folder pools by {own!r}, which no sum over tokens gives; these are "
            "shares of mean pooling",
            own=own,
        ),
    )


def _states(loaded: Loaded, text: str) -> tuple[Tokens, Tensor, Tensor]:
    """The tokens of a text, their last hidden states (A, D) fp64, and the vector (D,) that `embed` pools of them."""
    tokenizer, settings = loaded.require_tokenizer(), read_settings(loaded.path)
    before, after = tokenizer.around
    inner = tokenizer.encode_ids([settings.read(text)])[0]
    if not [*before, *inner, *after]:
        raise CutawayError("the text {text!r} has no token: there is nothing to compare", text=text)
    name = f"{'decoder' if isinstance(loaded.model, DecoderOnly) else 'encoder'}.normed"
    with Trace(loaded.model, {name: lambda x: x[0].double().cpu()}) as trace:
        embedded = embed(loaded, [text], pooling="mean", normalise=False)
    read = embedded.n_tokens[0] - len(before) - len(after)
    ids = [*before, *inner[:read], *after]
    pieces = [tokenizer.readable(id) for id in ids]
    return Tokens(ids, pieces), trace[name].clone(), embedded.vectors[0].double()
