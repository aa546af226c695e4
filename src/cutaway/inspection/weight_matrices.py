"""A model's matrices as maps from one space to another: its parameters, and the two maps of one attention head."""

# Shapes: D width, E head width, M rows, N columns, R rank that is possible at most.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.parameters import aliases
from cutaway.errors import CutawayError, nearest
from cutaway.inspection.wiring import Place, Side, one_of, places, sides
from cutaway.page.blocks import Page, Prose, Remark, page
from cutaway.page.drawn import Drawn
from cutaway.words import Phrase, Text, say

Kind = Literal["parameter", "W_QK", "W_OV"]
Space = Literal["residual", "vocabulary", "heads", "neurons", "experts", "positions", "segments", "distances"]

SPACES: dict[Space, Phrase] = {
    "residual": say("residual stream"), "vocabulary": say("vocabulary"), "heads": say("heads"),
    "neurons": say("neurons"), "experts": say("experts"), "positions": say("positions"), "segments": say("segments"),
    "distances": say("distances"),
}  # fmt: skip

# The module that owns a weight -> what its rows and columns stand for, written as x · M.
_SPACES: dict[str, tuple[Space, Space]] = {
    "q_proj": ("residual", "heads"), "k_proj": ("residual", "heads"), "v_proj": ("residual", "heads"),
    "o_proj": ("heads", "residual"), "up": ("residual", "neurons"), "gate": ("residual", "neurons"),
    "down": ("neurons", "residual"), "router": ("residual", "experts"), "dense": ("residual", "residual"),
    "tokens": ("vocabulary", "residual"), "positions": ("positions", "residual"),
    "segments": ("segments", "residual"), "unembed": ("residual", "vocabulary"), "table": ("distances", "heads"),
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class WeightMatrix(Drawn):
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
        rows, columns = self.shape
        title = say("{title} ({rows} × {columns})", title=self.title, rows=rows, columns=columns)
        arrow = say("{rows} → {columns}", rows=SPACES[self.rows], columns=SPACES[self.columns])
        more = say(
            "Its singular values: spectrum(matrix); its directions as tokens: directions(loaded, matrix)."
        )
        formula = Prose(say("formula"), self.formula)
        return page(title, [formula, Prose(say("maps"), arrow), *caveat_lines(self.caveats), Remark(more)])

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], (self.left.shape[1] if self.right is None else self.right.shape[0])

    @property
    def full_rank(self) -> int:
        """R: how many singular values there are that can differ from 0."""
        return min(*self.shape, self.left.shape[1])

    @property
    def title(self) -> Text:
        """The name, as a reader of either language reads it."""
        if self.attention is None:
            return self.name
        return say(
            "{kind} of {attention}, head {head}", kind=self.kind, attention=self.attention, head=self.head
        )

    def dense(self) -> Tensor:
        """All entries (M, N)."""
        return self.left if self.right is None else self.left @ self.right.T

    def svd(self) -> tuple[Tensor, Tensor, Tensor]:
        """U (M, R), σ (R,) falling, V (N, R) with M = U · diag(σ) · Vᵀ; of a product R = min(M, N, E), as the singular
        values beyond are 0. Each u is turned so that its largest entry is positive, its v with it.

        Raises CutawayError for entries that are not finite.
        """
        q_left, core, q_right = self._core()
        u, sigma, vt = torch.linalg.svd(core, full_matrices=False)
        u, v = (u, vt.T) if q_left is None or q_right is None else (q_left @ u, q_right @ vt.T)
        turn = u.gather(0, u.abs().argmax(dim=0, keepdim=True)).sign()
        return u * turn, sigma, v * turn

    def singular_values(self) -> Tensor:
        """σ (R,) of `svd` alone, in less time."""
        return torch.linalg.svdvals(self._core()[1])

    def _core(self) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """A matrix of the same singular values, and orthonormal columns Q, Q' with M = Q · core · Q'ᵀ of a product."""
        if not all(bool(each.isfinite().all()) for each in (self.left, self.right) if each is not None):
            raise CutawayError(
                "{name} has entries that are not finite, so it has no singular values: the model's "
                "weights are damaged; fetch them again",
                name=self.name,
            )
        if self.right is None:
            return None, self.left, None
        q_left, r_left = torch.linalg.qr(self.left)
        q_right, r_right = torch.linalg.qr(self.right)
        return q_left, r_left @ r_right.T, q_right


