"""How a word moves from its embedding to its meaning in context: the same word followed through two sentences."""

# Shapes: T tokens, D width, P stages, L layers.

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from cutaway.errors import CutawayError, nearest
from cutaway.inspection.geometry.projection import Projection, pca
from cutaway.inspection.geometry.vectors import (
    Measure,
    Neighbour,
    TableName,
    nearest_rows,
    table_of,
)
from cutaway.inspection.pages.context_drift import context_drift_page
from cutaway.inspection.runs.run import Run, Tokens
from cutaway.inspection.runs.selection import tokenizer_of
from cutaway.inspection.runs.sides import Side
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.stack import Stack
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.text.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class WordPath:
    """One word's vector at each of P stages, in one sentence; of a word of several pieces the mean of theirs."""

    positions: tuple[int, ...]  # of its pieces in the text
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    text: tuple[str, ...]  # T: the pieces of the whole text
    vectors: Tensor  # (P, D) fp32, the residual stream
    static_cosines: Tensor  # (P,) fp64: with the first stage, its static embedding
    static_distances: Tensor  # (P,) fp64: ‖vector - static embedding‖
    lengths: Tensor  # (P,) fp64: ‖vector‖, which often grows from layer to layer and is then what distance measures
    neighbours: tuple[tuple[Neighbour, ...], ...]  # P lists, best first, the word's own pieces included
    path: Tensor  # (P, 2) fp64: in the shared drawing


@dataclass(frozen=True, repr=False)
class ContextDrift(Drawn):
    """One word in two sentences, stage by stage.

    The stages are taps: the static embedding (`embed`: the token's row times the model's embedding scale, the same in
    every sentence), what enters the first block (`resid_pre`: with its position, and its segment and norm where the
    model has them), what leaves each block (`resid_post`), and the stack's result after the final norm (`normed`)
    where there is one. `cosines` are between the two sentences, u·v / (‖u‖‖v‖): at the first stage 1 where the pieces
    are the same, afterwards lower the more the contexts part them (Ethayarajh 2019, §3.3: self-similarity).
    `projection` is a principal component analysis fitted on both paths (2 P points), its share of the variance stated.

    Approximate: `neighbours` are the rows of a table nearest to a residual vector. The model never compares the
    two; at the first stage they are exact, and deeper the stream may use directions of its own (`lens` asks
    the model's own output). Raw cosines are high wherever all tokens share a common direction (Ethayarajh 2019, §4.1).
    """

    word: str
    side: str  # "encoder" or "decoder"
    stages: tuple[str, ...]  # P full tap names
    same_pieces: bool  # whether both sentences cut the word alike; else the paths begin at different points
    cosines: Tensor  # (P,) fp64
    first: WordPath
    second: WordPath
    table: str  # that the neighbours are of
    measure: Measure
    projection: Projection

    def page(self) -> Page:
        return context_drift_page(self)


def context_drift(
    first: Run,
    second: Run,
    word: str | tuple[Sequence[int], Sequence[int]],
    *,
    side: Side | None = None,
    occurrences: tuple[int, int] = (1, 1),
    top: int = 5,
    table: TableName = "embedding",
    measure: Measure = "cosine",
) -> ContextDrift:
    """Follow `word` through two runs of one model; see `ContextDrift`.

    `word` is a text of one piece or several, of which `occurrences` choose the first, second, … in each sentence; or
    its positions in each. `side` is the stack: an encoder-decoder's encoder (the default there) reads the source, its
    decoder the target.
    Raises CutawayError for runs of two models, a word that is not in a text, and a side that the model does not have.
    """
    if first.model is not second.model:
        raise CutawayError(
            "the two runs are of different models: vectors of one model mean nothing in another's space"
        )
    model = first.model
    names: tuple[Side, ...] = ("encoder", "decoder")
    sides: dict[Side, Stack] = {}
    for name in names:
        if isinstance(part := getattr(model, name, None), Stack):
            sides[name] = part
    where = next(iter(sides)) if side is None else side
    if where not in sides:
        raise CutawayError(
            "side is {where!r}{hint}, expected {sides} in this model",
            where=where,
            hint=nearest(where, sides),
            sides=" or ".join(sides),
        )
    vectors = table_of(first.loaded, table)
    if isinstance(word, str):
        places = [
            find_word(_tokens(run, where), word, tokenizer_of(run, where), occurrence)
            for run, occurrence in zip((first, second), occurrences, strict=True)
        ]
    else:
        places = [tuple(word[0]), tuple(word[1])]
    runs = (first, second)
    for run, positions in zip(runs, places, strict=True):
        _check_positions(_tokens(run, where), positions)
    stages = _stages(first, where, sides[where])
    streams = [_vectors(run, stages, positions) for run, positions in zip(runs, places, strict=True)]
    projection = pca(torch.cat(streams), k=min(10, len(stages) - 1))
    drawn = projection.coordinates.split(len(stages))
    paths = [
        _path(
            _tokens(run, where),
            positions,
            stream,
            drawn_path,
            nearest_rows(vectors, stream, top=top, measure=measure),
        )
        for run, positions, stream, drawn_path in zip(runs, places, streams, drawn, strict=True)
    ]
    return ContextDrift(
        word=word if isinstance(word, str) else " ".join(paths[0].pieces),
        side=where,
        stages=tuple(stages),
        same_pieces=paths[0].ids == paths[1].ids,
        cosines=cosine_similarity(streams[0].double(), streams[1].double(), dim=-1),
        first=paths[0],
        second=paths[1],
        table=table,
        measure=measure,
        projection=projection,
    )


