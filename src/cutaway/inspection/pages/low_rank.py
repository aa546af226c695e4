"""Pages of low-rank matrices: what a run's output loses with them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.pages.words import TOKEN, left, right
from cutaway.page.blocks import Matrix, Page, Prose, Remark, Table, page
from cutaway.page.locale import Both
from cutaway.page.numbers import number

if TYPE_CHECKING:
    from cutaway.inspection.matrices.low_rank import ChangedArgmax, LowRank

_CHANGED = 6  # changed tokens of a rank that are listed
_RANK = Both("rank", "秩")
_KL = Both("KL divergence, nats", "KL 散度，奈特")
_ABOUT = Both(
    "error: ‖M − Mᵣ‖ / ‖M‖ of the nearest matrix of that rank. KL: how far the output's distribution moves, in nats, "
    "mean of the text's positions. changed: positions whose most likely token becomes another (token number: before → "
    "after). The model was never trained without what is cut off: this is dependence, not purpose.",
    "误差：与该秩下最接近的矩阵之间的 ‖M − Mᵣ‖ / ‖M‖。KL：输出分布的偏移，单位奈特，对文中各位置取平均。"
    "改变：最可能的词块换成了另一个的位置（词块序号：之前 → 之后）。模型训练时从未缺少过这些部分：这是依赖，"
    "不是用途。",
)


def low_rank_page(found: "LowRank") -> Page:
    """One rank: where the output moves, token by token."""
    title = Both(
        f"{found.title.en} at rank {found.rank} of {found.full_rank}",
        f"{found.title.zh}，秩 {found.full_rank} 降为 {found.rank}",
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
        right(Both("at", "位置")),
        left(Both("token read", "读到的词块")),
        right("KL"),
        left(Both("most likely next", "最可能的词块")),
    )
    return page(
        title,
        [
            Prose(Both("error", "误差"), number(found.matrix_error)),
            Prose(Both("mean KL", "平均 KL"), Both(f"{mean} nats", f"{mean} 奈特")),
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
        right(Both("error", "误差")),
        right(Both("mean KL", "平均 KL")),
        right(Both("changed", "改变")),
        left(Both("most likely tokens that change", "改变的最可能词块")),
    )
    values = np.stack([each.kl.double().numpy() for each in found])
    ranks = [str(each.rank) for each in found]
    return page(
        Both(
            f"{first.title.en} at lower ranks, full rank {first.full_rank}",
            f"{first.title.zh}，降秩之后（满秩 {first.full_rank}）",
        ),
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
