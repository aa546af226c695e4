"""The tokens nearest to one: rows of a model's tables as points in space."""

# Shapes: V vocabulary, D width.

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.errors import CutawayError, brief
from cutaway.inspection.options import Option
from cutaway.inspection.question import question
from cutaway.inspection.vectors import (
    MEASURES,
    Measure,
    Neighbour,
    TableName,
    VectorTable,
    nearest_rows,
    neighbour_table,
    space_of,
    table_name,
)
from cutaway.page.blocks import Page, page
from cutaway.page.drawn import Drawn
from cutaway.words import say


@dataclass(frozen=True, repr=False)
class Neighbours(Drawn):
    """The rows e of a table nearest to a query q, best first, in the full space of D dimensions; every row of the
    table was compared (control tokens too), in float64.

    cosine: q·e / (‖q‖‖e‖), -1 to 1, 0 where e is the zero vector; dot: q·e; euclid: ‖q - e‖, the nearest first.
    Equal values stand in the order of their ids. The query's own row is left out. Nearness says that the model was
    trained to use two tokens alike, not that they mean the same: antonyms are near, too (Mikolov et al. 2013, §4, by
    cosine; on antonyms: Hill et al. 2015, §2).
    """

    table: str
    measure: Measure
    id: int | None  # of the query; None where a vector was given, or a word whose character n-grams made one
    piece: str  # of the query; empty where a vector was given
    compared: int  # rows of the table, the query's own included
    items: tuple[Neighbour, ...]

    def page(self) -> Page:
        return _page(self)


@question(say("The tokens nearest to one."), "space")
def neighbours(
    space: Loaded | WordVectors | VectorTable,
    token: Annotated[int | str, Option(say("A word, a piece, or an id such as #123."), positional=True)],
    *,
    table: Annotated[TableName, Option(say("The table of the model whose rows are compared."))] = "embedding",
    top: Annotated[int, Option(say("Tokens that are listed."), at_least=1)] = 10,
    measure: Annotated[Measure, Option(say("What nearness is."))] = "cosine",
) -> Neighbours:
    """The `top` rows nearest to a token; see `Neighbours`.

    Raises CutawayError for a token that the table lacks, a query of length 0 under the cosine, an unknown measure.
    """
    rows = space_of(space, table)
    id, vector = rows.point(token)
    left_out = () if id is None else (id,)
    (items,) = nearest_rows(rows, vector, top=top, measure=measure, left_out=left_out)
    label = str(token) if id is None else rows.label(id)
    return Neighbours(rows.name, measure, id, label, len(rows.vectors), items)


def nearest_to(
    table: VectorTable, vector: Tensor, *, top: int = 10, measure: Measure = "cosine"
) -> Neighbours:
    """The same of any vector (D,). Raises CutawayError for one of another width or with values that are not finite."""
    width = table.vectors.shape[1]
    if tuple(vector.shape) != (width,):
        raise CutawayError(
            "the vector is of shape {shape}, expected ({width},): the model's width",
            shape=tuple(vector.shape),
            width=width,
        )
    if not bool(vector.isfinite().all()):
        values = brief(vector[~vector.isfinite()].tolist())
        raise CutawayError("the vector has values that are not finite: {values}; give numbers", values=values)
    (items,) = nearest_rows(table, vector.detach().cpu().double()[None], top=top, measure=measure)
    return Neighbours(table.name, measure, None, "", len(table.vectors), items)


# Its page.


def _page(found: Neighbours) -> Page:
    where = table_name(found.table)
    compared, title = f"{found.compared:,}", say("Nearest to the vector in {where}", where=where)
    if found.id is not None:
        title = say("Nearest to {piece} (id {id}) in {where}", piece=found.piece, id=found.id, where=where)
    elif found.piece:
        title = say(
            "Nearest to {piece} (not in the vocabulary: made of its character n-grams) in {where}",
            piece=found.piece,
            where=where,
        )
    return page(
        title,
        [
            neighbour_table(found.items, found.measure),
            say(
                "Nearness ({measure}) is of the full space, all {compared} rows compared. Near: used alike, which "
                "is not the same as meaning alike: opposites are near, too.",
                compared=compared,
                measure=MEASURES[found.measure],
            ),
        ],
    )
