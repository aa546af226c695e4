"""A model's matrices as maps from one space to another: its parameters, and the two maps of one attention head."""

# Shapes: D width, E head width, M rows, N columns, R rank that is possible at most.

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.parameters import aliases
from cutaway.config import ModelConfig
from cutaway.errors import CutawayError, nearest
from cutaway.inspection.pages.matrices import matrix_page
from cutaway.inspection.wiring import Side, stack_name, stack_of
from cutaway.models.build import Model
from cutaway.nn.attention import Attention
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.words import Phrase, say

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


@dataclass(frozen=True, repr=False)
class Matrix(Drawn):
    """A matrix M (rows, columns), in fp64 on the CPU, as it acts on row vectors: x · M.

    A linear layer's weight is stored transposed, (out, in), and turned here; a table of vectors is one-hot · M. A
    product of two factors, M = left · rightᵀ, is kept as these, so that its size is 2 D E numbers and not D².
    """

    name: str  # a parameter's full name; for a head, that of its attention and its number
    kind: Kind
    formula: Phrase
    left: Tensor  # (M, N); of a product (M, E)
    right: Tensor | None  # (N, E) of a product
    rows: Space
    columns: Space
    caveats: tuple[Phrase, ...]  # what else takes part in the model where this matrix works
    attention: str | None = None  # full name of a head's attention, and the head
    head: int | None = None

    def page(self) -> Page:
        return matrix_page(self)

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], (self.left.shape[1] if self.right is None else self.right.shape[0])

    @property
    def title(self) -> Phrase:
        """The name, as a reader of either language reads it."""
        if self.attention is None:
            return say("{name}", name=self.name)
        return say(
            "{kind} of head {head} of {attention}", kind=self.kind, head=self.head, attention=self.attention
        )

    def dense(self) -> Tensor:
        """All entries (M, N)."""
        return self.left if self.right is None else self.left @ self.right.T

    def svd(self) -> tuple[Tensor, Tensor, Tensor]:
        """U (M, R), σ (R,) falling, V (N, R) with M = U · diag(σ) · Vᵀ; of a product R = min(M, N, E), as the singular
        values beyond are 0. Each u is turned so that its largest entry is positive, its v with it.

        Raises CutawayError for entries that are not finite.
        """
        for factor in (self.left, *([] if self.right is None else [self.right])):
            if not bool(factor.isfinite().all()):
                raise CutawayError(
                    "{name} has entries that are not finite, so it has no singular values: the model's "
                    "weights are damaged",
                    name=self.name,
                )
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


def parameter_matrix(of: Model | Loaded, name: str) -> Matrix:
    """The parameter of that full name, as `cutaway inspect` lists them; of a tied one any of its names.

    Raises CutawayError for a name that is not there, naming the nearest, and for a vector (a bias, a norm's weight).
    """
    model = _model(of)
    named = dict(model.named_parameters(remove_duplicate=False))
    if name not in named:
        raise CutawayError(
            "no parameter {name!r}{hint}; there are {count}, such as {named}",
            name=name,
            hint=nearest(name, named),
            count=len(named),
            named=min(named),
        )
    value = named[name].detach()
    if value.ndim != 2:
        raise CutawayError(
            "{name} is of shape {tuple}, a vector: expected a matrix, such as a weight",
            name=name,
            tuple=tuple(value.shape),
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
        formula=say("y = x · M (+ bias)") if linear else say("y = row of M"),
        left=exact.T if linear else exact,
        right=None,
        rows=rows,
        columns=columns,
        caveats=(say("the same tensor is {others}", others=others),) if others else (),
    )


