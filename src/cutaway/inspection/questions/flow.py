"""One token's whole way through a model: every stage with its formula and this run's values (Vaswani et al. 2017)."""

# Shapes: B batch, T tokens, S keys, D width, H heads, K key/value heads, E head width, F feed-forward width, X experts,
# A chosen experts, V vocabulary.

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from cutaway.inspection.arithmetic.formula import Places, Rules
from cutaway.inspection.arithmetic.output_rules import LOGITS, Settings, head_rules, output_rules
from cutaway.inspection.arithmetic.record import BETWEEN, Record
from cutaway.inspection.arithmetic.stack_rules import stack_rules
from cutaway.inspection.asked import OneHead, OneLayer, position_asked
from cutaway.inspection.options import Option
from cutaway.inspection.outcome import written_token
from cutaway.inspection.page_parts import array, folded, numbers_to
from cutaway.inspection.question import Suggesting, Suggestion, question
from cutaway.inspection.runs import ReadingStack, Run, piece_of, stack_named, stacks
from cutaway.inspection.terms import ATTENTIONS, KEY, LAYER, PROBABILITY, QUERY, SIDES, TOKEN, WEIGHT, right
from cutaway.inspection.wiring import (
    Place,
    StackName,
    Sublayer,
    one_of,
    output_stack,
    places,
    stack_entry,
    stack_name,
    stack_of,
    stack_result,
)
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.head import Head, MaskedHead
from cutaway.nn.mlp import GatedMLP
from cutaway.nn.moe import MoE
from cutaway.nn.norm import NORMS, PostNorm, SandwichNorm
from cutaway.page.blocks import Block, Heading, Line, Matrix, Page, Prose, Table, Tinted, page
from cutaway.page.numbers import number
from cutaway.tap import TAPS, Edit
from cutaway.words import Phrase, Text, listed, say

Part = Literal["embedding", "attention", "cross", "ffn", "output"]
Joint = Literal["as it is", "added", "normalised"]
PROBABILITIES = "probabilities"
WEIGHTS = ("pattern", PROBABILITIES, "expert_weight")
ROW = ("V", "D")  # the dimensions of the embedding table
_PICKED = say("the row of the embedding table that the id picks; learned")
WORDS_SHOWN = 12  # of the vocabulary, of the greatest logits


@dataclass(frozen=True)
class Stage:
    """One value on the way.

    `joint` says how a value of the residual stream itself comes about: it is handed on as it is, something is added to
    it, or it is normalised; None of all that stands beside the stream. `formula`, with a `note` on it, is that of the
    number at `index` of the whole value, which `explain` works out, and `value` that number; a parameter or an id has
    no formula. `dims` names the dimensions of `shape` (see `TAPS`; HE and KE are heads side by side). `values` are the
    part that belongs to the token, one row or several: its own vector; of keys and values those of all tokens that its
    head reads; of scores and weights its row; of logits and probabilities those of the most probable words and of the
    one that stands there. `rows` and `columns` name them where they are tokens, words or experts; `words` are the ids
    of columns that are words. `norm` is the length of a vector, `total` the sum of all weights of a row, words that are
    not shown included; each None of what is none.
    """

    part: Part
    joint: Joint | None
    name: str  # the full name of the tap or parameter
    meaning: Text
    formula: str
    note: Phrase | None
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    index: tuple[int, ...]
    value: float
    values: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    words: tuple[int, ...]
    norm: float | None
    total: float | None


@dataclass(frozen=True)
class Told:
    """What a part of the way is called, and what happens in it."""

    part: Part
    title: Text
    about: Text


@dataclass(frozen=True)
class StreamLayer:
    """What one layer did to the token's residual stream: the lengths of what its sublayers added to it (after a
    sandwich's second norm), and cosine and length of what came of it; `cross` is None without cross-attention."""

    layer: int
    attention: float
    cross: float | None
    feed_forward: float
    cosine: float  # between resid_pre and resid_post
    length: float  # of resid_post


