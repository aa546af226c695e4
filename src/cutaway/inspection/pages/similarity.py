"""Pages of similarity: which pairs of tokens a cosine is made of."""

from typing import TYPE_CHECKING

from cutaway.inspection.pages.words import left, right
from cutaway.page.blocks import Matrix, Page, Prose, Remark, Shaded, Table, page
from cutaway.page.locale import Both

if TYPE_CHECKING:
    from cutaway.inspection.attribution.similarity import SimilarityAttribution

TOP = 10  # pairs that are listed
_FIRST, _SECOND = Both("first", "第一段"), Both("second", "第二段")
_SHARE = Both("share of the cosine", "余弦中的份额")


def similarity_page(found: "SimilarityAttribution", top: int = TOP) -> Page:
    """The cosine, each token's share of it, the strongest pairs, and in a drawing all of them."""
    first, second = found.first.pieces, found.second.pieces
    flat = found.shares.flatten()
    order = flat.abs().argsort(descending=True, stable=True)[:top].tolist()
    rows = [(f"{float(flat[n]):+.4f}", first[n // len(second)], second[n % len(second)]) for n in order]
    columns = (right(Both("share", "份额")), left(_FIRST), left(_SECOND))
    caveat = None
    if found.approximate is not None:
        caveat = Remark(
            Both(f"To keep in mind: {found.approximate.en}.", f"请注意：{found.approximate.zh}。")
        )
    total = f"{float(flat.sum()):.4f}"
    return page(
        Both(
            f"Why the cosine of the two texts is {found.cosine:.4f}",
            f"为什么这两段文字的余弦是 {found.cosine:.4f}",
        ),
        [
            Shaded(_FIRST, first, found.first_shares.tolist(), _SHARE),
            Shaded(_SECOND, second, found.second_shares.tolist(), _SHARE),
            Prose(
                Both("sum", "总和"),
                Both(
                    f"{total} of {len(flat)} pairs, difference {found.difference:.1e}",
                    f"{len(flat)} 对共 {total}，相差 {found.difference:.1e}",
                ),
            ),
            Table(columns, rows),
            Matrix(
                found.shares.double().cpu().numpy(),
                first,
                second,
                _FIRST,
                _SECOND,
                _SHARE,
                "signed",
                drawn=True,
            ),
            Remark(
                Both(
                    "Both vectors are means of the tokens' last hidden states, so the cosine is a sum over pairs, and "
                    "exactly that. A hidden state has seen its whole text: a share belongs to two tokens in their "
                    "contexts, not to two words. Control tokens count as tokens.",
                    "两个向量都是各词块最后隐藏状态的平均，所以余弦恰好是各对之和。隐藏状态已经看过整段文字："
                    "份额属于上下文中的两个词块，不属于两个词。控制词块也算词块。",
                )
            ),
            caveat,
        ],
    )
