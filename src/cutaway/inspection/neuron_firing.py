"""What the neurons of a layer's feed-forward network, or of its experts, do on a text."""

# Shapes: T tokens, A networks at work on a token (1, or its experts), F width, D width of the stream, N tokens of one
# expert.

from dataclasses import dataclass
from math import isnan

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.runs import Run, Tokens, stack_named
from cutaway.inspection.terms import SIDES
from cutaway.inspection.wiring import Place, Side, places
from cutaway.nn.mlp import MLP
from cutaway.nn.moe import MoE
from cutaway.page.blocks import Page, Remark, Shaded, page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit, Trace
from cutaway.words import Phrase, say


@dataclass(frozen=True)
class Firing:
    """The networks that worked on one token, and what all their neurons did."""

    networks: tuple[MLP, ...]  # A of them: one, or the chosen experts, best first
    experts: tuple[int, ...]  # () for a plain network
    pre: Tensor  # (A, F): before the activation function
    hidden: Tensor  # (A, F): after it, and after the gated product
    tokens: tuple[Tensor, ...]  # A of (N,) int64: the places of the tokens that each network was given
    over_tokens: tuple[Tensor, ...]  # A of (N, F): `hidden` at each of these
    coefficients: Tensor  # (A, F): hidden times the expert's weight
    strengths: Tensor  # (A, F): |coefficient| times the length of the value vector
    written: Tensor  # (D,): what they write together

    def over_text(self, network: int, neuron: int, length: int) -> Tensor:
        """(T,) fp32: `hidden` of one neuron at all `length` tokens, NaN where its network was not at work."""
        found = torch.full((length,), torch.nan)
        found[self.tokens[network].cpu()] = self.over_tokens[network][:, neuron].float().cpu()
        return found


def firing_taps(place: Place, position: int) -> dict[str, Edit]:
    """The taps that `fired` looks at, with their reducers."""

    def here(x: Tensor) -> Tensor:
        # (1, …); a view would keep all positions
        return x[:, position].clone()

    def whole(x: Tensor) -> Tensor:
        return x[0]

    path = _path(place)
    if isinstance(place.block.mlp, MLP):
        return {f"{path}.pre": here, f"{path}.hidden": whole, f"{path}.out": here}
    return {
        f"{path}.expert_index": whole,
        f"{path}.expert_weight": here,
        f"{path}.experts.*.pre": whole,
        f"{path}.experts.*.hidden": whole,
        f"{path}.out": here,
    }


def fired(place: Place, position: int, trace: Trace) -> Firing:
    """What the neurons of a layer did at a position, from a trace that watched `firing_taps`."""
    part, path = place.block.mlp, _path(place)
    if isinstance(part, MLP):
        over_tokens = (trace[f"{path}.hidden"],)
        tokens = (torch.arange(len(over_tokens[0])),)
        pre, hidden = trace[f"{path}.pre"], over_tokens[0][position][None]
        networks, experts, coefficients = (part,), (), hidden
    else:
        assert isinstance(part, MoE)
        chosen = trace[f"{path}.expert_index"]  # (T, A)
        experts = tuple(chosen[position].tolist())
        networks = tuple(_network(part, expert) for expert in experts)
        tokens = tuple((chosen == expert).any(dim=1).nonzero().flatten() for expert in experts)
        over_tokens = tuple(trace[f"{path}.experts.{expert}.hidden"] for expert in experts)
        # An expert's tokens come in the text's order.
        rows = [int((given < position).sum()) for given in tokens]
        before = [trace[f"{path}.experts.{expert}.pre"] for expert in experts]
        pre, hidden = (
            torch.stack([each[row] for each, row in zip(values, rows, strict=True)])
            for values in (before, over_tokens)
        )
        coefficients = hidden * trace[f"{path}.expert_weight"].to(hidden.dtype).mT  # (1, A) -> (A, 1)
    lengths = torch.stack([network.down.weight.detach().float().norm(dim=0) for network in networks])
    strengths, written = coefficients.abs() * lengths, trace[f"{path}.out"][0]
    return Firing(networks, experts, pre, hidden, tokens, over_tokens, coefficients, strengths, written)


