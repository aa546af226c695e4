"""A model's matrices as maps from one space to another: its parameters, and the two maps of one attention head."""

# Shapes: D width, E head width, M rows, N columns, R rank that is possible at most.

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cutaway.checkpoint.parameters import aliases
from cutaway.config import ModelConfig
from cutaway.errors import CutawayError, nearest
from cutaway.inspection.runs.sides import Side, attention_of, attention_path, block_of, stack_name, stack_of
from cutaway.models.build import Model
from cutaway.nn.attention import Attention

Kind = Literal["parameter", "W_QK", "W_OV"]
Space = Literal["residual", "vocabulary", "heads", "neurons", "experts", "positions", "segments", "distances"]

# The module that owns a weight -> what its rows and columns stand for, written as x · M.
_SPACES: dict[str, tuple[Space, Space]] = {
    "q_proj": ("residual", "heads"), "k_proj": ("residual", "heads"), "v_proj": ("residual", "heads"),
    "o_proj": ("heads", "residual"), "up": ("residual", "neurons"), "gate": ("residual", "neurons"),
    "down": ("neurons", "residual"), "router": ("residual", "experts"), "dense": ("residual", "residual"),
    "tokens": ("vocabulary", "residual"), "positions": ("positions", "residual"),
    "segments": ("segments", "residual"), "unembed": ("residual", "vocabulary"), "table": ("distances", "heads"),
}  # fmt: skip


@dataclass(frozen=True)
class Matrix:
    """A matrix M (rows, columns), in fp64 on the CPU, as it acts on row vectors: x · M.

    A linear layer's weight is stored transposed, (out, in), and turned here; a table of vectors is one-hot · M. A
    product of two factors, M = left · rightᵀ, is kept as these, so that its size is 2 D E numbers and not D².
    """

    name: str  # a parameter's full name; for a head, that of its attention and its number
    kind: Kind
    formula: str
    left: Tensor  # (M, N); of a product (M, E)
    right: Tensor | None  # (N, E) of a product
    rows: Space
    columns: Space
    caveats: tuple[str, ...]  # what else takes part in the model where this matrix works
    attention: str | None = None  # full name of a head's attention, and the head
    head: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], (self.left.shape[1] if self.right is None else self.right.shape[0])

    def dense(self) -> Tensor:
        """All entries (M, N)."""
        return self.left if self.right is None else self.left @ self.right.T

    def svd(self) -> tuple[Tensor, Tensor, Tensor]:
        """U (M, R), σ (R,) falling, V (N, R) with M = U · diag(σ) · Vᵀ; of a product R = min(M, N, E), as the singular
        values beyond are 0. Each u is turned so that its largest entry is positive, its v with it."""
        if self.right is None:
            u, sigma, vt = torch.linalg.svd(self.left, full_matrices=False)
            v = vt.T
        else:
            q_left, r_left = torch.linalg.qr(self.left)
            q_right, r_right = torch.linalg.qr(self.right)
            u, sigma, vt = torch.linalg.svd(r_left @ r_right.T, full_matrices=False)
            u, v = q_left @ u, q_right @ vt.T
        turn = u.gather(0, u.abs().argmax(dim=0, keepdim=True)).sign()
        return u * turn, sigma, v * turn


