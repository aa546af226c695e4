"""Which part of the model wrote how much of a logit: direct logit attribution."""

# Shapes: N components, D width, E head width, A chosen experts.

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cutaway.inspection.asked import LogitToken, Position, position_asked
from cutaway.inspection.frozen_path import FrozenPath, Step, Write, embedded, frozen_path
from cutaway.inspection.options import Option
from cutaway.inspection.outcome import written_token
from cutaway.inspection.page_parts import by_layer, to_keep_in_mind
from cutaway.inspection.question import WORDS, question
from cutaway.inspection.runs import Run, piece_of, stack_named, token_id
from cutaway.inspection.terms import LAYER, left, right
from cutaway.inspection.wiring import is_cross, places
from cutaway.nn.attention import Attention
from cutaway.nn.moe import MoE
from cutaway.page.blocks import Block, Heading, Matrix, Page, Prose, Table, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import number
from cutaway.tap import Edit
from cutaway.words import Phrase, Text, say


@dataclass(frozen=True)
class Component:
    """One thing that is written into the residual stream, and its share of the logit."""

    # "token", "position", "segment", "head", "attention bias", "feed-forward", "expert", "norm bias", "output bias"
    kind: str
    place: str  # the module that it comes from, as in a tap's name
    layer: int | None  # None outside of the blocks
    number: int | None  # of the head or expert
    share: float  # logits


@dataclass(frozen=True, repr=False)
class Logit(Drawn):
    """logit = Σ over components of w · c, with w the token's row of the output matrix (times the model's logit scale)
    and c what the component wrote at this position, carried to the end by the norms with their scale held at this
    run's value (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", on direct paths).

    Components: the vectors of token, position and segment; every attention head, z_h through its columns of W_O, and
    W_O's bias; every feed-forward network with its bias, or each chosen expert times its weight; the biases of norms;
    the head's bias. With `against`, w is the difference of two tokens' rows and the shares sum to the difference of
    their logits, which is that of their log-probabilities. With a soft cap on logits, the logit before it is explained.

    The sum is exact up to rounding, which is `difference`. What is left out: a component also acts through the later
    layers that read it and through the scales that are held (`frozen` names them), and in an encoder-decoder the
    encoder acts only through the heads of cross-attention. So a share is what was written directly, not what the logit
    would lose without the component.
    """

    side: str
    position: int
    piece: str  # that the stack reads there
    token_id: int
    token: str  # piece of the token whose logit is explained
    against_id: int | None
    against: str | None
    logit: float  # explained: before a soft cap; with `against` a difference of two
    model_logit: float  # as the model gives it, after a soft cap
    components: tuple[Component, ...]  # in data-flow order
    total: float  # sum of the shares
    difference: float  # logit - total
    frozen: tuple[str, ...]  # norms whose scale, and activations whose gate, is held
    approximate: Phrase | None  # what makes shares less direct than in a pre-norm model, in a sentence
    top: int  # how many components a page lists

    def page(self) -> Page:
        return _page(self)


@question(say("What wrote a logit: the share of every component of the model."), "causes", WORDS)
def logit(
    run: Run,
    *,
    at: Position = None,
    token: LogitToken = None,
    against: Annotated[int | str | None, Option(say("A second token, whose logit is taken off."))] = None,
    top: Annotated[int, Option(say("Components that are listed."), at_least=1)] = 10,
) -> Logit:
    """Take one logit of the output stack apart by component, from one forward pass.

    Raises CutawayError for a model without output head, a position out of range, or a token that is not one.
    """
    where = position_asked(run, stack_named(run, None).tokens, at)
    chosen = None if token is None else token_id(run, token)
    other = None if against is None else token_id(run, against)
    path = frozen_path(run, where, _watched(run, where))
    if chosen is None:
        chosen = written_token(run, path.logits, where)
    labels, rows = _stream(path)
    unembed, scale = path.head.unembed, path.head.scale
    read = unembed.weight[chosen].detach().double()
    logit, shown = path.uncapped()[chosen].double(), path.logits[chosen].double()
    if other is not None:
        read = read - unembed.weight[other].detach().double()
        logit, shown = logit - path.uncapped()[other].double(), shown - path.logits[other].double()
    shares = (rows @ read * scale).tolist()
    components = [
        Component(kind, name, layer, number, share)
        for (kind, name, layer, number), share in zip(labels, shares, strict=True)
    ]
    if unembed.bias is not None:
        bias = unembed.bias.detach().double()
        own = bias[chosen] - (0 if other is None else bias[other])
        components.append(Component("output bias", "head.unembed", None, None, float(own * scale)))
    total = sum(component.share for component in components)
    return Logit(
        side=path.side.name,
        position=where,
        piece=path.side.tokens.pieces[where],
        token_id=chosen,
        token=piece_of(run, chosen),
        against_id=other,
        against=None if other is None else piece_of(run, other),
        logit=float(logit),
        model_logit=float(shown),
        components=tuple(components),
        total=total,
        difference=float(logit) - total,
        frozen=path.frozen,
        approximate=_reason(run),
        top=top,
    )