def w_qk(of: Model | Loaded, side: Side, layer: int, head: int) -> Matrix:
    """W_QK = scale · W_Q · W_Kᵀ (D, D) of one head: x_q · W_QK · x_kᵀ is the part of its scaled score that both tokens
    share in (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", QK circuit).

    `scale` is the model's own (1/√E as a rule, 1 in T5). With grouped queries the keys are those of the head's group.
    What the score has beside it in this model (bias, rotation, norm, cap) is told in `caveats`.
    Raises CutawayError for a side, layer or head that the model does not have.
    """
    model = _model(of)
    attention, name, head = _attention(model, side, layer, head)
    group = head // attention.groups
    left = attention.scale * _columns(attention.q_proj, head, attention.d_head)
    right = _columns(attention.k_proj, group, attention.d_head)
    caveats = list(_reading(model.config))
    if attention.q_proj.bias is not None:
        caveats.append(
            say("the score has further terms by the biases of queries and keys, each with one token or none")
        )
    if attention.q_norm is not None:
        caveats.append(
            say("approximate: a norm stands between each projection and the product, and is not in it")
        )
    if model.config.position == "rotary" and side != "cross":
        caveats.append(
            say(
                "queries and keys are rotated by position: exact for a token and itself, at distance d "
                "a rotation R(d) stands between W_Q and W_Kᵀ"
            )
        )
    if model.config.position in ("relative", "alibi") and side != "cross":
        caveats.append(say("a bias that depends on the distance is added to the score"))
    if attention.softcap is not None:
        cap = f"±{attention.softcap:g}"
        caveats.append(say("the scaled score is then capped softly at {cap}", cap=cap))
    if attention.groups > 1:
        caveats.append(
            say(
                "the keys are shared by the {groups} heads of group {group}",
                groups=attention.groups,
                group=group,
            )
        )
    if side == "cross":
        caveats.append(
            say("the query is a token of the decoder's stream, the key one of the encoder's result")
        )
    return Matrix(
        name=f"W_QK of {name}, head {head}",
        kind="W_QK",
        formula=say("score = x_q · M · x_kᵀ, M = scale · W_Q · W_Kᵀ"),
        left=left,
        right=right,
        rows="residual",
        columns="residual",
        caveats=tuple(caveats),
        attention=name,
        head=head,
    )


def w_ov(of: Model | Loaded, side: Side, layer: int, head: int) -> Matrix:
    """W_OV = W_V · W_O (D, D) of one head: what it writes of a token it looks at, weighted by its pattern, is
    x · W_OV (Elhage et al. 2021, OV circuit). With grouped queries the values are those of the head's group.

    Raises CutawayError for a side, layer or head that the model does not have.
    """
    model = _model(of)
    attention, name, head = _attention(model, side, layer, head)
    group, width = head // attention.groups, attention.d_head
    caveats = list(_reading(model.config))
    if attention.v_proj.bias is not None:
        caveats.append(say("the value's bias adds the same vector b_V · W_O whatever token is looked at"))
    if attention.o_proj.bias is not None:
        caveats.append(say("the output's bias belongs to no head"))
    if model.config.norm_order == "sandwich":
        caveats.append(say("approximate: what all heads write together is normalised before it is added"))
    if model.config.norm_order == "post":
        caveats.append(say("approximate: the stream is normalised after this is added to it"))
    if attention.groups > 1:
        caveats.append(
            say(
                "the values are shared by the {groups} heads of group {group}",
                groups=attention.groups,
                group=group,
            )
        )
    if side == "cross":
        caveats.append(say("it reads the encoder's result and writes into the decoder's stream"))
    return Matrix(
        name=f"W_OV of {name}, head {head}",
        kind="W_OV",
        formula=say("written = Σ pattern · x · M, M = W_V · W_O"),
        left=_columns(attention.v_proj, group, width),
        right=attention.o_proj.weight.detach()[:, head * width : (head + 1) * width].cpu().double(),
        rows="residual",
        columns="residual",
        caveats=tuple(caveats),
        attention=name,
        head=head,
    )


def _reading(config: ModelConfig) -> tuple[Phrase, ...]:
    """What stands between the residual stream and a projection that reads it."""
    if config.norm_order == "post":
        return ()
    return (say("x is the normalised stream (`normed`), with the norm's own weight and bias already in it"),)


def _columns(projection: nn.Linear, head: int, width: int) -> Tensor:
    """The part of a projection that makes one head's vector, as (D, E) fp64."""
    return projection.weight.detach()[head * width : (head + 1) * width].cpu().double().T


def _model(of: Model | Loaded) -> Model:
    return of.model if isinstance(of, Loaded) else of


def _attention(model: Model, side: Side, layer: int, head: int) -> tuple[Attention, str, int]:
    """The attention with its full name, and the head from 0."""
    layer = layer_number(len(stack_of(model, side).layers), layer, f"the {stack_name(side)}")
    count = model.config.n_heads
    if not -count <= head < count:
        raise CutawayError(
            "head is {head}, expected 0 to {count}, or -1 for the last", head=head, count=count - 1
        )
    return attention_of(block_of(model, side, layer), side), attention_path(side, layer), head % count
