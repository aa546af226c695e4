"""Why two texts are similar: which pairs of tokens the cosine of their vectors is made of."""

# Shapes: A tokens of the first text, B of the second, D width.

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.decode.sentence_settings import Pooling, read_settings
from cutaway.decode.sentence_vectors import embed
from cutaway.errors import CutawayError
from cutaway.inspection.options import Option
from cutaway.inspection.page_parts import array, to_keep_in_mind
from cutaway.inspection.question import ONE_STACK, question
from cutaway.inspection.runs import Tokens
from cutaway.inspection.terms import left, right
from cutaway.inspection.wiring import output_stack
from cutaway.page.blocks import Matrix, Page, Prose, Shaded, Table, page
from cutaway.page.drawn import Drawn
from cutaway.tap import Trace
from cutaway.words import Phrase, names_of, say, say_in


@dataclass(frozen=True, repr=False)
class Similarity(Drawn):
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
    of_words: bool  # whether a_i and b_j are words' own vectors, the same wherever they stand
    top: int  # how many pairs a page lists

    def page(self) -> Page:
        return _page(self)


@question(
    say("Why two texts are similar: the pairs of tokens that the cosine is made of."), "causes", ONE_STACK
)
def similarity(
    loaded: Loaded | WordVectors,
    text: Annotated[str, Option(say("The first text."), positional=True)],
    other: Annotated[str, Option(say("The text it is compared with."), positional=True)],
    *,
    top: Annotated[int, Option(say("Pairs that are listed."), at_least=1)] = 10,
) -> Similarity:
    """Take the similarity of two texts apart by pairs of tokens, for mean-pooled vectors of an encoder-only or
    decoder-only model; or by pairs of words, for word vectors, where a text is the mean of its words' vectors, whatever
    stands beside them.

    Texts are read as `embed` reads them: with its prompt, lower-cased and cut where the model's folder says so.
    Raises CutawayError for a model of another family, and for a text without a token.
    """
    first, a, mean_a = _states(loaded, text)
    second, b, mean_b = _states(loaded, other)
    lengths = float(mean_a.norm() * mean_b.norm())
    shares, cosine = torch.zeros(len(a), len(b), dtype=torch.float64), 0.0
    if lengths:
        shares, cosine = a @ b.T / (len(a) * len(b) * lengths), float(mean_a @ mean_b) / lengths
    own, approximate = "mean" if isinstance(loaded, WordVectors) else read_settings(loaded.path).pooling, None
    if own != "mean":
        approximate = say(
            "this model's folder pools by {own!r}, which no sum over tokens gives; these are shares of mean pooling",
            own=own,
        )
    return Similarity(
        first=first,
        second=second,
        shares=shares,
        first_shares=shares.sum(dim=1),
        second_shares=shares.sum(dim=0),
        cosine=cosine,
        difference=cosine - float(shares.sum()),
        pooling=own,
        approximate=approximate,
        of_words=isinstance(loaded, WordVectors),
        top=top,
    )


def _states(loaded: Loaded | WordVectors, text: str) -> tuple[Tokens, Tensor, Tensor]:
    """The tokens of a text, their last hidden states (A, D) fp64, and the vector (D,) that `embed` pools of them."""
    if isinstance(loaded, WordVectors):
        ids, unknown = loaded.words.read(text)
        if not ids:
            raise CutawayError(
                "no word of {text!r} has a vector ({unknown}); give words of the vocabulary",
                text=text,
                unknown=names_of(unknown[:9]) if unknown else say("none"),
            )
        vectors = loaded.vectors[ids].double()
        return Tokens(ids, [loaded.words.label(id) for id in ids]), vectors, vectors.mean(dim=0)
    tokenizer, settings = loaded.require_tokenizer(), read_settings(loaded.path)
    before, after = tokenizer.around
    inner = tokenizer.encode_ids([settings.read(text)])[0]
    if not [*before, *inner, *after]:
        raise CutawayError(
            "the text {text!r} has no token: there is nothing to compare; give another text", text=text
        )
    name = f"{output_stack(loaded.model)}.normed"
    with Trace(loaded.model, {name: lambda x: x[0].double().cpu()}) as trace:
        embedded = embed(loaded, [text], pooling="mean", normalise=False)
    read = embedded.n_tokens[0] - len(before) - len(after)
    ids = [*before, *inner[:read], *after]
    tokens = Tokens(ids, [tokenizer.readable(id) for id in ids])
    return tokens, trace[name].clone(), embedded.vectors[0].double()


# Its page.

_FIRST, _SECOND = say_in("text", "first"), say_in("text", "second")
_SHARE = say("share of the cosine")
_OF_STATES = say(
    "Both vectors are means of the tokens' last hidden states, so the cosine is a sum over "
    "pairs, and exactly that. A hidden state has seen its whole text: a share belongs to "
    "two tokens in their contexts, not to two words. Control tokens count as tokens."
)
_OF_WORDS = say(
    "Both vectors are means of the words' own, so the cosine is a sum over pairs, and exactly that. A word has one "
    "vector, whatever stands beside it: bank is the same in both its meanings."
)


def _page(found: Similarity) -> Page:
    """The cosine, each token's share of it, the strongest pairs, and in a drawing all of them."""
    first, second = found.first.pieces, found.second.pieces
    flat = found.shares.flatten()
    order = flat.abs().argsort(descending=True, stable=True)[: found.top].tolist()
    rows = [(f"{float(flat[n]):+.4f}", first[n // len(second)], second[n % len(second)]) for n in order]
    columns = (right(say("share")), left(_FIRST), left(_SECOND))
    total = f"{float(flat.sum()):.4f}"
    pairs = say(
        "{total} of {count} pairs, difference {difference:.1e}",
        total=total, count=len(flat), difference=found.difference,
    )  # fmt: skip
    return page(
        say("Why the cosine of the two texts is {cosine:.4f}", cosine=found.cosine),
        [
            Shaded(_FIRST, first, found.first_shares.tolist(), _SHARE),
            Shaded(_SECOND, second, found.second_shares.tolist(), _SHARE),
            Prose(say("sum"), pairs),
            Table(columns, rows),
            Matrix(array(found.shares), first, second, _FIRST, _SECOND, _SHARE, "signed", drawn=True),
            _OF_WORDS if found.of_words else _OF_STATES,
            to_keep_in_mind(found.approximate),
        ],
    )