_Label = tuple[str, str, int | None, int | None]  # kind, place, layer, number


def _watched(run: Run, position: int) -> dict[str, Edit]:
    """What is needed beside the path itself: each head's result, and each chosen expert's."""
    found: dict[str, Edit] = {}
    for place in places(run.model, stack_named(run, None).name):
        for sublayer in place.sublayers:
            part = getattr(place.block, sublayer.module)
            if isinstance(part, Attention):
                found[f"{place.path}.{sublayer.module}.z"] = lambda z: z[:, :, position].clone()  # (1, H, E)
            elif isinstance(part, MoE):
                for name in ("expert_index", "expert_weight", "expert_out"):
                    found[f"{place.path}.{sublayer.module}.{name}"] = lambda x: x[:, position].clone()
    return found


def _stream(path: FrozenPath) -> tuple[list[_Label], Tensor]:
    """Everything that was written, as rows (N, D) that are carried to the end of the path and there sum to what the
    output matrix reads."""
    side = path.side
    rows = embedded(side, path.trace)
    there = {"token": True, "position": side.embedding.positions, "segment": side.embedding.segments}
    kinds = [kind for kind, table in there.items() if table is not None]
    labels: list[_Label] = [(kind, side.embedding_name, None, None) for kind in kinds]
    labels, rows = _through(path.embed_norm, None, labels, rows)
    for write in path.writes:
        new_labels, new = _written(path, write)
        new_labels, new = _through(write.own, write.place.layer, new_labels, new)
        labels, rows = [*labels, *new_labels], torch.cat([rows, new])
        labels, rows = _through(write.after, write.place.layer, labels, rows)
    for step in path.end:
        labels, rows = _through(step, None, labels, rows)
    return labels, rows


def _through(
    step: Step | None, layer: int | None, labels: list[_Label], rows: Tensor
) -> tuple[list[_Label], Tensor]:
    """Every row through the step, and what the step itself adds as one more row."""
    if step is None:
        return labels, rows
    rows = step.linear(rows)
    if step.constant is None:
        return labels, rows
    kind = "output bias" if step.name == "head.dense" else "norm bias"
    return [*labels, (kind, step.name, layer, None)], torch.cat([rows, step.constant[None]])


def _written(path: FrozenPath, write: Write) -> tuple[list[_Label], Tensor]:
    """What a sublayer writes, in rows that sum to its `out`."""
    layer, name = write.place.layer, f"{write.place.path}.{write.sublayer.module}"
    part = getattr(write.place.block, write.sublayer.module)
    if isinstance(part, Attention):
        z = path.trace[f"{name}.z"][0].double()  # (H, E)
        columns = part.o_proj.weight.detach().double().unflatten(1, (-1, part.d_head))  # (D, H, E)
        rows = torch.einsum("he,dhe->hd", z, columns)
        labels: list[_Label] = [("head", name, layer, head) for head in range(len(rows))]
        if part.o_proj.bias is not None:
            labels.append(("attention bias", name, layer, None))
            rows = torch.cat([rows, part.o_proj.bias.detach().double()[None]])
        return labels, rows
    if isinstance(part, MoE):
        weights = path.trace[f"{name}.expert_weight"][0].double()  # (A,)
        rows = path.trace[f"{name}.expert_out"][0].double() * weights[:, None]  # (A, D)
        experts = path.trace[f"{name}.expert_index"][0].tolist()
        return [("expert", name, layer, expert) for expert in experts], rows
    return [("feed-forward", name, layer, None)], path.trace[f"{name}.out"][0].double()[None]


