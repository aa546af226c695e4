"""What the model's output loses when one of its matrices is replaced by its best version of low rank."""

# Shapes: T positions, V vocabulary, M rows, N columns, R rank kept, E head width.

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from cutaway.checkpoint.parameters import aliases
from cutaway.errors import CutawayError
from cutaway.inspection.matrices.matrix import Matrix, parameter_matrix, w_ov, w_qk
from cutaway.inspection.outcome import divergence
from cutaway.inspection.pages.low_rank import low_rank_page, low_ranks_page
from cutaway.inspection.runs import Run, Tokens, piece_of, stack_named
from cutaway.inspection.wiring import output_head
from cutaway.models.build import Model
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit
from cutaway.words import Phrase


@dataclass(frozen=True)
class ChangedArgmax:
    """A position whose most likely token is another one with the low-rank matrix."""

    position: int
    before: int  # ids
    after: int
    before_piece: str
    after_piece: str


@dataclass(frozen=True, repr=False)
class LowRank(Drawn):
    """One run with a matrix M replaced by M_r = Σ_{i ≤ r} σᵢ uᵢ vᵢᵀ, the nearest of rank r (Eckart & Young 1936).

    matrix_error: ‖M - M_r‖_F / ‖M‖_F. kl (T,): Σ_v p ln(p / p_r) in nats at each position, p the output's
    distribution with M and p_r with M_r, in float64 of the logits as the model gives them. The effect shows how much
    this run's output depends on what was cut off, in a model never trained without it; it does not show what the
    matrix is for.

    A parameter is replaced wherever it is used: a tied table on both sides. Of a head's W_QK the queries are
    projected, q · P, of its W_OV the weighted values, z · P, with P (E, E) such that W_Q P W_Kᵀ and W_V P W_O are the
    M_r; biases pass through P as well, rotations and norms stay as they are, so that where `caveats` of the matrix
    name these, it is the product's low-rank version and only approximately the score's.
    """

    matrix: str
    title: Phrase  # of the matrix, as a reader reads it
    rank: int
    full_rank: int  # the number of singular values
    matrix_error: float
    kl: Tensor  # (T,) fp64, nats
    changed: tuple[ChangedArgmax, ...]
    tokens: Tokens  # (T,) that the positions read

    @property
    def mean_kl(self) -> float:
        return float(self.kl.mean())

    def page(self) -> Page:
        return low_rank_page(self)


@dataclass(frozen=True, repr=False)
class LowRanks(Drawn):
    """One matrix at several ranks, in the order that they were asked for."""

    results: tuple[LowRank, ...]

    def __iter__(self) -> Iterator[LowRank]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def page(self) -> Page:
        return low_ranks_page(self.results)


def low_rank(run: Run, matrix: Matrix, ranks: Sequence[int]) -> LowRanks:
    """Run once with each rank, of a matrix of the run's own model; see `LowRank`.

    The model itself is never touched, not even during the call: a second set of modules that shares its parameters
    has the changed one, so that other threads may go on using the model.
    Raises CutawayError for a model without output head, no rank at all, a rank below 0 or beyond the number of singular
    values, or a matrix of another model.
    """
    output_head(run.model)
    _check_own(run.model, matrix)
    u, sigma, v = matrix.svd()
    if not ranks:
        raise CutawayError("no rank is given: expected numbers from 0 to {count}", count=len(sigma))
    for rank in ranks:
        if not 0 <= rank <= len(sigma):
            raise CutawayError(
                "rank is {rank}, expected 0 to {count}, the most that {name} can have",
                rank=rank,
                count=len(sigma),
                name=matrix.name,
            )
    base = run.forward()[0].double().log_softmax(dim=-1)
    total = float(sigma.square().sum())
    results: list[LowRank] = []
    for rank in ranks:
        if matrix.kind == "parameter":
            kept = (u[:, :rank] * sigma[:rank]) @ v[:, :rank].T
            changed_run, edit = _with_parameter(run, matrix, kept), None
        else:
            changed_run, edit = run, _projected(matrix, u[:, :rank])
        changed = changed_run.forward(edit=edit)[0].double().log_softmax(dim=-1)
        before, after = base.argmax(dim=-1).tolist(), changed.argmax(dim=-1).tolist()
        results.append(
            LowRank(
                matrix=matrix.name,
                title=matrix.title,
                rank=rank,
                full_rank=len(sigma),
                matrix_error=(float(sigma[rank:].square().sum()) / total) ** 0.5 if total else 0.0,
                kl=divergence(base, changed).cpu(),
                changed=tuple(
                    ChangedArgmax(position, old, new, piece_of(run, old), piece_of(run, new))
                    for position, (old, new) in enumerate(zip(before, after, strict=True))
                    if old != new
                ),
                tokens=stack_named(run, None).tokens,
            )
        )
    return LowRanks(tuple(results))


def _check_own(model: Model, matrix: Matrix) -> None:
    if matrix.kind == "parameter":
        own = parameter_matrix(model, matrix.name)
    else:
        assert matrix.attention is not None and matrix.head is not None
        stack, _, layer, part = matrix.attention.split(".")
        side = "cross" if part == "cross_attn" else "encoder" if stack == "encoder" else "decoder"
        own = (w_qk if matrix.kind == "W_QK" else w_ov)(model, side, int(layer), matrix.head)
    if not torch.equal(own.left, matrix.left):
        raise CutawayError(
            "{name} is a matrix of another model: expected one of the model that was run", name=matrix.name
        )


def _with_parameter(run: Run, matrix: Matrix, values: Tensor) -> Run:
    """The run on modules of their own that share every parameter but this one, which is `values` (M, N)."""
    stored = run.model.get_parameter(matrix.name)
    linear = isinstance(run.model.get_submodule(matrix.name.rpartition(".")[0]), nn.Linear)
    as_stored = (values.T if linear else values).to(stored.device, stored.dtype)
    fresh = nn.Parameter(as_stored, requires_grad=False)
    names = next(names for names in aliases(run.model) if matrix.name in names)
    model = _sharing(run.model)
    for name in names:
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, fresh)
    return replace(run, loaded=replace(run.loaded, model=model))


def _sharing(model: Model) -> Model:
    """A copy of the modules; parameters and buffers are the same tensors."""
    kept = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, kept)


def _projected(matrix: Matrix, u: Tensor) -> Mapping[str, Edit]:
    """What makes a head's product u uᵀ M, with u (D, R): z · P or q · P, where left · P = u uᵀ left."""
    projection = torch.linalg.pinv(matrix.left) @ u @ (u.T @ matrix.left)  # (E, E)
    head = matrix.head

    def project(x: Tensor) -> Tensor:
        x = x.clone()
        x[:, head] = x[:, head] @ projection.to(x.device, x.dtype)
        return x

    return {f"{matrix.attention}.{'q' if matrix.kind == 'W_QK' else 'z'}": project}
