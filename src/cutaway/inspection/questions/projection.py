"""Tokens of a table in a plane: where they lie in it, and what is really near each of them."""

# Shapes: N drawn tokens, V vocabulary, D width.

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.errors import CutawayError
from cutaway.inspection.options import Option
from cutaway.inspection.principal_axes import PrincipalAxes, measures, pca, plot_of
from cutaway.inspection.question import question
from cutaway.inspection.terms import left
from cutaway.inspection.vectors import (
    PIECE,
    Neighbour,
    TableName,
    VectorTable,
    nearest_rows,
    space_of,
    table_name,
)
from cutaway.page.blocks import Page, Point, Table, page
from cutaway.page.drawn import Drawn
from cutaway.text.display import truncate
from cutaway.words import Text, say

AROUND_ONE = 30  # nearest tokens that are drawn around a single one
GROUPS = 5  # that can be told apart
_QUERIES = 64  # compared with the whole table at a time: (64, V) values


@dataclass(frozen=True, repr=False)
class Projection(Drawn):
    """Tokens drawn by the two directions in which they vary most, their vectors made of length 1 first: then those at
    the smallest distance are those of the greatest cosine, here, in `axes.trustworthiness` and in `neighbours`.

    A plane drawing of D dimensions puts tokens side by side that are not near. So `neighbours` are what is near each of
    them in truth, over the whole table, and `nearest` says which drawn token is its nearest in the full space.
    Principal components: Jolliffe 2002, §3.5; what a drawing hides: Venna & Kaski 2001 (see `PrincipalAxes`).
    """

    table: str
    named: tuple[int, ...]  # ids that were asked for; the others are neighbours of these
    ids: tuple[int, ...]  # N, the named ones first
    pieces: tuple[str, ...]
    groups: tuple[int, ...]  # N: the place in `named` of the token that each was drawn for
    neighbours: tuple[tuple[Neighbour, ...], ...]  # N lists, the greatest cosine first
    nearest: Tensor  # (N,) int64: the place in `ids` of the drawn token of the greatest cosine
    axes: PrincipalAxes

    def page(self) -> Page:
        return _page(self)


@question(say("Tokens drawn in a plane, and what is really near each of them."), "space")
def projection(
    space: Loaded | WordVectors | VectorTable,
    tokens: Annotated[tuple[int | str, ...], Option(say("One token, or at least three."), positional=True)],
    *,
    around: Annotated[
        int | None,
        Option(say("How many of the nearest of each are drawn too; 30 for a single token."), at_least=0),
    ] = None,
    table: Annotated[TableName, Option(say("The table of the model whose rows are drawn."))] = "embedding",
    listed: Annotated[int, Option(say("True neighbours that are listed of each."), at_least=1)] = 3,
    k: Annotated[int, Option(say("The neighbourhood that trustworthiness looks at."), at_least=1)] = 10,
) -> Projection:
    """Draw the tokens, and the `around` nearest of each; for every one name the `listed` true neighbours.

    `k` is made smaller where there are too few tokens for it.
    Raises CutawayError for a token that the table lacks, one whose vector is 0, and fewer than three tokens.
    """
    rows = space_of(space, table)
    if around is None:
        around = AROUND_ONE if len(tokens) == 1 else 0
    named = list(dict.fromkeys(rows.find(token) for token in tokens))
    groups = {id: place for place, id in enumerate(named)}
    if around:
        for place, near in enumerate(_near(rows, named, around)):
            for each in near:
                groups.setdefault(each.id, place)
    ids = list(groups)
    if len(ids) < 3:
        raise CutawayError(
            "tokens to draw: {n}, expected at least 3: name more, or draw the nearest of each as well (around)",
            n=len(ids),
        )
    vectors = normalize(rows.rows(ids), dim=1)
    drawn = pca(vectors, k=min(k, (len(ids) - 1) // 2))
    cosines = vectors @ vectors.T
    labels = tuple(rows.label(id) for id in ids)
    return Projection(
        table=rows.name,
        named=tuple(named),
        ids=tuple(ids),
        pieces=labels,
        groups=tuple(groups.values()),
        neighbours=_near(rows, ids, listed),
        nearest=cosines.fill_diagonal_(-torch.inf).argmax(dim=1),
        axes=replace(drawn, labels=labels),
    )


def _near(table: VectorTable, ids: Sequence[int], top: int) -> tuple[tuple[Neighbour, ...], ...]:
    """The rows nearest to each by the cosine, without itself."""
    rows = table.rows(ids)
    lengths = rows.norm(dim=1).tolist()
    if 0 in lengths:
        id = ids[lengths.index(0)]
        raise CutawayError(
            "the vector of {label} (id {id}) is 0: it has no direction to compare; choose another word",
            label=table.label(id),
            id=id,
        )
    near = (nearest_rows(table, some, top=top + 1, measure="cosine") for some in rows.split(_QUERIES))
    return tuple(
        tuple(each for each in items if each.id != id)[:top]
        for id, items in zip(ids, chain.from_iterable(near), strict=True)
    )


# Its page.


def _page(found: Projection) -> Page:
    n, where = len(found.ids), table_name(found.table)
    grouped = 1 < len(found.named) <= GROUPS and n > len(found.named)
    groups = found.groups if grouped else [int(place >= len(found.named)) for place in range(n)]
    points = [
        Point(x, y, piece, group)
        for (x, y, *_), piece, group in zip(
            found.axes.coordinates.tolist(), found.pieces, groups, strict=True
        )
    ]
    legend: list[Text] = []
    if grouped:
        legend = [say("{piece} and its nearest", piece=piece) for piece in found.pieces[: len(found.named)]]
    elif n > len(found.named):
        near = say("its nearest") if len(found.named) == 1 else say("their nearest")
        legend = [" ".join(found.pieces[: min(4, len(found.named))]), near]
    lines = list(enumerate(found.nearest.tolist()))
    rows = [
        (truncate(piece, 16), "  ".join(f"{truncate(each.piece, 12)} {each.value:.3f}" for each in near))
        for piece, near in zip(found.pieces, found.neighbours, strict=True)
    ]
    return page(
        say("{n} tokens of {where} in a plane", n=n, where=where),
        [
            plot_of(found.axes, points, paths=lines, groups=legend),
            *measures(found.axes),
            say(
                "The lines (in HTML and SVG) lead from each token to the drawn one that is nearest to "
                "it in the full space: where a line is long, the drawing misleads."
            ),
            Table([left(PIECE), left(say("nearest in the whole table (cosine)"))], rows),
        ],
    )
