"""Which part of the model wrote how much of a logit: direct logit attribution."""

# Shapes: N components, D width, E head width, A chosen experts.

from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.inspection.attribution.frozen_path import FrozenPath, Step, Write, embedded, frozen_path
from cutaway.inspection.outcome import written_token
from cutaway.inspection.pages.direct_logit import logit_page
from cutaway.inspection.runs import Run, piece_of, position_in, stack_named, token_id
from cutaway.nn.attention import Attention
from cutaway.nn.moe import MoE
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit
from cutaway.words import Phrase, say


@dataclass(frozen=True)
class Component:
    """One thing that is written into the residual stream, and its share of the logit."""

    kind: str
    # "token", "position", "segment", "head", "attention bias", "feed-forward", "expert", "norm bias", "output bias"
    place: str  # the module that it comes from, as in a tap's name
    layer: int | None  # None outside of the blocks
    number: int | None  # of the head or expert
    share: float  # logits


@dataclass(frozen=True, repr=False)
class LogitAttribution(Drawn):
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
    components: tuple[Component, ...]  # in the order of the data's way
    total: float  # sum of the shares
    difference: float  # logit - total
    frozen: tuple[str, ...]  # norms whose scale, and activations whose gate, is held
    approximate: Phrase | None  # what makes shares less direct than in a pre-norm model, in a sentence

    def page(self) -> Page:
        return logit_page(self)


def attribute_logit(
    run: Run, position: int = -1, token: int | str | None = None, *, against: int | str | None = None
) -> LogitAttribution:
    """Take one logit of the decoder, or of an encoder-only model, apart by component.

    `token` is an id, a piece, or a text of one token; None: the one that was written at `position`, in a
    gap the one that the model puts there.
    Raises CutawayError for a model without output head, a position out of range, or a token that is not one.
    """
    where = position_in(stack_named(run, None).tokens, position)
    chosen = None if token is None else token_id(run, token)
    other = None if against is None else token_id(run, against)
    path = frozen_path(run, where, _watched(run, where))
    if chosen is None:
        chosen = written_token(run, path.logits, where)
    labels, rows = _stream(path)
    unembed, scale = path.head.unembed, path.head.scale
    read = unembed.weight[chosen].detach().double()
    logit, shown = path.uncapped()[chosen].double(), path.logits[chosen].double()
    bias = None if unembed.bias is None else unembed.bias.detach().double()
    if other is not None:
        read = read - unembed.weight[other].detach().double()
        logit, shown = logit - path.uncapped()[other].double(), shown - path.logits[other].double()
    shares = (rows @ read * scale).tolist()
    components = [
        Component(kind, name, layer, number, share)
        for (kind, name, layer, number), share in zip(labels, shares, strict=True)
    ]
    if bias is not None:
        own = bias[chosen] - (0 if other is None else bias[other])
        components.append(Component("output bias", "head.unembed", None, None, float(own * scale)))
    total = sum(component.share for component in components)
    return LogitAttribution(
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
    )


_Label = tuple[str, str, int | None, int | None]  # kind, place, layer, number


def _watched(run: Run, position: int) -> dict[str, Edit]:
    """What is needed beside the path itself: each head's result, and each chosen expert's."""
    side = stack_named(run, None)
    found: dict[str, Edit] = {}

    def of_heads(z: Tensor) -> Tensor:
        return z[:, :, position].clone()  # (1, H, E)

    def of_experts(x: Tensor) -> Tensor:
        return x[:, position].clone()

    for layer in range(len(side.stack.layers)):
        block, path = side.block(layer), f"{side.name}.layers.{layer}"
        found[f"{path}.self_attn.z"] = of_heads
        if block.cross:
            found[f"{path}.cross_attn.z"] = of_heads
        if isinstance(block.mlp, MoE):
            for name in ("expert_index", "expert_weight", "expert_out"):
                found[f"{path}.mlp.{name}"] = of_experts
    return found


def _stream(path: FrozenPath) -> tuple[list[_Label], Tensor]:
    """Everything that was written, as rows (N, D) that are carried to the end of the way and there sum to what the
    output matrix reads."""
    side = path.side
    rows = embedded(side, path.trace)
    kinds = ["token"]
    kinds += ["position"] if side.embedding.positions is not None else []
    kinds += ["segment"] if side.embedding.segments is not None else []
    labels: list[_Label] = [(kind, side.embedding_name, None, None) for kind in kinds]
    labels, rows = _through(path.embed_norm, None, labels, rows)
    for write in path.writes:
        new_labels, new = _written(path, write)
        new_labels, new = _through(write.own, write.layer, new_labels, new)
        labels, rows = [*labels, *new_labels], torch.cat([rows, new])
        labels, rows = _through(write.after, write.layer, labels, rows)
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
    block = path.side.block(write.layer)
    name = f"{path.side.name}.layers.{write.layer}.{write.part}"
    part = getattr(block, write.part)
    if isinstance(part, Attention):
        z = path.trace[f"{name}.z"][0].double()  # (H, E)
        columns = part.o_proj.weight.detach().double().unflatten(1, (-1, part.d_head))  # (D, H, E)
        rows = torch.einsum("he,dhe->hd", z, columns)
        labels: list[_Label] = [("head", name, write.layer, head) for head in range(len(rows))]
        if part.o_proj.bias is not None:
            labels.append(("attention bias", name, write.layer, None))
            rows = torch.cat([rows, part.o_proj.bias.detach().double()[None]])
        return labels, rows
    if isinstance(part, MoE):
        weights = path.trace[f"{name}.expert_weight"][0].double()  # (A,)
        rows = path.trace[f"{name}.expert_out"][0].double() * weights[:, None]  # (A, D)
        experts = path.trace[f"{name}.expert_index"][0].tolist()
        return [("expert", name, write.layer, expert) for expert in experts], rows
    return [("feed-forward", name, write.layer, None)], path.trace[f"{name}.out"][0].double()[None]


def _reason(run: Run) -> Phrase | None:
    masked = run.model.config.head == "masked"
    if run.model.config.norm_order == "post":
        return say(
            "post-norm: the sum is exact, but the stream is normalised after every sublayer, so a "
            "share passes as many held scales as follow it{gate}; the earlier the component, the "
            "more of its effect runs through what is held",
            gate=say(", the gate of the head's activation too") if masked else "",
        )
    if run.model.config.norm_order == "sandwich":
        return say("sandwich: what a sublayer writes passes a norm of its own, whose scale is held as well")
    if not masked:
        return None
    return say("the sum is exact with the final norm's scale and the gate of the head's activation held")
