"""What a beam search weighed on its way to a translation: every hypothesis, where it looked, and what became of it."""

# Shapes: N nodes, S source tokens, L layers, H heads.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.search import MAX_BEAM, BeamStep, LengthPenalty
from cutaway.decode.text_model import Hypothesis
from cutaway.decode.translation import Source
from cutaway.decode.translator import BEAM, Translator
from cutaway.errors import CutawayError
from cutaway.inspection.asked import OneHead, OneLayer
from cutaway.inspection.changes.lists import SomeChanges, edits, read_changes
from cutaway.inspection.options import Option
from cutaway.inspection.page_parts import array
from cutaway.inspection.question import TRANSLATOR, Suggesting, Suggestion, Translating, question
from cutaway.inspection.runs import Tokens, ToLanguage, run
from cutaway.inspection.terms import SOURCE, WEIGHT, left, right
from cutaway.inspection.wiring import chosen
from cutaway.page.blocks import Atlas, Heading, Line, Matrix, Page, Prose, Table, Tinted, page
from cutaway.tap import Trace
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, say

Fate = Literal["live", "stop", "length", "dropped"]
MAPS = 8  # hypotheses whose attention a page draws


@dataclass(frozen=True)
class Node:
    """A hypothesis: the one of node `parent` (None: nothing yet) with one token more.

    `total` is the sum of the log-probabilities (natural) of its tokens, `score` what it is ranked by in the end: that
    divided by `divisor`, the length penalty of its `step` tokens. `fate`: it lives on, ends with an end token ("stop")
    or at the limit ("length"), or has no place in the beam.
    """

    step: int  # tokens, from 1
    parent: int | None
    id: int
    piece: str
    log_prob: float
    total: float
    divisor: float
    score: float
    fate: Fate
    text: str  # all that is written so far


@dataclass(frozen=True, repr=False)
class Tree(Suggesting, Translating):
    """The way of a beam search, of `beam` hypotheses side by side (Wu et al. 2016, §7).

    `nodes` are the continuations that were weighed, step by step and in a step best first; there were many more, of
    which none could have had a place. `best` is the one that won. `attention` (N, S): the cross-attention with which a
    node's token was chosen, the mean over the layers and heads that were asked for; its rows sum to 1, and nodes of the
    same parent have the same. `told` says what became of each node. `start` is what the decoder read before it wrote.
    With a repetition penalty of the model's own, `log_prob` is what the search ranked by, and no log-probability.
    """

    source: Tokens
    start: Tokens
    nodes: tuple[Node, ...]
    told: tuple[Phrase, ...]
    best: int
    beam: int
    length_penalty: LengthPenalty
    layer: int | None
    head: int | None
    attention: Tensor

    @property
    def output(self) -> str:
        return self.nodes[self.best].text

    def way(self, node: int) -> list[int]:
        """The nodes from the first token of a hypothesis to its last, `node`."""
        found: list[int] = []
        at: int | None = node
        while at is not None:
            found.append(at)
            at = self.nodes[at].parent
        return found[::-1]

    def page(self) -> Page:
        return _page(self)

    def suggestions(self) -> Iterator[Suggestion]:
        return _suggestions(self)


