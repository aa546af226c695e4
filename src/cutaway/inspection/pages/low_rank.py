"""Pages of low-rank matrices: what a run's output loses with them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.terms import TOKEN, left, right
from cutaway.page.blocks import Matrix, Page, Prose, Remark, Table, page
from cutaway.page.numbers import number
from cutaway.words import say

if TYPE_CHECKING:
    from cutaway.inspection.matrices.low_rank import ChangedArgmax, LowRank

_CHANGED = 6  # changed tokens of a rank that are listed
_RANK = say("rank")
_KL = say("KL divergence, nats")
_ABOUT = say(
    "error: ‖M − Mᵣ‖ / ‖M‖ of the nearest matrix of that rank. KL: how far the output's "
    "distribution moves, in nats, mean of the text's positions. changed: positions whose "
    "most likely token becomes another (token number: before → after). The model was never "
    "trained without what is cut off: this is dependence, not purpose."
)


def low_rank_page(found: "LowRank") -> Page:
    """One rank: where the output moves, token by token."""
    title = say(
        "{title} at rank {rank} of {full_rank}", title=found.title, rank=found.rank, full_rank=found.full_rank
    )
    changed, mean = {each.position: each for each in found.changed}, f"{found.mean_kl:.4f}"
    rows = [
        (
            str(position),
            piece,
            f"{kl:.3f}",
            f"{changed[position].before_piece} → {changed[position].after_piece}" if position in changed else "",
        )
        for position, (piece, kl) in enumerate(zip(found.tokens.pieces, found.kl.tolist(), strict=True))
    ]  # fmt: skip
    columns = (
        right(say("at")),
        left(say("token read")),
        right("KL"),
        left(say("most likely next")),
    )
    return page(
        title,
        [
            Prose(say("error"), number(found.matrix_error)),
            Prose(say("mean KL"), say("{mean} nats", mean=mean)),
            Table(columns, rows),
            Remark(_ABOUT),
        ],
    )


def low_ranks_page(*found: "Sequence[LowRank]") -> Page:
    """Several ranks of one matrix, or of several; in a drawing also where the output moves."""
    pages = [_ranks(each) for each in found]
    whole = pages[0].then(*pages[1:])
    return page(whole.title, (*whole.blocks, Remark(_ABOUT)))


def _ranks(found: "Sequence[LowRank]") -> Page:
    first = found[0]
    rows = [
        (
            str(each.rank),
            f"{each.matrix_error:.3f}",
            f"{each.mean_kl:.4f}",
            str(len(each.changed)),
            _listed(each.changed),
        )
        for each in found
    ]
    columns = (
        right(_RANK),
        right(say("error")),
        right(say("mean KL")),
        right(say("changed")),
        left(say("most likely tokens that change")),
    )
    values = np.stack([each.kl.double().numpy() for each in found])
    ranks = [str(each.rank) for each in found]
    return page(
        say("{title} at lower ranks, full rank {full_rank}", title=first.title, full_rank=first.full_rank),
        [
            Table(columns, rows),
            Matrix(
                values,
                ranks,
                first.tokens.pieces,
                _RANK,
                TOKEN,
                _KL,
                drawn=True,
                greatest=float(values.max(initial=0.0, where=np.isfinite(values))) or None,
            ),
        ],
    )


def _listed(changed: "Sequence[ChangedArgmax]") -> str:
    listed = [f"{each.position}: {each.before_piece} → {each.after_piece}" for each in changed[:_CHANGED]]
    return "  ".join([*listed, *(["…"] if len(changed) > _CHANGED else [])])