@dataclass(frozen=True, repr=False)
class Flow(Suggesting):
    """One token's way through one stack, from its id to the stack's result, or to the probabilities of the next word.

    `tokens` are what each stack of the model reads, `outcome` the tokens that the positions of the last of them stand
    before (`Run.outcome`), `wiring` says where the model's norms stand, and `parts` what the
    stages of each part do. `stages` are in the order in which this model computes them, `layer` in full with its
    `head`, of which grouped queries share a key/value head; the other layers are wired alike and stand in `stream`.
    """

    side: StackName
    position: int
    piece: str
    layer: int
    head: int
    n_layers: int
    norm_order: str
    title: Text
    wiring: Text
    tokens: dict[StackName, tuple[str, ...]]
    outcome: tuple[str, ...]
    parts: tuple[Told, ...]
    stages: tuple[Stage, ...]
    stream: tuple[StreamLayer, ...]

    def page(self) -> Page:
        return _page(self)

    def suggestions(self) -> Iterator[Suggestion]:
        return _suggestions(self)


@question(
    say("One token's way through the model: every stage with its formula and the values of this run."), "text"
)
def flow(
    run: Run,
    *,
    side: Annotated[
        StackName | None, Option(say("encoder or decoder; the one that gives the output unless given."))
    ] = None,
    layer: OneLayer = None,
    head: OneHead = None,
    at: Annotated[
        int | None,
        Option(say("The token's position, from 0; -1 is the last; else the one that is asked about first.")),
    ] = None,
) -> Flow:
    """Follow a token through a stack by one forward pass, of which only what belongs to the token is kept.

    `layer` is the one that is shown in full, the last unless given; `head` one of its heads, the first unless given.
    Raises CutawayError for a side, layer, head or position that there is not.
    """
    stack = stack_named(run, side)
    where = position_asked(run, stack.tokens, at)
    blocks = places(run.model, stack.name)
    place = blocks[one_of(say("layer"), -1 if layer is None else layer, len(blocks))]
    which = one_of(say("head"), 0 if head is None else head, run.model.config.n_heads)
    way = _Way(run, stack, where, place, which)
    side, piece = stack_name(stack.name), stack.tokens.pieces[where]
    parts: dict[Part, None] = dict.fromkeys(each.part for each in way.named)
    return Flow(
        side=side,
        position=where,
        piece=piece,
        layer=place.layer,
        head=which,
        n_layers=len(blocks),
        norm_order=run.model.config.norm_order,
        title=say(
            "The way of token {position}, '{piece}', through the {side}",
            position=where,
            piece=piece,
            side=SIDES[side],
        ),
        wiring=_ORDERS[run.model.config.norm_order],
        tokens={stack_name(name): tuple(each.tokens.pieces) for name, each in stacks(run).items()},
        outcome=tuple(run.outcome.pieces),
        parts=tuple(_told(part, side, place, which, len(blocks), way.named[-1].name) for part in parts),
        stages=tuple(map(way.stage, way.named)),
        stream=tuple(map(way.streamed, blocks)),
    )


@dataclass(frozen=True)
class _Named:
    """A value on the way, before it is looked up."""

    part: Part
    name: str
    dims: tuple[str, ...]
    joint: Joint | None = None


def _tap(part: Part, name: str, joint: Joint | None = None) -> _Named:
    return _Named(part, name, tuple(TAPS[name.rpartition(".")[2]][0].split()), joint)


def _between(part: Part, name: str, joint: Joint | None = None) -> _Named:
    return _Named(part, name, tuple(BETWEEN[name.rpartition(".")[2]][0].split()), joint)