def neuron_name(expert: int | None, neuron: int) -> str:
    """A neuron's number, after that of its expert where there are experts."""
    return str(neuron) if expert is None else f"{expert}:{neuron}"


def _path(place: Place) -> str:
    return f"{place.path}.{place.sublayer('ffn').module}"


def _network(part: MoE, expert: int) -> MLP:
    network = part.experts[expert]
    assert isinstance(network, MLP)
    return network


# One neuron over a text.


@dataclass(frozen=True, repr=False)
class NeuronFiring(Drawn):
    """The activation of one neuron at every token that its stack reads: the tap `hidden`, after the activation function
    and, where the network is gated, the product: the memory coefficient of its key (Geva et al. 2021, §2)."""

    side: Side  # the stack: "encoder" or "decoder"
    layer: int
    expert: int | None  # that the neuron belongs to; None in a layer with one plain network
    neuron: int
    tokens: Tokens  # T
    activations: Tensor  # (T,), NaN at tokens that the expert was not given

    def page(self) -> Page:
        pieces, values = self.tokens.pieces, self.activations.float().tolist()
        worked = [place for place, value in enumerate(values) if not isnan(value)]
        read, fired = [pieces[place] for place in worked], [values[place] for place in worked]
        shaded = Shaded(say("token read"), read, fired, say("activation"))
        given = say(
            "Its expert was given {n} of the {count} tokens; the others have no activation.",
            n=len(worked),
            count=len(pieces),
        )
        title = say(
            "Where neuron {name} of {side} layer {layer} fires",
            name=neuron_name(self.expert, self.neuron),
            side=SIDES[self.side],
            layer=self.layer,
        )
        idle = Remark(given) if len(worked) < len(pieces) else None
        return page(title, [shaded if worked else None, idle])


def firing(
    run: Run, layer: int, neuron: int, *, expert: int | None = None, side: str | None = None
) -> NeuronFiring:
    """Where one neuron fires, from one forward pass. `side` is "encoder" or "decoder"; None: the output stack.

    Raises CutawayError for a layer or neuron that is not there, an expert in a layer without, and none in one with.
    """
    stack = stack_named(run, side)
    (place,) = places(run.model, stack.name, layer)
    part, path, number = place.block.mlp, _path(place), place.layer
    if isinstance(part, MLP):
        if expert is not None:
            raise CutawayError(
                "expert is {expert}, but layer {layer} has one plain network; leave `expert` out",
                expert=expert,
                layer=number,
            )
        _check(part, neuron, say("the network of layer {layer}", layer=number))
        trace = run.seen({f"{path}.hidden": lambda x: x[0, :, neuron].clone()})
        return NeuronFiring(stack.name, number, None, neuron, stack.tokens, trace[f"{path}.hidden"])
    assert isinstance(part, MoE)
    last = len(part.experts) - 1
    if expert is None or not 0 <= expert <= last:
        raise CutawayError(
            "expert is {expert}, but layer {layer} is a mixture: expected an expert from 0 to {last}",
            expert=expert,
            layer=number,
            last=last,
        )
    what = say("expert {expert} of layer {layer}", expert=expert, layer=number)
    _check(_network(part, expert), neuron, what)
    # All experts are watched: one that no token is given to has no tap.
    watch: dict[str, Edit] = {f"{path}.expert_index": lambda x: x[0]}
    watch[f"{path}.experts.*.hidden"] = lambda x: x[0, :, neuron].clone()
    trace = run.seen(watch)
    given = (trace[f"{path}.expert_index"] == expert).any(dim=1)  # (T,)
    found = torch.full((len(given),), torch.nan, device=given.device)
    if given.any():
        found[given] = trace[f"{path}.experts.{expert}.hidden"].float()
    return NeuronFiring(stack.name, number, expert, neuron, stack.tokens, found)


def _check(network: MLP, neuron: int, what: Phrase) -> None:
    width = network.down.in_features
    if not 0 <= neuron < width:
        raise CutawayError(
            "{what} has no neuron {neuron}: expected 0 to {last}", what=what, neuron=neuron, last=width - 1
        )
