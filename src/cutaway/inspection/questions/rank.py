"""What the model's output loses when one of its matrices is replaced by its best version of low rank."""

# Shapes: T positions, V vocabulary, M rows, N columns, R rank kept, E head width.

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from cutaway.checkpoint.parameters import aliases
from cutaway.errors import CutawayError
from cutaway.inspection.asked import AttentionSide, OneHead, OneLayer
from cutaway.inspection.options import Option, Progress
from cutaway.inspection.outcome import divergence
from cutaway.inspection.page_parts import array
from cutaway.inspection.question import WORDS, question
from cutaway.inspection.runs import Run, Tokens, piece_of, stack_named
from cutaway.inspection.terms import left, right
from cutaway.inspection.weight_matrices import WeightMatrix, matrices_named
from cutaway.inspection.wiring import output_head
from cutaway.page.blocks import Matrix, Page, Prose, Table, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import number
from cutaway.tap import Edit
from cutaway.words import Text, say

DEFAULT_RANKS = (0, 1, 2, 4, 8, 16)  # thirty-seconds of the full rank


@dataclass(frozen=True)
class ChangedArgmax:
    """A position whose most likely token is another one with the low-rank matrix."""

    position: int
    before: int  # ids
    after: int
    before_piece: str
    after_piece: str

    @property
    def told(self) -> str:
        return f"{self.before_piece} → {self.after_piece}"


@dataclass(frozen=True)
class LowRank:
    """The run with M_r, the nearest matrix of rank r."""

    rank: int
    error: float  # ‖M - M_r‖_F / ‖M‖_F
    kl: Tensor  # (T,) fp64, nats
    changed: tuple[ChangedArgmax, ...]

    @property
    def mean_kl(self) -> float:
        return float(self.kl.mean())


@dataclass(frozen=True)
class Lowered:
    """One matrix at several ranks, in the order that they were asked for."""

    matrix: str
    title: Text  # of the matrix, as a reader reads it
    full_rank: int  # the number of singular values
    ranks: tuple[LowRank, ...]


@dataclass(frozen=True, repr=False)
class Rank(Drawn):
    """One run with a matrix M replaced by M_r = Σ_{i ≤ r} σᵢ uᵢ vᵢᵀ, the nearest of rank r (Eckart & Young 1936).

    error: ‖M - M_r‖_F / ‖M‖_F. kl (T,): Σ_v p ln(p / p_r) in nats at each position, p the output's distribution with M
    and p_r with M_r, in float64 of the logits as the model gives them. The effect shows how much this run's output
    depends on what was cut off, in a model never trained without it; it does not show what the matrix is for.

    A parameter is replaced wherever it is used: a tied table on both sides. Of a head's W_QK the queries are
    projected, q · P, of its W_OV the weighted values, z · P, with P (E, E) such that W_Q P W_Kᵀ and W_V P W_O are the
    M_r; biases pass through P as well, rotations and norms stay as they are, so that where `caveats` of the matrix
    name these, it is the product's low-rank version and only approximately the score's.
    """

    tokens: Tokens  # (T,) that the positions read
    matrices: tuple[Lowered, ...]

    def page(self) -> Page:
        return _page(self)


@question(
    say("What the output loses when a matrix is replaced by its nearest of low rank."), "matrices", WORDS
)
def rank(
    run: Run,
    *,
    parameter: Annotated[str | None, Option(say("A parameter's full name, where no head is named."))] = None,
    side: AttentionSide = None,
    layer: OneLayer = None,
    head: OneHead = None,
    ranks: Annotated[
        tuple[int, ...] | None,
        Option(say("Ranks to keep; else 0 and five more, up to half of the full rank."), at_least=0),
    ] = None,
    progress: Progress | None = None,
) -> Rank:
    """Run once as it is, and once with each rank of a parameter, or of W_QK and of W_OV of one head.

    The model itself is never touched, not even during the call: a second set of modules that shares its parameters
    has the changed one, so that other threads may go on using the model.
    Raises CutawayError for a model without output head, where no matrix or no rank is named, and for a rank below 0 or
    beyond the number of singular values.
    """
    output_head(run.model)
    matrices = matrices_named(run.loaded, parameter, side, layer, head)
    if not matrices:
        raise CutawayError(
            "rank needs a matrix: give `parameter` (svd lists them), or `layer` and `head` of a head"
        )
    wanted = [_ranks(matrix, ranks) for matrix in matrices]
    base = run.forward()[0].double().log_softmax(dim=-1)
    done, count = 0, sum(map(len, wanted))
    lowered: list[Lowered] = []
    for matrix, each in zip(matrices, wanted, strict=True):
        u, sigma, v = matrix.svd()
        found: list[LowRank] = []
        for kept in each:
            found.append(_low_rank(run, base, matrix, kept, u, sigma, v))
            done += 1
            if progress is not None:
                progress(say("ranks"), done, count)
        lowered.append(Lowered(matrix.name, matrix.title, len(sigma), tuple(found)))
    return Rank(stack_named(run, None).tokens, tuple(lowered))