def parameter_matrix(model: Model, name: str) -> Matrix:
    """The parameter of that full name, as `cutaway inspect` lists them; of a tied one any of its names.

    Raises CutawayError for a name that is not there, naming the nearest, and for a vector (a bias, a norm's weight).
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    if name not in named:
        raise CutawayError(
            f"no parameter {name!r}{nearest(name, named)}; there are {len(named)}, such as {min(named)}"
        )
    value = named[name].detach()
    if value.ndim != 2:
        raise CutawayError(
            f"{name} is of shape {tuple(value.shape)}, a vector: expected a matrix, such as a weight"
        )
    owner = name.split(".")[-2]
    rows, columns = _SPACES[owner]
    linear = isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Linear)
    exact = value.cpu().double()
    tied = next((names for names in aliases(model) if name in names and len(names) > 1), ())
    others = ", ".join(other for other in tied if other != name)
    return Matrix(
        name=name,
        kind="parameter",
        formula="y = x · M (+ bias)" if linear else "y = row of M",
        left=exact.T if linear else exact,
        right=None,
        rows=rows,
        columns=columns,
        caveats=(f"the same tensor is {others}",) if others else (),
    )


def w_qk(model: Model, side: Side, layer: int, head: int) -> Matrix:
    """W_QK = scale · W_Q · W_Kᵀ (D, D) of one head: x_q · W_QK · x_kᵀ is the part of its scaled score that both tokens
    share in (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", QK circuit).

    `scale` is the model's own (1/√E as a rule, 1 in T5). With grouped queries the keys are those of the head's group.
    What the score has beside it in this model (bias, rotation, norm, cap) is told in `caveats`.
    Raises CutawayError for a side, layer or head that the model does not have.
    """
    attention, name = _attention(model, side, layer, head)
    group = head // attention.groups
    left = attention.scale * _columns(attention.q_proj, head, attention.d_head)
    right = _columns(attention.k_proj, group, attention.d_head)
    caveats = list(_reading(model.config))
    if attention.q_proj.bias is not None:
        caveats.append(
            "the score has further terms by the biases of queries and keys, each with one token or none"
        )
    if attention.q_norm is not None:
        caveats.append("approximate: a norm stands between each projection and the product, and is not in it")
    if model.config.position == "rotary" and side != "cross":
        caveats.append(
            "queries and keys are rotated by position: exact for a token and itself, at distance d a rotation R(d) "
            "stands between W_Q and W_Kᵀ"
        )
    if model.config.position in ("relative", "alibi") and side != "cross":
        caveats.append("a bias that depends on the distance is added to the score")
    if attention.softcap is not None:
        caveats.append(f"the scaled score is then capped softly at ±{attention.softcap:g}")
    if attention.groups > 1:
        caveats.append(f"the keys are shared by the {attention.groups} heads of group {group}")
    if side == "cross":
        caveats.append("the query is a token of the decoder's stream, the key one of the encoder's result")
    return Matrix(
        name=f"W_QK of {name}, head {head}",
        kind="W_QK",
        formula="score = x_q · M · x_kᵀ, M = scale · W_Q · W_Kᵀ",
        left=left,
        right=right,
        rows="residual",
        columns="residual",
        caveats=tuple(caveats),
        attention=name,
        head=head,
    )


def w_ov(model: Model, side: Side, layer: int, head: int) -> Matrix:
    """W_OV = W_V · W_O (D, D) of one head: what it writes of a token it looks at, weighted by its pattern, is
    x · W_OV (Elhage et al. 2021, OV circuit). With grouped queries the values are those of the head's group.

    Raises CutawayError for a side, layer or head that the model does not have.
    """
    attention, name = _attention(model, side, layer, head)
    group, width = head // attention.groups, attention.d_head
    caveats = list(_reading(model.config))
    if attention.v_proj.bias is not None:
        caveats.append("the value's bias adds the same vector b_V · W_O whatever token is looked at")
    if attention.o_proj.bias is not None:
        caveats.append("the output's bias belongs to no head")
    if model.config.norm_order == "sandwich":
        caveats.append("approximate: what all heads write together is normalised before it is added")
    if model.config.norm_order == "post":
        caveats.append("approximate: the stream is normalised after this is added to it")
    if attention.groups > 1:
        caveats.append(f"the values are shared by the {attention.groups} heads of group {group}")
    if side == "cross":
        caveats.append("it reads the encoder's result and writes into the decoder's stream")
    return Matrix(
        name=f"W_OV of {name}, head {head}",
        kind="W_OV",
        formula="written = Σ pattern · x · M, M = W_V · W_O",
        left=_columns(attention.v_proj, group, width),
        right=attention.o_proj.weight.detach()[:, head * width : (head + 1) * width].cpu().double(),
        rows="residual",
        columns="residual",
        caveats=tuple(caveats),
        attention=name,
        head=head,
    )


def _reading(config: ModelConfig) -> tuple[str, ...]:
    """What stands between the residual stream and a projection that reads it."""
    if config.norm_order == "post":
        return ()
    return ("x is the normalised stream (`normed`), with the norm's own weight and bias already in it",)


def _columns(projection: nn.Linear, head: int, width: int) -> Tensor:
    """The part of a projection that makes one head's vector, as (D, E) fp64."""
    return projection.weight.detach()[head * width : (head + 1) * width].cpu().double().T


def _attention(model: Model, side: Side, layer: int, head: int) -> tuple[Attention, str]:
    layers = stack_of(model, side).layers
    if not 0 <= layer < len(layers):
        raise CutawayError(f"layer is {layer}, expected 0 to {len(layers) - 1} of the {stack_name(side)}")
    if not 0 <= head < model.config.n_heads:
        raise CutawayError(f"head is {head}, expected 0 to {model.config.n_heads - 1}")
    return attention_of(block_of(model, side, layer), side), attention_path(side, layer)
