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
from cutaway.inspection.runs.selection import layer_number
from cutaway.inspection.runs.sides import Side, attention_of, attention_path, block_of, stack_name, stack_of
from cutaway.models.build import Model
from cutaway.nn.attention import Attention
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.page.locale import Both

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
    formula: Both
    left: Tensor  # (M, N); of a product (M, E)
    right: Tensor | None  # (N, E) of a product
    rows: Space
    columns: Space
    caveats: tuple[Both, ...]  # what else takes part in the model where this matrix works
    attention: str | None = None  # full name of a head's attention, and the head
    head: int | None = None

    def page(self) -> Page:
        return matrix_page(self)

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], (self.left.shape[1] if self.right is None else self.right.shape[0])

    @property
    def title(self) -> Both:
        """The name, as a reader of either language reads it."""
        if self.attention is None:
            return Both(self.name, self.name)
        return Both(self.name, f"{self.attention} 第 {self.head} 头的 {self.kind}")

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
                    f"{self.name} has entries that are not finite, so it has no singular values: the model's weights "
                    "are damaged"
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
        formula=Both("y = x · M (+ bias)", "y = x · M（+ 偏置）")
        if linear
        else Both("y = row of M", "y = M 的一行"),
        left=exact.T if linear else exact,
        right=None,
        rows=rows,
        columns=columns,
        caveats=(Both(f"the same tensor is {others}", f"同一个张量也是 {others}"),) if others else (),
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
            Both(
                "the score has further terms by the biases of queries and keys, each with one token or none",
                "查询与键的偏置使得分还有别的项，每一项只涉及一个词块或不涉及词块",
            )
        )
    if attention.q_norm is not None:
        caveats.append(
            Both(
                "approximate: a norm stands between each projection and the product, and is not in it",
                "近似：每个投影与乘积之间还有一次归一化，这里没有计入",
            )
        )
    if model.config.position == "rotary" and side != "cross":
        caveats.append(
            Both(
                "queries and keys are rotated by position: exact for a token and itself, at distance d a rotation "
                "R(d) stands between W_Q and W_Kᵀ",
                "查询与键按位置旋转：词块与自身之间是精确的，距离为 d 时 W_Q 与 W_Kᵀ 之间还有旋转 R(d)",
            )
        )
    if model.config.position in ("relative", "alibi") and side != "cross":
        caveats.append(
            Both(
                "a bias that depends on the distance is added to the score",
                "得分上还要加一个随距离而变的偏置",
            )
        )
    if attention.softcap is not None:
        cap = f"±{attention.softcap:g}"
        caveats.append(
            Both(
                f"the scaled score is then capped softly at {cap}",
                f"缩放后的得分随后被平滑地限制在 {cap} 以内",
            )
        )
    if attention.groups > 1:
        caveats.append(
            Both(
                f"the keys are shared by the {attention.groups} heads of group {group}",
                f"键由第 {group} 组的 {attention.groups} 个头共用",
            )
        )
    if side == "cross":
        caveats.append(
            Both(
                "the query is a token of the decoder's stream, the key one of the encoder's result",
                "查询来自解码器的残差流，键来自编码器的输出",
            )
        )
    return Matrix(
        name=f"W_QK of {name}, head {head}",
        kind="W_QK",
        formula=Both(
            "score = x_q · M · x_kᵀ, M = scale · W_Q · W_Kᵀ", "得分 = x_q · M · x_kᵀ，M = 缩放 · W_Q · W_Kᵀ"
        ),
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
        caveats.append(
            Both(
                "the value's bias adds the same vector b_V · W_O whatever token is looked at",
                "无论看向哪个词块，值的偏置都加上同一个向量 b_V · W_O",
            )
        )
    if attention.o_proj.bias is not None:
        caveats.append(Both("the output's bias belongs to no head", "输出的偏置不属于任何一个头"))
    if model.config.norm_order == "sandwich":
        caveats.append(
            Both(
                "approximate: what all heads write together is normalised before it is added",
                "近似：所有头写入的总和先归一化，再加到残差流上",
            )
        )
    if model.config.norm_order == "post":
        caveats.append(
            Both(
                "approximate: the stream is normalised after this is added to it",
                "近似：加上它之后，残差流还要归一化",
            )
        )
    if attention.groups > 1:
        caveats.append(
            Both(
                f"the values are shared by the {attention.groups} heads of group {group}",
                f"值由第 {group} 组的 {attention.groups} 个头共用",
            )
        )
    if side == "cross":
        caveats.append(
            Both(
                "it reads the encoder's result and writes into the decoder's stream",
                "它读编码器的输出，写入解码器的残差流",
            )
        )
    return Matrix(
        name=f"W_OV of {name}, head {head}",
        kind="W_OV",
        formula=Both("written = Σ pattern · x · M, M = W_V · W_O", "写入 = Σ 权重 · x · M，M = W_V · W_O"),
        left=_columns(attention.v_proj, group, width),
        right=attention.o_proj.weight.detach()[:, head * width : (head + 1) * width].cpu().double(),
        rows="residual",
        columns="residual",
        caveats=tuple(caveats),
        attention=name,
        head=head,
    )


def _reading(config: ModelConfig) -> tuple[Both, ...]:
    """What stands between the residual stream and a projection that reads it."""
    if config.norm_order == "post":
        return ()
    return (
        Both(
            "x is the normalised stream (`normed`), with the norm's own weight and bias already in it",
            "x 是归一化之后的残差流（`normed`），归一化自己的权重和偏置已在其中",
        ),
    )


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
        raise CutawayError(f"head is {head}, expected 0 to {count - 1}, or -1 for the last")
    return attention_of(block_of(model, side, layer), side), attention_path(side, layer), head % count