def caveat_lines(caveats: tuple[Phrase, ...]) -> list[Prose]:
    """What else takes part where a matrix works; the label stands before the first."""
    return [Prose("" if n else say("but"), caveat) for n, caveat in enumerate(caveats)]


def matrices_named(
    loaded: Loaded, parameter: str | None, side: Side | None, layer: int | None, head: int | None
) -> tuple[WeightMatrix, ...]:
    """The parameter, or W_QK and W_OV of the head, that a reader names (`side` None: the last side there is,
    cross-attention in a pair); () where nothing is named.

    Raises CutawayError for both, for half a head, and as `parameter_matrix` and `w_qk` do.
    """
    if parameter is not None:
        if (side, layer, head) != (None, None, None):
            raise CutawayError(
                "`parameter` names a matrix, `side`, `layer` and `head` those of a head: give one of the two"
            )
        return (parameter_matrix(loaded, parameter),)
    if (side, layer, head) == (None, None, None):
        return ()
    if layer is None or head is None:
        raise CutawayError("a head is named by both `layer` and `head`; give both, or a `parameter`")
    side = sides(loaded.model)[-1] if side is None else side
    return w_qk(loaded, side, layer, head), w_ov(loaded, side, layer, head)


def parameter_matrix(loaded: Loaded, name: str) -> WeightMatrix:
    """The parameter of that full name; of a tied one any of its names.

    Raises CutawayError for a name that is not there, naming the nearest, and for a vector (a bias, a norm's weight).
    """
    named = dict(loaded.model.named_parameters(remove_duplicate=False))
    if name not in named:
        raise CutawayError(
            "there is no parameter {name!r}{hint}; there are {count}, such as {example}",
            name=name,
            hint=nearest(name, named),
            count=len(named),
            example=min(named),
        )
    value = named[name].detach()
    if value.ndim != 2:
        raise CutawayError(
            "{name} is of shape {shape}, a vector: expected a matrix, such as a weight",
            name=name,
            shape=tuple(value.shape),
        )
    owner = name.rpartition(".")[0]
    rows, columns = _SPACES[owner.rpartition(".")[2]]
    linear = isinstance(loaded.model.get_submodule(owner), nn.Linear)
    exact = value.cpu().double()
    formula = say("y = x · M (+ bias)") if linear else say("y = row of M")
    tied = next(names for names in aliases(loaded.model) if name in names)
    others = ", ".join(other for other in tied if other != name)
    caveats = (say("the same tensor is {others}", others=others),) if others else ()
    return WeightMatrix(
        name, "parameter", formula, exact.T if linear else exact, None, rows, columns, caveats
    )


