"""Rows of a model's token tables as points: which lie nearest to one, exact over the whole vocabulary."""

# Shapes: V vocabulary, D width, Q queries.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.errors import CutawayError
from cutaway.inspection.options import check_choice
from cutaway.inspection.terms import left, right
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.head import Head
from cutaway.page.blocks import Bar, Column, Page, Prose, Remark, Table, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import number
from cutaway.text.tokens.named_token import find_token, piece_label
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Phrase, say

TableName = Literal["embedding", "unembedding"]
Measure = Literal["cosine", "dot", "euclid"]

_VALUES_AT_ONCE = 1 << 22  # of a table in float64: 32 MiB


@dataclass(frozen=True, repr=False)
class VectorTable(Drawn):
    """One vector for each id. `vectors` (V, D) is the model's own tensor, neither copied nor scaled: the factor that
    some models multiply embeddings by (`embed_scale`) and the bias of the output are not in it."""

    name: str
    vectors: Tensor
    tokenizer: Tokenizer | None
    tied: bool = False  # whether the model's other table is this very tensor

    def page(self) -> Page:
        rows, width = self.vectors.shape
        size = Prose(say("size"), say("{rows:,} vectors of {width} numbers", rows=rows, width=width))
        tied = Prose(say("tied"), say("with the model's other table")) if self.tied else None
        more = say("Ask it: neighbours(table, token), analogy(table, a, b, c), projection(table, tokens).")
        return page(say("The {name} table of token vectors", name=self.name), [size, tied, Remark(more)])

    def label(self, id: int) -> str:
        """The piece of an id as a reader sees it; ⟨id⟩ for a row that has none."""
        return piece_label(id, self.tokenizer)

    def find(self, point: str | int) -> int:
        """The id of a token, given as `text.tokens.named_token.find_token` takes it; in the one embedding of a pair, a
        word of the source or of the target. Raises CutawayError for a token that the table lacks."""
        sides = [] if self.tokenizer is None else list(dict.fromkeys((self.tokenizer, self.tokenizer.target)))
        return find_token(point, len(self.vectors), sides)

    def point(self, point: str | int) -> tuple[int | None, Tensor]:
        """The id and the vector (1, D) fp64 of a token, as `find` takes it."""
        id = self.find(point)
        return id, self.rows([id])

    def rows(self, ids: Sequence[int]) -> Tensor:
        """The vectors (N, D) fp64 of some ids, on the CPU."""
        chosen = torch.tensor(list(ids), dtype=torch.long, device=self.vectors.device)
        return self.vectors.detach()[chosen].cpu().double()

    def blocks(self) -> Iterator[Tensor]:
        """The whole table, some rows (N, D) fp64 at a time, on the CPU."""
        for block in self.vectors.detach().split(max(1, _VALUES_AT_ONCE // self.vectors.shape[1])):
            yield block.cpu().double()


@dataclass(frozen=True, repr=False)
class WordTable(VectorTable):
    """The vectors of words, which are found by a list and not by a tokenizer."""

    opened: WordVectors = field(kw_only=True)

    def label(self, id: int) -> str:
        return self.opened.words.label(id)

    def find(self, point: str | int) -> int:
        return self.opened.words.find(point)

    def point(self, point: str | int) -> tuple[int | None, Tensor]:
        """The same; in the embedding character n-grams make the vector of a word that was never read, whose id is
        None."""
        if self.name == "embedding" and isinstance(point, str) and self.opened.words.id(point) is None:
            return None, self.opened.vector(point)[None].double()
        return super().point(point)


@dataclass(frozen=True)
class Neighbour:
    """A row of a table and its cosine, dot product or Euclidean distance to a query."""

    id: int
    piece: str
    value: float


def table_of(loaded: Loaded, name: TableName = "embedding") -> VectorTable:
    """The table that ids are looked up in, or the rows of the output matrix that logits are products with.

    Raises CutawayError for another name, and for the unembedding of a model without an output head.
    """
    model = loaded.model
    check_choice("table", name, TableName)
    tokens = model.source_embed.tokens if isinstance(model, EncoderDecoder) else model.embed.tokens
    output = model.head.unembed.weight if isinstance(model.head, Head) else None
    if name == "embedding":
        return VectorTable(name, tokens.weight, loaded.tokenizer, output is tokens.weight)
    if output is None:
        raise CutawayError(
            "{path} has no output head, so there is no unembedding table: use embedding", path=loaded.path
        )
    # What is written is the target's.
    tokenizer = None if loaded.tokenizer is None else loaded.tokenizer.target
    return VectorTable(name, output, tokenizer, output is tokens.weight)


def space_of(space: Loaded | WordVectors | VectorTable, table: TableName = "embedding") -> VectorTable:
    """A table that is given, or that table of a model or of word vectors: their outputs are the unembedding."""
    if isinstance(space, VectorTable):
        return space
    if isinstance(space, Loaded):
        return table_of(space, table)
    check_choice("table", table, TableName)
    if table == "unembedding" and space.config.output != "negative":
        raise CutawayError(
            "{path} has no output vector of each word (output is {output}): use embedding",
            path=space.path,
            output=space.config.output,
        )
    vectors = space.vectors if table == "embedding" else space.model.unembed.weight.detach()
    return WordTable(table, vectors, None, opened=space)


def nearest_rows(
    table: VectorTable, queries: Tensor, *, top: int, measure: Measure, left_out: Sequence[int] = ()
) -> tuple[tuple[Neighbour, ...], ...]:
    """For each of queries (Q, D) the `top` nearest rows, best first, none of `left_out`."""
    if top < 1:
        raise CutawayError("top is {top}, expected at least 1", top=top)
    near = nearness(table, queries, measure)
    near[:, list(left_out)] = -torch.inf
    most = min(top, near.shape[1] - len(set(left_out)))
    order = near.argsort(dim=-1, descending=True, stable=True)[:, :most]
    values = near.gather(1, order)
    sign = -1.0 if measure == "euclid" else 1.0
    return tuple(
        tuple(Neighbour(id, table.label(id), sign * value) for id, value in zip(*row, strict=True))
        for row in zip(order.tolist(), values.tolist(), strict=True)
    )


def nearness(table: VectorTable, queries: Tensor, measure: Measure) -> Tensor:
    """queries (Q, D) -> (Q, V) fp64, greater is nearer: the cosine, the dot product, or minus the distance.

    Raises CutawayError for an unknown measure, a query of length 0 under the cosine, and values that are not finite.
    """
    check_choice("measure", measure, Measure)
    queries = queries.detach().cpu().double()
    if measure == "cosine":
        if not bool(queries.norm(dim=-1).all()):
            raise CutawayError(
                "a vector of length 0 has no direction, so no cosine: use the measure dot or euclid"
            )
        queries = normalize(queries, dim=-1)
    near = torch.cat([_nearness(block, queries, measure) for block in table.blocks()], dim=1)
    if not bool(near.isfinite().all()):
        (id, *_) = (~near.isfinite()).any(dim=0).nonzero().flatten().tolist()
        raise CutawayError(
            "the {name} table has values that are not finite, first compared in the row of {label} "
            "(id {id}): the model's weights are damaged; fetch them again",
            name=table.name,
            label=table.label(id),
            id=id,
        )
    return near


def _nearness(block: Tensor, queries: Tensor, measure: Measure) -> Tensor:
    # by differences: a difference of products would cancel for near points
    if measure == "euclid":
        return -torch.cdist(queries, block, compute_mode="donot_use_mm_for_euclid_dist")
    return queries @ (normalize(block, dim=-1) if measure == "cosine" else block).T


# What pages say of tables.

TABLES = {"embedding": say("the embedding table"), "unembedding": say("the unembedding table")}
PIECE = say("piece")
COSINE = say("cosine")
MEASURES = {"cosine": COSINE, "dot": say("dot product"), "euclid": say("distance")}


def table_name(name: str) -> Phrase:
    """A table of the model, or one that a user made."""
    return TABLES.get(name, say("the {name} table", name=name))


def neighbour_table(items: Sequence[Neighbour], measure: Measure = "cosine") -> Table:
    """Rows of a table with their nearness; a cosine also as a bar."""
    columns: list[Column] = [left(PIECE), right("id"), right(MEASURES[measure])]
    if measure != "cosine":
        return Table(columns, [(each.piece, str(each.id), number(each.value)) for each in items])
    rows = [(each.piece, str(each.id), f"{each.value:.3f}", Bar(max(0.0, each.value))) for each in items]
    return Table([*columns, left("")], rows)