@question(
    say("The tree of a beam search: every hypothesis, where it looked, and what became of it."),
    "text",
    TRANSLATOR,
)
def tree(
    loaded: Loaded,
    text: Annotated[str, Option(say("The text to translate."), positional=True)],
    *,
    to: ToLanguage = None,
    beam: Annotated[
        int | None,
        Option(
            say("Width of the search; the model's own unless given, and 4 where it has none."),
            at_least=2,
            at_most=MAX_BEAM,
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        Option(
            say(
                "Exponent of the length penalty; larger favours longer translations; the model's own unless given."
            )
        ),
    ] = None,
    layer: OneLayer = None,
    head: OneHead = None,
    changes: SomeChanges = (),
) -> Tree:
    """Translate by a beam search and keep what it weighed.

    `changes` are made while it searches (see `changes.lists`): op `token` forces or bans a token at a step.
    Raises CutawayError for a model that does not translate, an empty text, and values out of range.
    """
    translator = Translator(loaded)
    layers = chosen(say("layer"), layer, loaded.config.n_layers)
    heads = chosen(say("head"), head, loaded.config.n_heads)
    source = translator.prepare(text, to=to)
    if not source.ids:
        raise CutawayError("the text is empty: there is nothing to translate; give a sentence")
    steps: list[BeamStep] = []
    search = translator.own.search(BEAM, beam=beam, temperature=0.0, attention="full", observe=steps.append)
    if search.beam == 1:
        search = replace(search, beam=BEAM.beam)
    if length_penalty is not None:
        search = replace(search, length_penalty=replace(search.length_penalty, alpha=length_penalty))
    changing = read_changes(changes)
    edit = edits(changing, run(loaded, text, to=to, beam=search.beam)) if changing else {}
    with Trace(loaded.model, edit=edit):
        [[best, *_]] = translator.write([source], search=search)
    return _grown(translator, source, steps, search.length_penalty, search.beam, best, layers, heads)


def _grown(
    translator: Translator,
    source: Source,
    steps: Sequence[BeamStep],
    penalty: LengthPenalty,
    beam: int,
    best: Hypothesis,
    layers: tuple[int, ...],
    heads: tuple[int, ...],
) -> Tree:
    """The tree of a search's steps; the live candidates of one are the parents of the next."""
    tokenizer, begun = translator.tokenizer, translator.start(source)
    nodes: list[Node] = []
    ids: list[tuple[int, ...]] = []
    looked: list[Tensor] = []
    live: list[int] = []
    for step in steps:
        assert step.attention is not None, "asked of the search"
        rows = step.attention[:, list(layers)][:, :, list(heads)].mean(dim=(1, 2))  # (K, S)
        grown = len(nodes)
        for each in step.candidates:
            parent = live[each.parent] if live else None
            written = (*(() if parent is None else ids[parent]), each.id)
            nodes.append(
                Node(
                    step=step.length,
                    parent=parent,
                    id=each.id,
                    piece=tokenizer.readable(each.id),
                    log_prob=each.total - (0.0 if parent is None else nodes[parent].total),
                    total=each.total,
                    divisor=penalty.divisor(step.length),
                    score=each.total / penalty.divisor(step.length),
                    fate=each.fate,
                    text=tokenizer.decode(written),
                )
            )
            ids.append(written)
            looked.append(rows[each.parent])
        live = [at for at in range(grown, len(nodes)) if nodes[at].fate == "live"]
    ends = (at for at, each in enumerate(nodes) if each.fate in ("stop", "length"))
    best_node = next(at for at in ends if list(ids[at]) == best.ids)
    return Tree(
        source=Tokens(source.ids, source.pieces),
        start=Tokens(begun, list(map(tokenizer.readable, begun))),
        nodes=tuple(nodes),
        told=tuple(_told(nodes, at, best_node, beam) for at in range(len(nodes))),
        best=best_node,
        beam=beam,
        length_penalty=penalty,
        layer=layers[0] if len(layers) == 1 else None,
        head=heads[0] if len(heads) == 1 else None,
        attention=torch.stack(looked).float().cpu(),
    )


def _told(nodes: Sequence[Node], at: int, best: int, beam: int) -> Phrase:
    """What became of a hypothesis, and why."""
    node = nodes[at]
    if at == best:
        return say("It won: of all that ended, its score is the highest.")
    if node.fate == "live":
        if node.step == nodes[-1].step:
            return say("Left open: however it went on, it could not have won any more.")
        if any(each.parent == at and each.fate != "dropped" for each in nodes):
            return say("It goes on.")
        return say("It went on, but none of its continuations found a place in the beam.")
    if node.fate != "dropped":
        return say(
            "It ended with a score of {score:.3f}; the winner's is {best:.3f}.",
            score=node.score, best=nodes[best].score,
        )  # fmt: skip
    kept = [each.total for each in nodes if (each.step, each.fate) == (node.step, "live")]
    if not kept or node.total >= min(kept):
        return say("Dropped: it is not among the {beam} best of its step.", beam=beam)
    return say(
        "Dropped at step {step}: its log-probability {total:.2f} is below {kept:.2f}, that of the last one with a "
        "place in the beam.",
        step=node.step, total=node.total, kept=min(kept),
    )  # fmt: skip


def _suggestions(found: Tree) -> Iterator[Suggestion]:
    yield Suggestion(say("where each word looked, and what it depends on"), "align", {})
    # the first step at which the winner was not alone
    for at in found.way(found.best):
        node = found.nodes[at]
        others = [
            each
            for each in found.nodes
            if (each.step, each.parent) == (node.step, node.parent) and each is not node
        ]
        if others:
            about = say("the search with '{piece}' banned at token {step}", piece=node.piece, step=node.step)
            place = len(found.start) - 1 + node.step - 1
            ban = {"changes": [{"op": "token", "at": place, "ban": [node.id]}]}
            yield Suggestion(about, "tree", ban)
            about = say("what else might stand there, with temperature, top-k and top-p")
            yield Suggestion(about, "candidates", {"at": place})
            return


# Its page.

_FATES: dict[Fate, Phrase] = {
    "live": say("goes on"),
    "stop": say("ends"),
    "length": say("at the limit"),
    "dropped": say("dropped"),
}
_ABOUT = say(
    "log-prob.: the sum over its tokens. score: that divided by the length penalty, by which finished hypotheses are "
    "ranked. dropped: the beam had better ones; of those dropped at a step the best one is listed. left open: it could "
    "not have won any more."
)


def _page(found: Tree) -> Page:
    best = found.nodes[found.best]
    ended = sorted(
        (each for each in found.nodes if each.fate in ("stop", "length")), key=lambda each: -each.score
    )
    settings = say(
        "beam {beam}, length penalty {alpha:g} ({kind}), {nodes:,} hypotheses weighed",
        beam=found.beam, alpha=found.length_penalty.alpha, kind=found.length_penalty.kind, nodes=len(found.nodes),
    )  # fmt: skip
    kept = {"live", "stop", "length"}
    rows: list[tuple[Text | Tinted, ...]] = []
    on_the_way = set(found.way(found.best))
    dropped: set[int] = set()
    last = found.nodes[-1].step
    for at, each in enumerate(found.nodes):
        if each.fate in kept or each.step not in dropped:
            dropped |= {each.step} if each.fate == "dropped" else set()
            pieces = " ".join(found.nodes[place].piece for place in found.way(at))
            fate = say("won") if at == found.best else _FATES[each.fate]
            if (each.step, each.fate) == (last, "live"):
                fate = say("left open")
            written = Tinted(pieces, 1.0) if at in on_the_way else pieces
            rows.append((str(each.step), f"{each.total:.2f}", f"{each.score:.3f}", fate, written))
    columns = (
        right(say("tokens")),
        right(say("log-prob.")),
        right(say("score")),
        left(say("fate")),
        left(say("hypothesis")),
    )
    return page(
        say("What the search weighed"),
        [
            Line(SOURCE, found.source.pieces),
            Prose(say("translation"), best.text),
            Prose(say("search"), settings),
            Heading(say("Finished")),
            Table(
                (
                    right(say("score")),
                    right(say("log-prob.")),
                    right(say("tokens")),
                    left(say("translation")),
                ),
                [(f"{each.score:.3f}", f"{each.total:.2f}", str(each.step), each.text) for each in ended],
            ),
            Heading(say("Step by step")),
            Table(columns, rows, tint=say("on the way to the one that won")),
            _ABOUT,
            Heading(say("Where each hypothesis looked")),
            _maps(found),
        ],
    )


def _maps(found: Tree) -> Matrix | Atlas:
    """The winner's attention, and that of other hypotheses at their end, the best first."""
    parents = {each.parent for each in found.nodes}
    others = [
        at
        for at, each in enumerate(found.nodes)
        if at not in parents and at != found.best and each.fate != "dropped"
    ]
    ranked = [found.best, *sorted(others, key=lambda at: -found.nodes[at].score)][:MAPS]
    maps = [_map(found, at) for at in ranked]
    if len(maps) == 1:
        return maps[0]
    names = [truncate(found.nodes[at].text, 24) for at in ranked]
    return Atlas(names, maps, 2)


def _map(found: Tree, node: int) -> Matrix:
    way = found.way(node)
    pieces = [found.nodes[at].piece for at in way]
    return Matrix(array(found.attention[way]), pieces, found.source.pieces, say("writes"), SOURCE, WEIGHT)