def find_word(tokens: Tokens, word: str, tokenizer: Tokenizer, occurrence: int = 1) -> tuple[int, ...]:
    """The positions of the pieces that spell `word`, the first, second, … time that it occurs.

    The fewest pieces side by side whose text is the word (or what the tokenizer makes of it, where it folds case),
    control tokens never among them. Raises CutawayError where it does not occur, naming the pieces of the text.
    """
    wanted = {word.strip(), tokenizer.decode(tokenizer.encode_ids([word])[0]).strip()} - {""}
    silent = [tokenizer.is_silent(id) for id in tokens.ids]

    def spells(start: int, end: int) -> bool:
        return tokenizer.decode(tokens.ids[start:end]).strip() in wanted

    longest = max((len(text.encode()) for text in wanted), default=0) + 1
    found: list[tuple[int, ...]] = []
    start = 0
    while start < len(tokens):
        ends = range(start + 1, min(start + longest, len(tokens)) + 1)
        end = next((end for end in ends if not any(silent[start:end]) and spells(start, end)), None)
        if end is not None and not (end - start > 1 and spells(start + 1, end)):
            found.append(tuple(range(start, end)))
            start = end
        else:  # no word begins here, or only one whose first piece shows nothing
            start += 1
    if not found:
        hint = nearest(word, tokens.pieces)
        raise CutawayError(
            "{word!r} is not in the text{hint}; its pieces: {pieces}",
            word=word,
            hint=hint,
            pieces=" ".join(tokens.pieces),
        )
    if not 1 <= occurrence <= len(found):
        raise CutawayError(
            "occurrence is {occurrence}, expected 1 to {count}: so often {word!r} is in the text",
            occurrence=occurrence,
            count=len(found),
            word=word,
        )
    return found[occurrence - 1]


def _tokens(run: Run, side: str) -> Tokens:
    tokens = run.source if side == "encoder" else run.target
    assert tokens is not None, "a run has the tokens that each of its model's stacks reads"
    return tokens


def _check_positions(tokens: Tokens, positions: Sequence[int]) -> None:
    wrong = [position for position in positions if not 0 <= position < len(tokens)]
    if wrong or not positions:
        raise CutawayError(
            "positions are {positions}, expected one or more of 0 to {count}",
            positions=list(positions),
            count=len(tokens) - 1,
        )


def _stages(run: Run, side: str, stack: Stack) -> list[str]:
    """The full names of the taps that the word passes."""
    embedding = "embed"
    if isinstance(run.model, EncoderDecoder):
        embedding = "source_embed" if side == "encoder" else "target_embed"
    layers = [f"{side}.layers.{i}.resid_post" for i in range(len(stack.layers))]
    final = [f"{side}.normed"] if run.loaded.config.has_final_norm else []
    return [f"{embedding}.embed", f"{side}.layers.0.resid_pre", *layers, *final]


def _vectors(run: Run, stages: Sequence[str], positions: Sequence[int]) -> Tensor:
    """(P, D) fp32: the mean over the pieces at each stage; nothing else of the forward pass is kept."""

    def at_word(x: Tensor) -> Tensor:
        return x[0, list(positions)].float().mean(dim=0)

    _, trace = run.forward(watch=dict.fromkeys(stages, at_word))
    return torch.stack([trace[stage].cpu() for stage in stages])


def _path(
    tokens: Tokens,
    positions: Sequence[int],
    vectors: Tensor,
    drawn: Tensor,
    near: tuple[tuple[Neighbour, ...], ...],
) -> WordPath:
    exact = vectors.double()
    return WordPath(
        positions=tuple(positions),
        ids=tuple(tokens.ids[position] for position in positions),
        pieces=tuple(tokens.pieces[position] for position in positions),
        text=tuple(tokens.pieces),
        vectors=vectors,
        static_cosines=cosine_similarity(exact, exact[:1], dim=-1),
        static_distances=(exact - exact[0]).norm(dim=-1),
        lengths=exact.norm(dim=-1),
        neighbours=near,
        path=drawn,
    )
