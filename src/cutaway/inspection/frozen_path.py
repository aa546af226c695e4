"""The direct path from what a sublayer writes to the logits of one token, every norm's scale held as it is in a run.

With its scale held, a norm is an affine map, and so is the whole residual stream: each thing written into it takes its
own path to the logits, and the paths add up (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits",
on direct paths and on folding LayerNorm).
"""

# Shapes: N rows that are carried side by side, D width, V vocabulary.

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cutaway.inspection.runs import ReadingStack, Run, stack_named
from cutaway.inspection.wiring import Place, Sublayer, output_head, places, stack_result
from cutaway.nn.head import Head, MaskedHead
from cutaway.nn.norm import PostNorm, RMSNorm1P, SandwichNorm
from cutaway.tap import Edit, Trace


@dataclass(frozen=True)
class Step:
    """x -> linear(x) + constant: a norm, or a part of the head, at one token with what it depends on held fixed.

    `linear` takes rows (N, D) in fp64; `constant` is (D,) fp64 or None.
    """

    name: str  # of the module
    linear: Callable[[Tensor], Tensor]
    constant: Tensor | None


@dataclass(frozen=True)
class Write:
    """One sublayer's writing into the residual stream. `own` is a norm that only what is written passes (sandwich),
    `after` one that the whole stream passes afterwards (post-norm)."""

    place: Place
    sublayer: Sublayer
    own: Step | None
    after: Step | None


@dataclass(frozen=True)
class FrozenPath:
    """The path through the output stack at one position; see the module."""

    side: ReadingStack
    head: Head
    position: int
    embed_norm: Step | None
    writes: tuple[Write, ...]  # in data-flow order
    # After the last block: the final norm, and what a masked head does before its matrix.
    end: tuple[Step, ...]
    trace: Trace
    logits: Tensor  # (V,) of this position, as the model gives them

    @property
    def frozen(self) -> tuple[str, ...]:
        """The names of the norms and activations whose dependence on their input is left out."""
        steps = [self.embed_norm, *(step for w in self.writes for step in (w.own, w.after)), *self.end]
        return tuple(step.name for step in steps if step is not None and not step.name.endswith(".dense"))

    def carry(self, rows: Tensor, layer: int, module: str) -> Tensor:
        """What becomes of rows (N, D) that sublayer `module` of `layer` writes, at the end of the path: (N, D) fp64,
        without the constants of the steps."""
        rows, started = rows.double(), False
        for write in self.writes:
            if (write.place.layer, write.sublayer.module) == (layer, module):
                rows, started = rows if write.own is None else write.own.linear(rows), True
            if started and write.after is not None:
                rows = write.after.linear(rows)
        for step in self.end:
            rows = step.linear(rows)
        return rows

    def uncapped(self) -> Tensor:
        """(V,) the logits before a soft cap."""
        if self.head.softcap is None:
            return self.logits
        with torch.no_grad():
            hidden = self.trace[stack_result(self.side.name)]  # (1, D)
            return (self.head.unembed(self.head.transform(hidden)) * self.head.scale)[0]


def frozen_path(run: Run, position: int, watch: Mapping[str, Edit] | None = None) -> FrozenPath:
    """The way at `position` of the decoder, or of an encoder-only model, from one forward pass.

    `watch` are further taps with their reducers, found in the path's `trace` afterwards. Raises CutawayError for a
    model without output head.
    """
    side, head = stack_named(run, None), output_head(run.model)
    blocks = places(run.model, side.name)

    def here(x: Tensor) -> Tensor:
        # (1, D); a view would keep all positions
        return x[:, position].clone()

    # The taps whose value decides the scale of some norm, and the embedding's.
    needed = [f"{side.embedding_name}.embed", stack_result(side.name), f"{side.embedding_name}.position"]
    if side.embedding.positions is None:
        needed.pop()
    needed += [f"{place.path}.resid_pre" for place in blocks]
    parts = [(place, sublayer) for place in blocks for sublayer in place.sublayers]
    for place, sublayer in parts:
        needed += [f"{place.path}.{sublayer.module}.out", f"{place.path}.{sublayer.after}"]
    logits, trace = run.forward({**dict.fromkeys(needed, here), **(watch or {})})
    writes = tuple(_write(place, sublayer, trace) for place, sublayer in parts)
    entering, name = embedded(side, trace).sum(dim=0), f"{side.embedding_name}.norm"
    embed_norm = _frozen_norm(name, side.embedding.norm, entering)
    last = trace[f"{blocks[-1].path}.resid_post"][0]
    final = _frozen_norm(f"{side.name}.norm", side.stack.norm, last)
    end = (*(() if final is None else (final,)), *_in_head(head, trace[stack_result(side.name)][0]))
    return FrozenPath(side, head, position, embed_norm, writes, end, trace, logits[position])


def embedded(side: ReadingStack, trace: Trace) -> Tensor:
    """(N, D) fp64: the token's vector, its position's and its segment's, those that the model has, before any norm."""
    rows = [trace[f"{side.embedding_name}.embed"][0]]
    if side.embedding.positions is not None:
        rows.append(trace[f"{side.embedding_name}.position"][0])
    if side.embedding.segments is not None:
        # a run has one segment
        rows.append(side.embedding.segments.weight[0].detach())
    return torch.stack([row.double() for row in rows])


def _write(place: Place, sublayer: Sublayer, trace: Trace) -> Write:
    residual, name = place.residual(sublayer), f"{place.path}.{sublayer.residual}"
    out = trace[f"{place.path}.{sublayer.module}.out"][0]
    if isinstance(residual, SandwichNorm):
        return Write(place, sublayer, _frozen_norm(f"{name}.out_norm", residual.out_norm, out), None)
    if isinstance(residual, PostNorm):
        stream = trace[place.before(sublayer)][0] + out
        return Write(place, sublayer, None, _frozen_norm(f"{name}.norm", residual.norm, stream))
    return Write(place, sublayer, None, None)


def _frozen_norm(name: str, norm: nn.Module, x: Tensor) -> Step | None:
    """The norm as it acts where it reads x (D,); None where there is none."""
    if isinstance(norm, nn.Identity):
        return None
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm) and norm.eps is not None
    gain = norm.weight.detach().double() + (1 if isinstance(norm, RMSNorm1P) else 0)
    x, centred = x.double(), isinstance(norm, nn.LayerNorm)
    if centred:
        x = x - x.mean()
    scaled = gain / (x.square().mean() + norm.eps).sqrt()

    def linear(rows: Tensor) -> Tensor:
        return (rows - rows.mean(dim=-1, keepdim=True) if centred else rows) * scaled

    bias = norm.bias.detach().double() if isinstance(norm, nn.LayerNorm) and norm.bias is not None else None
    return Step(name, linear, bias)


def _in_head(head: Head, hidden: Tensor) -> tuple[Step, ...]:
    """The steps of a masked head before its output matrix, where it reads hidden (D,). Its activation is x times a gate
    between nothing and about one (x·Φ(x), x·σ(x), x·[x>0]); the gate is what is held."""
    if not isinstance(head, MaskedHead):
        return ()
    with torch.no_grad():
        dense = head.dense(hidden[None])[0]
        active = head.activation(dense)
    weight, gate = head.dense.weight.detach().double(), active.double() / dense.double()
    gate = gate.masked_fill(dense == 0, 0.0)
    norm = _frozen_norm("head.norm", head.norm, active)
    assert norm is not None and head.dense.bias is not None
    return (
        Step("head.dense", lambda rows: rows @ weight.T, head.dense.bias.detach().double()),
        Step("head.activation", lambda rows: rows * gate, None),
        norm,
    )