def _named(run: Run, stack: ReadingStack, place: Place) -> Iterator[_Named]:
    """Every value on the way in the order in which this model computes them."""
    path, module = stack.embedding_name, stack.embedding
    ids = {"encoder": "source", "decoder": "target"}[stack.name]
    yield _Named("embedding", ids if isinstance(run.model, EncoderDecoder) else "ids", ("B", "T"))
    yield _Named("embedding", f"{path}.tokens.weight", ROW)
    yield _tap("embedding", f"{path}.embed")
    if module.positions is not None:
        yield _tap("embedding", f"{path}.position")
    entry: Joint = "as it is" if module.positions is None else "added"
    if isinstance(module.norm, tuple(NORMS.values())):
        yield _between("embedding", f"{path}.sum", "added")
        entry = "normalised"
    yield _tap("embedding", stack_entry(stack.name), entry)
    if place.layer:
        yield _tap("attention", f"{place.path}.resid_pre", "as it is")
    for sublayer in place.sublayers:
        yield from _named_sublayer(place, sublayer)
    plain = isinstance(stack_of(run.model, stack.name).norm, nn.Identity)
    yield _tap("output", stack_result(stack.name), "as it is" if plain else "normalised")
    if stack.name != output_stack(run.model) or not isinstance(run.model.head, Head):
        return
    if isinstance(run.model.head, MaskedHead):
        yield from (_between("output", f"head.{name}") for name in ("dense", "norm"))
    yield _tap("output", LOGITS)
    yield _Named("output", PROBABILITIES, ("B", "T", "V"))


def _named_sublayer(place: Place, sublayer: Sublayer) -> Iterator[_Named]:
    """Of one sublayer with its norm and its residual connection."""
    part, path, residual = sublayer.part, f"{place.path}.{sublayer.module}", place.residual(sublayer)
    if not isinstance(residual, PostNorm):
        yield _tap(part, f"{place.path}.{sublayer.residual}.normed")
    if sublayer.part == "ffn":
        inner = ["router", "expert_index", "expert_weight", "expert_out"]
        if not isinstance(place.block.mlp, MoE):
            inner = ["pre", *(["up"] if isinstance(place.block.mlp, GatedMLP) else []), "hidden"]
    else:
        attention = Place("cross", place.layer, place.stack) if part == "cross" else place
        turned = ["q_rot", "k_rot"] if attention.rotary is not None else []
        projected = ["q", "k", "v"]
        if isinstance(getattr(attention.attention, "q_norm", None), nn.Module):
            projected = ["q_proj", "q", "k_proj", "k", "v"]
        inner = [*projected, *turned, "scores", "scaled", "masked", "pattern", "z"]
    for name in (*inner, "out"):
        yield (_between if name in BETWEEN else _tap)(part, f"{path}.{name}")
    if isinstance(residual, SandwichNorm):
        yield _between(part, f"{place.path}.{sublayer.residual}.out_norm")
    if isinstance(residual, PostNorm):
        yield _between(part, f"{place.path}.{sublayer.residual}.sum", "added")
    yield _tap(
        part, f"{place.path}.{sublayer.after}", "normalised" if isinstance(residual, PostNorm) else "added"
    )


