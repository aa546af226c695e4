"""How a word moves from its embedding to its meaning in context: the same word followed through two sentences."""

# Shapes: T tokens, D width, P stages, L layers.

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from cutaway.errors import CutawayError, nearest
from cutaway.inspection.asked import FirstStack, stream_taps
from cutaway.inspection.options import Option, OtherText
from cutaway.inspection.page_parts import array
from cutaway.inspection.principal_axes import PrincipalAxes, measures, pca, plot_of
from cutaway.inspection.question import question
from cutaway.inspection.runs import ReadingStack, Run, Tokens, stacks, tokenizer_of
from cutaway.inspection.terms import SIDES, left, right
from cutaway.inspection.vectors import (
    COSINE,
    Measure,
    Neighbour,
    TableName,
    nearest_rows,
    table_name,
    table_of,
)  # fmt: skip
from cutaway.inspection.wiring import Side, stack_result
from cutaway.page.blocks import Heading, Line, Matrix, Page, Point, Table, Tinted, page
from cutaway.page.drawn import Drawn
from cutaway.text.display import truncate
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Phrase, Text, listed, say, say_in


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
class Drift(Drawn):
    """One word in two sentences, stage by stage.

    The stages are taps: the static embedding (`embed`: the token's row times the model's embedding scale, the same in
    every sentence), what enters the first block (`resid_pre`: with its position, and its segment and norm where the
    model has them), what leaves each block (`resid_post`), and the stack's result after the final norm (`normed`)
    where there is one. `cosines` are between the two sentences, u·v / (‖u‖‖v‖): at the first stage 1 where the pieces
    are the same, afterwards lower the more the contexts part them (Ethayarajh 2019, §3.3: self-similarity).
    `axes` are a principal component analysis fitted on both paths (2 P points), its share of the variance stated.

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
    axes: PrincipalAxes

    def page(self) -> Page:
        return _page(self)


@question(say("One word on its way through the layers, in two texts."), "space")
def drift(
    run: Run,
    other: Annotated[Run, OtherText(say("Another text with the same word."))],
    word: Annotated[str, Option(say("The word that both texts have."))],
    *,
    side: FirstStack = None,
    occurrences: Annotated[
        tuple[int, ...], Option(say("Which time the word occurs, in each text: 1 is the first."), at_least=1)
    ] = (1, 1),
    top: Annotated[int, Option(say("Nearest tokens that are kept at each stage."), at_least=1)] = 5,
    table: Annotated[
        TableName | None, Option(say("The table of the nearest tokens; a decoder's is the output's."))
    ] = None,
    measure: Annotated[Measure, Option(say("What nearness is."))] = "cosine",
) -> Drift:
    """Follow `word`, a text of one piece or several, through two runs of one model; see `Drift`.

    Raises CutawayError for runs of two models, a word that is not in a text, and a side that the model lacks.
    """
    if run.model is not other.model:
        raise CutawayError(
            "the two runs are of different models: vectors of one model mean nothing in another's space; "
            "take two runs of one model"
        )
    there = stacks(run)
    where: Side = next(iter(there)) if side is None else side
    if where not in there:
        raise CutawayError(
            "side is {side!r}{hint}, expected {there} in this model",
            side=where,
            hint=nearest(where, there),
            there=listed(there, say(" or ")),
        )
    if len(occurrences) != 2:
        raise CutawayError("occurrences has {n} numbers, expected one for each text", n=len(occurrences))
    # what a decoder reads are tokens of the target, whose table is the output's
    if table is None:
        table = "unembedding" if where == "decoder" and len(there) == 2 else "embedding"
    runs = (run, other)
    texts = [stacks(each)[where].tokens for each in runs]
    places = [
        find_word(text, word, tokenizer_of(run, where), occurrence)
        for text, occurrence in zip(texts, occurrences, strict=True)
    ]
    stages = _stages(run, there[where])
    streams = [_vectors(each, stages, positions) for each, positions in zip(runs, places, strict=True)]
    axes = pca(torch.cat(streams), k=min(10, len(stages) - 1))
    vectors = table_of(run.loaded, table)
    near = [nearest_rows(vectors, stream, top=top, measure=measure) for stream in streams]
    paths = list(map(_path, texts, places, streams, axes.coordinates.split(len(stages)), near))
    return Drift(
        word=word,
        side=where,
        stages=tuple(stages),
        same_pieces=paths[0].ids == paths[1].ids,
        cosines=cosine_similarity(streams[0].double(), streams[1].double(), dim=-1),
        first=paths[0],
        second=paths[1],
        table=table,
        measure=measure,
        axes=axes,
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
        else:
            # no word begins here, or only one whose first piece shows nothing
            start += 1
    if not found:
        raise CutawayError(
            "{word!r} is not in the text{hint}; its pieces: {pieces}",
            word=word,
            hint=nearest(word, tokens.pieces),
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


def _stages(run: Run, stack: ReadingStack) -> list[str]:
    """The full names of the taps that the word passes."""
    final = [stack_result(stack.name)] if run.loaded.config.has_final_norm else []
    return [f"{stack.embedding_name}.embed", *stream_taps(stack), *final]


def _vectors(run: Run, stages: Sequence[str], positions: Sequence[int]) -> Tensor:
    """(P, D) fp32: the mean over the pieces at each stage; nothing else of the forward pass is kept."""

    def at_word(x: Tensor) -> Tensor:
        return x[0, list(positions)].float().mean(dim=0)

    trace = run.seen(dict.fromkeys(stages, at_word))
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


# Its page.

FIRST, SECOND = say_in("text", "first"), say_in("text", "second")
STAGE = say("stage")
NEAREST = 3  # listed at each stage


def _page(found: Drift) -> Page:
    stages, first, second = [stage_name(stage) for stage in found.stages], found.first, found.second
    near = (map(_near, path.neighbours) for path in (first, second))
    cosine = (f"{each:.3f}" for each in found.cosines.tolist())
    rows = list(zip(stages, cosine, *near, strict=True))
    columns = (left(STAGE), right(COSINE), left(say("nearest, first")), left(say("nearest, second")))
    start = say(
        "The two sentences cut the word into different pieces, so that its paths begin at different points."
    )
    n = len(stages)
    points = [
        Point(x, y, stage, group)
        for group, path in enumerate((first, second))
        for stage, (x, y) in zip(stages, path.path.tolist(), strict=True)
    ]
    paths = (range(n), range(n, 2 * n))
    # How far the word has come in each sentence, and how far the two have parted.
    cosines = np.stack([array(each) for each in (first.static_cosines, second.static_cosines, found.cosines)])
    names = [say("{side}, start", side=side) for side in (FIRST, SECOND)]
    names.append(say("{first}, {second}", first=FIRST, second=SECOND))
    between = say("between which two vectors")
    return page(
        say("'{word}' in two sentences ({side})", word=found.word, side=SIDES[found.side]),
        [
            Line(FIRST, _marked(first)),
            Line(SECOND, _marked(second)),
            None if found.same_pieces else start,
            Table(columns, rows),
            say(
                "cosine: of the word's vector in the one sentence and in the other; 1 is the same direction. "
                "nearest: rows of {table} nearest to it. The model never compares the two: exact at the "
                "embedding, approximate deeper down. Raw cosines are high wherever all tokens share a direction.",
                table=table_name(found.table),
            ),
            Heading(say("The two paths")),
            plot_of(found.axes, points, paths=paths, groups=(FIRST, SECOND), arrows=True),
            *measures(found.axes),
            Heading(say("How far each has come, and how far they have parted")),
            Matrix(cosines, names, stages, between, STAGE, COSINE, "signed", drawn=True),
        ],
    )


def stage_name(tap: str) -> Phrase:
    """What a stage is, by the tap that it is read from."""
    if layer := re.search(r"layers\.(\d+)\.resid_post$", tap):
        return say("layer {layer}", layer=layer[1])
    if tap.endswith(".resid_pre"):
        return say("input")
    return say("final norm") if tap.endswith(".normed") else say("embedding")


def _near(items: Sequence[Neighbour]) -> str:
    return "  ".join(truncate(each.piece, 8) for each in items[:NEAREST])


def _marked(path: WordPath) -> list[Text | Tinted]:
    """The whole text, the word's own pieces on a colour."""
    return [Tinted(piece, 0.3) if place in path.positions else piece for place, piece in enumerate(path.text)]