def _reason(run: Run) -> Phrase | None:
    masked = run.model.config.head == "masked"
    if run.model.config.norm_order == "post":
        return say(
            "post-norm: the sum is exact, but the stream is normalised after every sublayer, so a share passes as "
            "many held scales as follow it{gate}; the earlier the component, the more of its effect runs through "
            "what is held",
            gate=say(", the gate of the head's activation too") if masked else "",
        )
    if run.model.config.norm_order == "sandwich":
        return say("sandwich: what a sublayer writes passes a norm of its own, whose scale is held as well")
    if not masked:
        return None
    return say("the sum is exact with the final norm's scale and the gate of the head's activation held")


# Its page.

_KINDS = {
    "token": say("token vector"),
    "position": say("position vector"),
    "segment": say("segment vector"),
    "attention bias": say("attention bias"),
    "feed-forward": say("feed-forward"),
    "norm bias": say("norm bias"),
    "output bias": say("output bias"),
}
_NOT = say(
    "A share is what a component wrote into the residual stream, read by the token's row of the output matrix, with "
    "the scales of the norms held. It says what was written directly, not what the logit would lose without it: "
    "later layers read it too."
)


def _page(found: Logit) -> Page:
    """The strongest components, and all heads and feed-forward networks by layer."""
    listed = sorted(found.components, key=lambda each: -abs(each.share))[: found.top]
    rest = found.total - sum(each.share for each in listed)
    others = len(found.components) - len(listed)
    rows: list[tuple[Text, Text, Text]] = [
        (f"{each.share:+.3f}", "" if each.layer is None else str(each.layer), _named(each)) for each in listed
    ]
    if others:
        rows.append((f"{rest:+.3f}", "", say("the {others} others together", others=others)))
    total = say(
        "{total:.4f} of {count} shares; logit {logit:.4f}, difference {difference:.1e}",
        total=found.total, count=len(found.components), logit=found.logit, difference=found.difference,
    )  # fmt: skip
    capped = None
    if abs(found.model_logit - found.logit) > 1e-4 * max(1.0, abs(found.logit)):
        capped = say("{after} is what the model gives after its soft cap", after=number(found.model_logit))
    return page(
        _title(found),
        [
            Prose(say("sum"), total),
            None if capped is None else Prose(say("capped"), capped),
            Table((right(say("share")), right(LAYER), left(say("written by"))), rows),
            *_by_layer(found),
            _NOT,
            to_keep_in_mind(found.approximate),
        ],
    )


def _title(found: Logit) -> Phrase:
    where = say("at token {position}, '{piece}'", position=found.position, piece=found.piece)
    if found.against is None:
        return say("What wrote the logit of '{token}' {where}", token=found.token, where=where)
    return say(
        "What wrote the logit of '{token}' minus that of '{against}' {where}",
        token=found.token, against=found.against, where=where,
    )  # fmt: skip


def _named(each: Component) -> Text:
    if each.number is not None:
        kind = say("head") if each.kind == "head" else say("expert")
        return say("{kind} {number} of {place}", kind=kind, number=each.number, place=each.place)
    return say("{kind}, {place}", kind=_KINDS[each.kind], place=each.place)


def _by_layer(found: Logit) -> list[Block]:
    """Layers down; across every head of self-attention and cross-attention, the feed-forward network (its experts
    together), and the biases of the layer."""
    cells: dict[tuple[int, str], float] = {}
    cross = any(is_cross(each.place) for each in found.components)
    for each in found.components:
        if each.layer is not None:
            name = _column(each, cross)
            cells[each.layer, name] = cells.get((each.layer, name), 0.0) + each.share
    names = sorted({name for _, name in cells}, key=_order)
    values, layers = by_layer(cells, names, 0.0)
    heads = say("s self-attention, c cross-attention") if cross else say("h heads")
    return [
        Heading(say("By layer ({heads}, ff feed-forward, b biases)", heads=heads)),
        Matrix(values, layers, names, LAYER, say("component"), say("logits"), "signed"),
    ]


def _column(each: Component, cross: bool) -> str:
    if each.kind == "head":
        side = ("c" if is_cross(each.place) else "s") if cross else "h"
        return f"{side}{each.number}"
    return "ff" if each.kind in ("feed-forward", "expert") else "b"


def _order(name: str) -> tuple[int, int]:
    """Data-flow order."""
    if name in ("ff", "b"):
        return ("ff", "b").index(name) + 2, 0
    return int(name[0] == "c"), int(name[1:])