class _Way:
    """A token's way, by one pass that keeps what belongs to it."""

    def __init__(self, run: Run, stack: ReadingStack, position: int, place: Place, head: int):
        self._run, self._stack, self._place = run, stack, place
        self._own = {"T": position, "H": head, "K": head // place.attention.groups}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.named = tuple(_named(run, stack, place))
        # as a whole: which token was given to which expert, and what is projected before the norm of each head
        self._whole = {f"{place.path}.mlp.expert_index"}
        if run.model.config.qk_norm:
            before = place.before(place.sublayer("attention"))
            self._whole |= {before, f"{place.path}.self_residual.normed", stack_result("encoder")}
        self._record = Record(run, watch=dict(self._watched()))
        self._rules = self._all_rules()
        for name, rule in self._rules.items():
            if rule.made is not None:
                self._record.add(name, rule.made)
        self._words: list[int] = []
        if self.named[-1].name == PROBABILITIES:
            logits = self._record.need(LOGITS)[0, 0]
            self._own["V"] = written = written_token(run, logits, position)
            best: list[int] = logits.topk(min(WORDS_SHOWN, len(logits))).indices.tolist()
            self._words = best if written in best else [*best, written]

    def _watched(self) -> Iterator[tuple[str, Edit]]:
        """The taps on the way, and those of the stream in every layer, with how much of each is kept."""
        taps = [each for each in self.named if each.name.rpartition(".")[2] in TAPS]
        for place in places(self._run.model, self._stack.name):
            stream = [f"{place.path}.{name}" for name in ("resid_pre", "resid_post")]
            outs = [f"{place.path}.{sublayer.module}.out" for sublayer in place.sublayers]
            taps += [_tap("output", name) for name in (*stream, *outs)]
        cross = self._run.model.config.qk_norm and self._place.block.cross
        taps += [_tap("cross", stack_result("encoder"))] if cross else []
        for each in taps:
            yield each.name, partial(self._kept, each)

    def _kept(self, named: _Named, x: Tensor) -> Tensor:
        self._shapes[named.name] = tuple(x.shape)
        return x if named.name in self._whole else self._cut(named, x)

    def _cut(self, named: _Named, x: Tensor) -> Tensor:
        """What belongs to the token and to the head, with all dimensions; what is cut already stays."""
        for dim, letter in enumerate(named.dims):
            if letter in ("T", "H", "K") and x.shape[dim] > 1:
                x = x.narrow(dim, self._own[letter], 1)
        return x

    def _all_rules(self) -> Rules:
        record, side = self._record, self._stack.name
        rules = stack_rules(record, side, stack_result("encoder"), self._place.layer)
        if self.named[-1].name != PROBABILITIES:
            return rules
        return rules | head_rules(record, stack_result(side)) | output_rules(record, Settings())

    def stage(self, named: _Named) -> Stage:
        """One value on the way."""
        part, shape, index = self._read(named)
        rule = self._rules.get(named.name)
        at = tuple(0 if size == 1 else place for size, place in zip(part.shape, index, strict=True))
        # of a parameter a view would keep the whole table
        values = part.detach().float().flatten(0, -2).clone()
        last = named.dims[-1]
        if named.name in (LOGITS, PROBABILITIES):
            values = values[:, self._words]
        elif last in ("HE", "KE"):
            values = values[:, index[-1] : index[-1] + self._place.attention.d_head]
        rows, columns = self._labels(named)
        weights = named.name.rpartition(".")[2] in WEIGHTS
        vector = last not in ("T", "S", "A", "V") and not rows
        return Stage(
            part=named.part,
            joint=named.joint,
            name=named.name,
            meaning=_PICKED if named.dims == ROW else self._record.about(named.name),
            formula="" if rule is None else Places(rule, index).formula,
            note=rule.note if rule is not None and isinstance(rule.note, Phrase) else None,
            dims=named.dims,
            shape=shape,
            index=index,
            value=float(part[at]),
            values=values.cpu(),
            rows=rows,
            columns=columns,
            words=tuple(self._words) if last == "V" else (),
            norm=float(values.norm()) if vector else None,
            total=float(part.sum()) if weights else None,
        )

    def _read(self, named: _Named) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
        """The part of a value that belongs to the token, the shape of the whole, and the index of one number in it."""
        whole = self._record.need(named.name)
        if named.dims == ROW:
            id = self._stack.tokens.ids[self._own["T"]]
            return whole[id : id + 1], tuple(whole.shape), (id, 0)
        shape = self._shapes.get(named.name)
        if shape is None:
            tokens = len(self._stack.tokens)
            sizes = zip(named.dims, whole.shape, strict=True)
            shape = tuple(tokens if letter == "T" else size for letter, size in sizes)
        index = tuple(self._at(named, letter, size) for letter, size in zip(named.dims, shape, strict=True))
        return self._cut(named, whole), shape, index

    def _at(self, named: _Named, letter: str, size: int) -> int:
        """The place of a number of which the formula is told: of a row of keys the token's own, of the
        source's the last one."""
        if letter in self._own:
            return self._own[letter]
        if letter in ("HE", "KE"):
            return self._own[letter[0]] * self._place.attention.d_head
        if letter == "S":
            if named.part != "cross":
                return self._own["T"]
            return size - 1 if "T" in named.dims else 0
        return 0

    def _labels(self, named: _Named) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the rows and the columns of a value are, where they are no coordinates."""
        keys = self._run.source if named.part == "cross" else self._stack.tokens
        assert keys is not None
        path = f"{self._place.path}.mlp"
        if "S" in named.dims:
            pieces = tuple(keys.pieces)
            return ((), pieces) if named.dims[-1] == "S" else (pieces, ())
        if named.dims[-1] == "V":
            return (), tuple(piece_of(self._run, id) for id in self._words)
        if "A" in named.dims:
            (chosen,) = self._cut(named, self._record.need(f"{path}.expert_index"))[0].tolist()
            experts = tuple(map(str, chosen))
            return (experts, ()) if named.dims[-1] == "D" else ((), experts)
        return (), tuple(numbers_to(self._run.model.config.n_experts)) if named.dims[-1] == "X" else ()

    def streamed(self, place: Place) -> StreamLayer:
        """What a layer did to the stream."""

        def own(name: str) -> Tensor:
            return self._cut(_tap("output", name), self._record.need(f"{place.path}.{name}"))

        lengths: dict[str, float] = {}
        for sublayer in place.sublayers:
            out, residual = own(f"{sublayer.module}.out"), place.residual(sublayer)
            if isinstance(residual, SandwichNorm):
                with torch.no_grad():
                    out = residual.out_norm(out)
            lengths[sublayer.part] = float(out.float().norm())
        before, after = own("resid_pre").float(), own("resid_post").float()
        return StreamLayer(
            layer=place.layer,
            attention=lengths["attention"],
            cross=lengths.get("cross"),
            feed_forward=lengths["ffn"],
            cosine=float(cosine_similarity(before, after, dim=-1)),
            length=float(after.norm()),
        )


# What its parts are called, and what happens in them.

_ORDERS = {
    "pre": say(
        "This model is pre-norm: each sublayer reads the normalised stream, and what it writes is added to it."
    ),
    "post": say(
        "This model is post-norm, as the paper has it: what a sublayer writes is added, then the sum is normalised."
    ),
    "sandwich": say(
        "This model has sandwich norms: what a sublayer reads is normalised, and what it writes as well."
    ),
}


_ABOUT: dict[Part, Text] = {
    "embedding": say(
        "The token's id picks a row of a learned table. From here on the token is a vector: its residual stream."
    ),
    "attention": say(
        "The token looks at the tokens that it may see. Its query is compared with the key of each, softmax makes "
        "weights of these scores, and by the weights the values are mixed; what comes of it is added to the stream."
    ),
    "cross": say(
        "The same with the tokens of the source: here the decoder reads what the encoder made of the text."
    ),
    "ffn": say(
        "The token by itself. Every neuron measures something in the vector, and those that are active write to the "
        "stream."
    ),
    "output": say(
        "The vector is compared with every word of the vocabulary: the logits, of which softmax makes probabilities."
    ),
}
_EXPERTS = say(
    "The token by itself. A router chooses some of the experts, each a network of its own; what they write is weighted "
    "and added to the stream."
)
_VECTOR = say("This vector is the stack's result, for whoever reads it.")


def _told(part: Part, side: StackName, place: Place, which: int, n_layers: int, last: str) -> Told:
    """A part of a stack's way that ends with the value `last`."""
    about, layer = _ABOUT[part], place.layer
    if part == "embedding":
        title: Text = say("From the token to a vector")
    elif part == "output":
        title = say("After the last layer, {layer}", layer=n_layers - 1)
        about = about if last == PROBABILITIES else _VECTOR
    elif part == "ffn":
        title = say("Layer {layer}: feed-forward network", layer=layer)
        about = _EXPERTS if isinstance(place.block.mlp, MoE) else about
    else:
        what = ATTENTIONS["cross" if part == "cross" else side]
        title = say("Layer {layer}, head {head}: {what}", layer=layer, head=which, what=what)
    return Told(part, title, about)


def _suggestions(found: Flow) -> Iterator[Suggestion]:
    last = found.stages[-1]
    about = say("the whole way back of one number, down to the token's id")
    yield Suggestion(about, "explain", {"name": last.name, "index": list(last.index), "chain": True})
    where = f"{found.layer}.{found.head}"
    for part, side in (("attention", found.side), ("cross", "cross")):
        pattern = next((each for each in found.stages if (each.part, each.dims[-1]) == (part, "S")), None)
        if pattern is not None:
            about = say(
                "{attention}, head {where}: which token weighs which", attention=ATTENTIONS[side], where=where
            )
            yield Suggestion(about, "attention", {"side": side, "layer": found.layer, "head": found.head})
    if last.name == PROBABILITIES:
        yield Suggestion(say("what each layer would say, were it the last"), "lens", {"at": found.position})
        about = say("what else might stand there, with temperature, top-k and top-p")
        yield Suggestion(about, "candidates", {"at": found.position})
    other = (found.layer - 1) % found.n_layers
    if other != found.layer:
        options = {"side": found.side, "layer": other, "head": found.head, "at": found.position}
        yield Suggestion(say("the same token in layer {layer}", layer=other), "flow", options)


# Its page.

SHOWN = 6  # numbers of a vector that a terminal shows
NUMBERS = say("number")


def _page(found: Flow) -> Page:
    blocks: list[Block | Text] = [
        found.wiring,
        Heading(say("What each layer adds to the stream")),
        _stream(found),
        say(
            "Lengths of what the sublayers add to the token's vector, and of what it is then; cosine: how much of its "
            "direction the layer leaves as it was."
        ),
    ]
    for told in found.parts:
        blocks += [Heading(told.title), told.about]
        for stage in found.stages:
            if stage.part == told.part:
                blocks += _stage(stage, found.piece)
    return page(found.title, blocks)


def _stage(stage: Stage, piece: str) -> Iterator[Block]:
    """Its name and formula, and the numbers."""
    shape = " × ".join(f"{letter} {size}" for letter, size in zip(stage.dims, stage.shape, strict=True))
    # what a norm's formula stands for has a line of its own
    lines = [stage.meaning, *stage.formula.split(",  "), stage.note or "", f"{stage.name}  ({shape})"]
    last = stage.name.rpartition(".")[2]
    yield Prose(last if stage.dims != ROW else "E[id]", listed([each for each in lines if each], "\n"))
    if stage.dims == ("B", "T"):
        yield Line("", [str(int(stage.value))])
    elif stage.columns:
        scale = "weight" if last in ("pattern", "probabilities", "expert_weight") else "signed"
        across = {"S": KEY, "V": say("word")}.get(stage.dims[-1], say("expert"))
        unit = {"pattern": WEIGHT, "probabilities": PROBABILITY}.get(last, NUMBERS)
        down = QUERY if stage.dims[-1] == "S" else TOKEN
        yield Matrix(array(stage.values), [piece], stage.columns, down, across, unit, scale)
    elif stage.rows:
        down = say("expert") if "A" in stage.dims else KEY
        columns = numbers_to(stage.values.shape[1])
        yield Matrix(
            array(stage.values), stage.rows, columns, down, say("coordinate"), NUMBERS, "signed", drawn=True
        )
    else:
        (values,) = stage.values
        first = list(map(number, values[:SHOWN].tolist()))
        yield Line(
            "", [*first, *(["…"] if len(values) > SHOWN else []), say("length {norm:.3g}", norm=stage.norm)]
        )
        yield folded(values, last, say("coordinate"))


def _stream(found: Flow) -> Table:
    """Layers down, each with the lengths of what was added to the stream."""
    greatest = max(max(each.attention, each.cross or 0.0, each.feed_forward) for each in found.stream) or 1.0
    crossed = found.stream[0].cross is not None
    titles = [ATTENTIONS["self"], *([ATTENTIONS["cross"]] if crossed else []), say("feed-forward")]
    rows: list[list[Text | Tinted]] = []
    for each in found.stream:
        lengths = [each.attention, *([] if each.cross is None else [each.cross]), each.feed_forward]
        added = [Tinted(number(length), length / greatest) for length in lengths]
        rows.append([str(each.layer), *added, number(each.length), f"{each.cosine:.3f}"])
    columns = [LAYER, *titles, say("after"), say("cosine")]
    return Table(list(map(right, columns)), rows, tint=say("length, in shares of the longest"))