def w_qk(loaded: Loaded, side: Side, layer: int, head: int) -> WeightMatrix:
    """W_QK = scale · W_Q · W_Kᵀ (D, D) of one head: x_q · W_QK · x_kᵀ is the part of its scaled score that both tokens
    share in (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", QK circuit).

    `scale` is the model's own (1/√E as a rule, 1 in T5). With grouped queries the keys are those of the head's group.
    What the score has beside it in this model (bias, rotation, norm, cap) is told in `caveats`.
    Raises CutawayError for a side, layer or head that this model lacks.
    """
    place, head = _head(loaded, side, layer, head)
    attention, position, cross = place.attention, loaded.config.position, side == "cross"
    group, cap = head // attention.groups, f"±{attention.softcap or 0:g}"
    biases = say("the score has further terms by the biases of queries and keys, each with one token or none")
    normed = say("approximate: a norm stands between each projection and the product, and is not in it")
    rotated = say(
        "queries and keys are rotated by position: exact for a token and itself, at distance d "
        "a rotation R(d) stands between W_Q and W_Kᵀ"
    )
    distance = say("a bias that depends on the distance is added to the score")
    capped = say("the scaled score is then capped softly at {cap}", cap=cap)
    shared = say(
        "the keys are shared by the {groups} heads of group {group}", groups=attention.groups, group=group
    )
    streams = say("the query is a token of the decoder's stream, the key one of the encoder's result")
    return _of_head(
        "W_QK", place, head, say("score = x_q · M · x_kᵀ, M = scale · W_Q · W_Kᵀ"),
        attention.scale * _columns(attention.q_proj, head, attention.d_head),
        _columns(attention.k_proj, group, attention.d_head),
        {
            _STREAM: loaded.config.norm_order != "post",
            biases: attention.q_proj.bias is not None,
            normed: attention.q_norm is not None,
            rotated: position == "rotary" and not cross,
            distance: place.stack.relative is not None and not cross,
            capped: attention.softcap is not None,
            shared: attention.groups > 1,
            streams: cross,
        },
    )  # fmt: skip


def w_ov(loaded: Loaded, side: Side, layer: int, head: int) -> WeightMatrix:
    """W_OV = W_V · W_O (D, D) of one head: what it writes of a token it looks at, weighted by its pattern, is
    x · W_OV (Elhage et al. 2021, OV circuit). With grouped queries the values are those of the head's group.

    Raises CutawayError for a side, layer or head that this model lacks.
    """
    place, head = _head(loaded, side, layer, head)
    attention, order = place.attention, loaded.config.norm_order
    group, width = head // attention.groups, attention.d_head
    value_bias = say("the value's bias adds the same vector b_V · W_O whatever token is looked at")
    sandwich = say("approximate: what all heads write together is normalised before it is added")
    post = say("approximate: the stream is normalised after this is added to it")
    shared = say(
        "the values are shared by the {groups} heads of group {group}", groups=attention.groups, group=group
    )
    return _of_head(
        "W_OV", place, head, say("written = Σ pattern · x · M, M = W_V · W_O"),
        _columns(attention.v_proj, group, width),
        attention.o_proj.weight.detach()[:, head * width : (head + 1) * width].cpu().double(),
        {
            _STREAM: order != "post",
            value_bias: attention.v_proj.bias is not None,
            say("the output's bias belongs to no head"): attention.o_proj.bias is not None,
            sandwich: order == "sandwich",
            post: order == "post",
            shared: attention.groups > 1,
            say("it reads the encoder's result and writes into the decoder's stream"): side == "cross",
        },
    )  # fmt: skip


# What stands between the residual stream and a projection that reads it.
_STREAM = say("x is the normalised stream (`normed`), with the norm's own weight and bias already in it")


def _of_head(
    kind: Kind,
    place: Place,
    head: int,
    formula: Phrase,
    left: Tensor,
    right: Tensor,
    caveats: Mapping[Phrase, bool],
) -> WeightMatrix:
    """A map of the residual stream, with those of the caveats that hold."""
    path, told = place.attention_path, tuple(caveat for caveat, holds in caveats.items() if holds)
    name = f"{kind} of {path}, head {head}"
    return WeightMatrix(name, kind, formula, left, right, "residual", "residual", told, path, head)


def _columns(projection: nn.Linear, head: int, width: int) -> Tensor:
    """The part of a projection that makes one head's vector, as (D, E) fp64."""
    return projection.weight.detach()[head * width : (head + 1) * width].cpu().double().T


def _head(loaded: Loaded, side: Side, layer: int, head: int) -> tuple[Place, int]:
    """The block of a head, and the head from 0."""
    (place,) = places(loaded.model, side, layer)
    return place, one_of(say("head"), head, place.attention.n_heads)
