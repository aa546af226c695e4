"""The neurons of one layer's feed-forward network, or of the experts at work in its place, at one token."""

# Shapes: T tokens, A networks at work on the token, F width, D width of the stream, N tokens of one expert.

from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.runs import ReadingStack, Run
from cutaway.nn.mlp import MLP
from cutaway.nn.moe import MoE


@dataclass(frozen=True)
class Firing:
    """The networks that worked on a token and what their neurons did."""

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
        """(T,) fp32: `hidden` of one neuron at all `length` tokens of the text, NaN where its network did not
        work."""
        found = torch.full((length,), torch.nan)
        found[self.tokens[network].cpu()] = self.over_tokens[network][:, neuron].float().cpu()
        return found


def fired(run: Run, side: ReadingStack, layer: int, position: int) -> Firing:
    """What the neurons of a layer did at a position; from one forward pass."""
    part, path = side.block(layer).mlp, f"{side.name}.layers.{layer}.mlp"
    if isinstance(part, MLP):
        _, trace = run.hidden(
            {
                f"{path}.pre": lambda x: x[0, position].clone(),
                f"{path}.hidden": lambda x: x[0],
                f"{path}.out": lambda x: x[0, position].clone(),
            }
        )
        over_tokens = (trace[f"{path}.hidden"],)
        tokens = (torch.arange(len(over_tokens[0])),)
        pre, hidden = trace[f"{path}.pre"][None], over_tokens[0][position][None]
        networks, experts, coefficients = (part,), (), hidden
    else:
        assert isinstance(part, MoE)
        names = [f"{path}.{name}" for name in ("expert_index", "expert_weight", "out")]
        names += [f"{path}.experts.*.{name}" for name in ("pre", "hidden")]
        _, trace = run.hidden(names)
        chosen = trace[f"{path}.expert_index"][0]  # (T, A)
        experts = tuple(chosen[position].tolist())
        networks = tuple(_network(part, expert) for expert in experts)
        tokens = tuple((chosen == expert).any(dim=1).nonzero().flatten() for expert in experts)
        over_tokens = tuple(trace[f"{path}.experts.{expert}.hidden"][0] for expert in experts)
        rows = [
            int((given < position).sum()) for given in tokens
        ]  # an expert's tokens come in the text's order
        pre, hidden = (
            torch.stack(
                [trace[f"{path}.experts.{e}.{name}"][0, row] for e, row in zip(experts, rows, strict=True)]
            )
            for name in ("pre", "hidden")
        )
        weights = trace[f"{path}.expert_weight"][0, position]  # (A,)
        coefficients = hidden * weights.to(hidden.dtype)[:, None]
    lengths = torch.stack(
        [network.down.weight.detach().float().norm(dim=0) for network in networks]
    )  # (A, F)
    written = trace[f"{path}.out"] if isinstance(part, MLP) else trace[f"{path}.out"][0, position]
    return Firing(
        networks=networks,
        experts=experts,
        pre=pre,
        hidden=hidden,
        tokens=tokens,
        over_tokens=over_tokens,
        coefficients=coefficients,
        strengths=coefficients.abs() * lengths,
        written=written,
    )


def activation_of(run: Run, side: ReadingStack, layer: int, neuron: int, expert: int | None) -> Tensor:
    """(T,): `hidden` of one neuron at every token, NaN where its expert was not at work. See `layers.firing`."""
    part, path = side.block(layer).mlp, f"{side.name}.layers.{layer}.mlp"
    if isinstance(part, MLP):
        if expert is not None:
            raise CutawayError(
                "expert is {expert}, but layer {layer} has one plain network; leave `expert` out",
                expert=expert,
                layer=layer,
            )
        _check(part, neuron, f"the network of layer {layer}")
        _, trace = run.hidden({f"{path}.hidden": lambda x: x[0, :, neuron].clone()})
        return trace[f"{path}.hidden"]
    assert isinstance(part, MoE)
    last = len(part.experts) - 1
    if expert is None or not 0 <= expert <= last:
        raise CutawayError(
            "expert is {expert}, but layer {layer} is a mixture: expected an expert from 0 to {last}",
            expert=expert,
            layer=layer,
            last=last,
        )
    _check(_network(part, expert), neuron, f"expert {expert} of layer {layer}")
    index = f"{path}.expert_index"
    hidden = f"{path}.experts.{expert}.hidden"
    _, trace = run.hidden(
        {index: lambda x: x[0], f"{path}.experts.*.hidden": lambda x: x[0, :, neuron].clone()}
    )
    given = (trace[index] == expert).any(dim=1)  # (T,)
    found = torch.full((len(given),), torch.nan, device=given.device)
    if given.any():
        found[given] = trace[hidden].float()
    return found


def _network(part: MoE, expert: int) -> MLP:
    network = part.experts[expert]
    assert isinstance(network, MLP)
    return network


def _check(network: MLP, neuron: int, what: str) -> None:
    width = network.down.in_features
    if not 0 <= neuron < width:
        raise CutawayError(
            "{what} has no neuron {neuron}: expected 0 to {width}", what=what, neuron=neuron, width=width - 1
        )
