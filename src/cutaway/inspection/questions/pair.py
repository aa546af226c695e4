"""One pair of words as word2vec learns from it: scores, loss, gradient and update, number by number."""

# Shapes: D width, K outputs: the context, then the negatives.

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.errors import CutawayError
from cutaway.inspection.options import Option
from cutaway.inspection.question import VECTORS, question
from cutaway.inspection.terms import left, right
from cutaway.inspection.vectors import PIECE, space_of
from cutaway.page.blocks import Heading, Page, Table, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import number
from cutaway.words import say

DRAWN = 5  # negatives where none are given
EXPONENT = 0.75  # of the counts that they are drawn by


@dataclass(frozen=True)
class Output:
    """A word that the centre is compared with, o its output vector. All numbers are of float64."""

    id: int
    piece: str
    label: int  # 1: the context, 0: a negative
    score: float  # h·o
    likely: float  # σ(h·o)
    loss: float  # -log σ(h·o) for label 1, -log σ(-h·o) for 0
    error: float  # σ(h·o) - label: the slope of the loss over the score
    score_after: float  # of both vectors after the step


@dataclass(frozen=True, repr=False)
class Pair(Drawn):
    """The loss of one pair, L = -log σ(h·o₀) - Σ log σ(-h·o_k) (Mikolov et al. 2013b, equation 4), with h the vector of
    the centre, o₀ the output vector of the context and o_k those of the negatives; its exact gradient,
    ∂L/∂h = Σ e_k o_k and ∂L/∂o_k = e_k h with the errors e_k = σ(h·o_k) - label_k; and one step down both.
    """

    centre: str
    outputs: tuple[Output, ...]  # the context first
    loss: float
    loss_after: float
    rate: float
    hidden: Tensor  # (D,) fp64: h
    vectors: Tensor  # (K, D): o
    hidden_gradient: Tensor  # (D,)
    vectors_gradient: Tensor  # (K, D)
    dims: tuple[int, ...]  # coordinates that a page shows: those of the largest gradient

    def page(self) -> Page:
        return _page(self)


@question(say("One pair of words as word2vec learns from it: loss, gradient, update."), "space", VECTORS)
def pair(
    opened: WordVectors,
    centre: Annotated[int | str, Option(say("The word whose vector is learned: king."), positional=True)],
    context: Annotated[int | str, Option(say("A word that stood near it: throne."), positional=True)],
    *,
    negatives: Annotated[
        tuple[int | str, ...] | None,
        Option(say("Words that did not; not given: five drawn by count to the power 3/4.")),
    ] = None,
    seed: Annotated[int, Option(say("Seed of the draw."), at_least=0, at_most=2**63 - 1)] = 1,
    rate: Annotated[float, Option(say("The learning rate."), at_least=0, at_most=10)] = 0.025,
    dims: Annotated[int, Option(say("Coordinates that are listed."), at_least=1)] = 5,
) -> Pair:
    """Raises CutawayError for a word without a vector, and for vectors whose outputs were not kept. See `Pair`."""
    inputs, outputs = space_of(opened), space_of(opened, "unembedding")
    middle, other = inputs.find(centre), outputs.find(context)
    if negatives is None:
        drawn = torch.Generator().manual_seed(seed)
        likely = torch.tensor(opened.words.counts).clamp(min=1).double() ** EXPONENT
        # the context itself is no negative
        likely[other] = 0
        against = torch.multinomial(likely, DRAWN, replacement=True, generator=drawn).tolist()
    else:
        against = [outputs.find(each) for each in negatives]
        if other in against:
            raise CutawayError(
                "{word} is the context and a negative: a word that stood there is none that did not",
                word=outputs.label(other),
            )
    ids = [other, *against]
    labels = torch.tensor([1.0] + [0.0] * len(against)).double()
    h, o = inputs.rows([middle])[0], outputs.rows(ids)
    scores = o @ h
    error = scores.sigmoid() - labels
    to_h, to_o = error @ o, error[:, None] * h
    after = _scores_after(h, o, ids, to_h, to_o, rate)
    losses = _losses(scores, labels)
    rows = zip(ids, labels, scores, scores.sigmoid(), losses, error, after, strict=True)
    return Pair(
        centre=inputs.label(middle),
        outputs=tuple(
            Output(id, outputs.label(id), int(label), *(float(value) for value in values))
            for id, label, *values in rows
        ),
        loss=float(losses.sum()),
        loss_after=float(_losses(after, labels).sum()),
        rate=rate,
        hidden=h,
        vectors=o,
        hidden_gradient=to_h,
        vectors_gradient=to_o,
        dims=tuple(to_h.abs().argsort(descending=True, stable=True)[:dims].tolist()),
    )


def _losses(scores: Tensor, labels: Tensor) -> Tensor:
    return -logsigmoid(scores * (2 * labels - 1))


def _scores_after(h: Tensor, o: Tensor, ids: list[int], to_h: Tensor, to_o: Tensor, rate: float) -> Tensor:
    """The scores (K,) after the step; a word that was drawn twice takes both of its steps."""
    same = torch.tensor([[float(one == other) for other in ids] for one in ids]).double()
    return (o - rate * same @ to_o) @ (h - rate * to_h)


# Its page.


def _page(found: Pair) -> Page:
    rows = [
        (
            each.piece, str(each.label), number(each.score), f"{each.likely:.4f}", number(each.loss),
            f"{each.error:+.4f}", number(each.score_after),
        )
        for each in found.outputs
    ]  # fmt: skip
    columns = (
        left(PIECE), right(say("label")), right("h·o"), right("σ(h·o)"), right(say("loss")),
        right(say("error")), right(say("h·o after")),
    )  # fmt: skip
    moved = [
        (
            str(d),
            number(float(found.hidden[d])),
            number(float(found.hidden_gradient[d])),
            number(float(found.hidden[d] - found.rate * found.hidden_gradient[d])),
            " ".join(
                f"{each.error:+.3f}·{float(found.vectors[k, d]):.3f}" for k, each in enumerate(found.outputs)
            ),
        )
        for d in found.dims
    ]
    return page(
        say(
            "{centre} beside {context}: what is learned", centre=found.centre, context=found.outputs[0].piece
        ),
        [
            Table(columns, rows),
            say(
                "h is the vector of {centre}, o the output vector of each word. The loss is -log σ(h·o) of the "
                "word that stood there (label 1) and -log σ(-h·o) of each that did not (label 0), the error "
                "σ(h·o) - label. Sum of the losses: {loss}; after one step of {rate}: {after}.",
                centre=found.centre,
                loss=number(found.loss),
                rate=number(found.rate),
                after=number(found.loss_after),
            ),
            Heading(say("The step of h, where it is largest")),
            Table(
                (
                    right(say("coordinate")),
                    right("h"),
                    right(say("gradient")),
                    right(say("h after")),
                    left(say("error · o, word by word; their sum is the gradient")),
                ),
                moved,
            ),
            say(
                "h after = h - {rate} · gradient. Each o takes a step likewise, by error · h: the word that stood "
                "there is drawn to h, the others are pushed away.",
                rate=number(found.rate),
            ),
        ],
    )