def _ranks(matrix: WeightMatrix, given: Sequence[int] | None) -> tuple[int, ...]:
    full = matrix.full_rank
    if given is None:
        return tuple(sorted({full * part // 32 for part in DEFAULT_RANKS}))
    if not given:
        raise CutawayError("no rank is given: expected numbers from 0 to {full}", full=full)
    for each in given:
        if not 0 <= each <= full:
            raise CutawayError(
                "rank is {rank}, expected 0 to {full}, the most that {name} can have",
                rank=each,
                full=full,
                name=matrix.name,
            )
    return tuple(given)


def _low_rank(
    run: Run, base: Tensor, matrix: WeightMatrix, rank: int, u: Tensor, sigma: Tensor, v: Tensor
) -> LowRank:
    """base (T, V): log-probabilities of the unchanged run."""
    if matrix.kind == "parameter":
        values = (u[:, :rank] * sigma[:rank]) @ v[:, :rank].T
        changed = _with_parameter(run, matrix, values).forward()[0]
    else:
        changed = run.forward(edit=_projected(matrix, u[:, :rank]))[0]
    changed = changed.double().log_softmax(dim=-1)
    total = float(sigma.square().sum())
    before, after = base.argmax(dim=-1).tolist(), changed.argmax(dim=-1).tolist()
    return LowRank(
        rank=rank,
        error=(float(sigma[rank:].square().sum()) / total) ** 0.5 if total else 0.0,
        kl=divergence(base, changed).cpu(),
        changed=tuple(
            ChangedArgmax(position, old, new, piece_of(run, old), piece_of(run, new))
            for position, (old, new) in enumerate(zip(before, after, strict=True))
            if old != new
        ),
    )


def _with_parameter(run: Run, matrix: WeightMatrix, values: Tensor) -> Run:
    """The run on modules of their own that share every parameter but this one, which is `values` (M, N)."""
    stored = run.model.get_parameter(matrix.name)
    linear = isinstance(run.model.get_submodule(matrix.name.rpartition(".")[0]), nn.Linear)
    as_stored = (values.T if linear else values).to(stored.device, stored.dtype)
    fresh = nn.Parameter(as_stored, requires_grad=False)
    shared = {id(tensor): tensor for tensor in (*run.model.parameters(), *run.model.buffers())}
    model = copy.deepcopy(run.model, shared)
    for name in next(names for names in aliases(run.model) if matrix.name in names):
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, fresh)
    return Run(replace(run.loaded, model=model), run.source, run.target, run.outcome)


def _projected(matrix: WeightMatrix, u: Tensor) -> Mapping[str, Edit]:
    """What makes a head's product u uᵀ M, with u (D, R): z · P or q · P, where left · P = u uᵀ left."""
    projection = torch.linalg.pinv(matrix.left) @ u @ (u.T @ matrix.left)  # (E, E)
    head = matrix.head

    def project(x: Tensor) -> Tensor:
        x = x.clone()
        x[:, head] = x[:, head] @ projection.to(x.device, x.dtype)
        return x

    return {f"{matrix.attention}.{'q' if matrix.kind == 'W_QK' else 'z'}": project}


# Its page.

_CHANGED = 6  # changed tokens of a rank that are listed
_READ = say("token read")
_ABOUT = say(
    "error: ‖M − Mᵣ‖ / ‖M‖ of the nearest matrix of that rank. KL: how far the output's distribution moves, in "
    "nats (natural logarithms; 0: not at all), mean of the text's positions. changed: positions whose most likely "
    "token becomes another (position: before → after). The model was never trained without what is cut off: this "
    "is dependence, not purpose."
)


def _page(found: Rank) -> Page:
    """Each matrix under the other: of several ranks a line each, of one the tokens one by one."""
    first, *others = (
        _one_rank(found.tokens, each) if len(each.ranks) == 1 else _several(found.tokens, each)
        for each in found.matrices
    )
    return page(first.title, (*first.then(*others).blocks, _ABOUT))


def _one_rank(tokens: Tokens, found: Lowered) -> Page:
    (lowered,) = found.ranks
    changed = {each.position: each.told for each in lowered.changed}
    rows = [
        (str(position), piece, f"{kl:.3f}", changed.get(position, ""))
        for position, (piece, kl) in enumerate(zip(tokens.pieces, lowered.kl.tolist(), strict=True))
    ]
    columns = (right(say("at")), left(_READ), right("KL"), left(say("most likely tokens that change")))
    title, full = found.title, found.full_rank
    return page(
        say("{title} at rank {rank} of {full_rank}", title=title, rank=lowered.rank, full_rank=full),
        [
            Prose(say("error"), number(lowered.error)),
            Prose(say("mean KL"), say("{kl:.4f} nats", kl=lowered.mean_kl)),
            Table(columns, rows),
        ],
    )


def _several(tokens: Tokens, found: Lowered) -> Page:
    rows = []
    for each in found.ranks:
        changed = [f"{one.position}: {one.told}" for one in each.changed]
        listed = changed[:_CHANGED] + ["…"] * (len(changed) > _CHANGED)
        numbers = (str(each.rank), f"{each.error:.3f}", f"{each.mean_kl:.4f}", str(len(changed)))
        rows.append((*numbers, "  ".join(listed)))
    titles = (say("rank"), say("error"), say("mean KL"), say("changed"))
    columns = (*map(right, titles), left(say("most likely tokens that change")))
    values, ranks = (
        np.stack([array(each.kl) for each in found.ranks]),
        [str(each.rank) for each in found.ranks],
    )
    greatest, unit = float(values.max(initial=0.0, where=np.isfinite(values))), say("KL divergence, nats")
    return page(
        say("{title} at lower ranks, full rank {full_rank}", title=found.title, full_rank=found.full_rank),
        [
            Table(columns, rows),
            Matrix(
                values, ranks, tokens.pieces, say("rank"), _READ, unit, drawn=True, greatest=greatest or None
            ),
        ],
    )
