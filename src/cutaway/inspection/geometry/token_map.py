"""Tokens of a table as a map: where they lie when the space is drawn flat, and what is really near each of them."""

# Shapes: N drawn tokens, V vocabulary, D width.

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cutaway.errors import CutawayError
from cutaway.inspection.geometry.projection import Projection, pca
from cutaway.inspection.geometry.vectors import Neighbour, VectorTable, nearest_rows
from cutaway.inspection.pages.projection import token_map_page
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn

_QUERIES = 64  # compared with the whole table at a time: (64, V) values


@dataclass(frozen=True, repr=False)
class TokenMap(Drawn):
    """Tokens drawn by the two directions in which they vary most, their vectors made of length 1 first: then those at
    the smallest distance are those of the greatest cosine, here, in `projection.trustworthiness` and in `neighbours`.

    A flat drawing of D dimensions puts tokens side by side that are not near. So `neighbours` are what is near each of
    them in truth, over the whole table, and `nearest` says which drawn token is its nearest in the full space.
    Principal components: Jolliffe 2002, §3.5; what a drawing hides: Venna & Kaski 2001 (see `Projection`).
    """

    table: str
    named: tuple[int, ...]  # ids that were asked for; the others are neighbours of these
    ids: tuple[int, ...]  # N, the named ones first
    pieces: tuple[str, ...]
    groups: tuple[int, ...]  # N: the place in `named` of the token that each was drawn for
    neighbours: tuple[tuple[Neighbour, ...], ...]  # N lists, the greatest cosine first
    nearest: Tensor  # (N,) int64: the place in `ids` of the drawn token of the greatest cosine
    projection: Projection

    def page(self) -> Page:
        return token_map_page(self)


def token_map(
    table: VectorTable, pieces: Sequence[str | int], *, around: int = 0, listed: int = 3, k: int = 10
) -> TokenMap:
    """Draw the tokens `pieces`, and the `around` nearest of each; for every one name the `listed` true neighbours.

    `k` is the neighbourhood of trustworthiness, made smaller where there are too few tokens for it.
    Raises CutawayError for a token that the table does not have, one whose vector is 0, and fewer than three tokens.
    """
    if around < 0 or listed < 1:
        raise CutawayError(
            "around is {around} and listed {listed}, expected at least 0 and at least 1 tokens",
            around=around,
            listed=listed,
        )
    named = list(dict.fromkeys(table.find(piece) for piece in pieces))
    groups = {id: place for place, id in enumerate(named)}
    if around:
        for place, near in enumerate(_near(table, named, around)):
            for each in near:
                groups.setdefault(each.id, place)
    ids = list(groups)
    if len(ids) < 3:
        raise CutawayError(
            "{count} {rest} to draw, expected at least 3: name more, or draw the nearest of each as well",
            count=len(ids),
            rest="token" if len(ids) == 1 else "tokens",
        )
    vectors = normalize(table.rows(ids), dim=1)
    drawn = pca(vectors, k=max(1, min(k, (len(ids) - 1) // 2)))
    cosines = vectors @ vectors.T
    labels = tuple(table.label(id) for id in ids)
    return TokenMap(
        table=table.name,
        named=tuple(named),
        ids=tuple(ids),
        pieces=labels,
        groups=tuple(groups.values()),
        neighbours=_near(table, ids, listed),
        nearest=cosines.fill_diagonal_(-torch.inf).argmax(dim=1),
        projection=replace(drawn, labels=labels),
    )


def _near(table: VectorTable, ids: Sequence[int], top: int) -> tuple[tuple[Neighbour, ...], ...]:
    """The rows nearest to each by the cosine, without itself."""
    rows = table.rows(ids)
    lengths = rows.norm(dim=1).tolist()
    for id, length in zip(ids, lengths, strict=True):
        if length == 0:
            raise CutawayError(
                "the vector of {label} (id {id}) is 0: it has no direction to compare",
                label=table.label(id),
                id=id,
            )
    found: list[tuple[Neighbour, ...]] = []
    for first in range(0, len(ids), _QUERIES):
        some = ids[first : first + _QUERIES]
        near = nearest_rows(table, rows[first : first + _QUERIES], top=top + 1, measure="cosine")
        for id, items in zip(some, near, strict=True):
            found.append(tuple(each for each in items if each.id != id)[:top])
    return tuple(found)
