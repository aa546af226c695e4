"""Pages of similarity: which pairs of tokens a cosine is made of."""

from typing import TYPE_CHECKING

from cutaway.inspection.terms import left, right
from cutaway.page.blocks import Matrix, Page, Prose, Remark, Shaded, Table, page
from cutaway.words import say, say_in

if TYPE_CHECKING:
    from cutaway.inspection.attribution.similarity import SimilarityAttribution

TOP = 10  # pairs that are listed
_FIRST, _SECOND = say_in("text", "first"), say_in("text", "second")
_SHARE = say("share of the cosine")


def similarity_page(found: "SimilarityAttribution", top: int = TOP) -> Page:
    """The cosine, each token's share of it, the strongest pairs, and in a drawing all of them."""
    first, second = found.first.pieces, found.second.pieces
    flat = found.shares.flatten()
    order = flat.abs().argsort(descending=True, stable=True)[:top].tolist()
    rows = [(f"{float(flat[n]):+.4f}", first[n // len(second)], second[n % len(second)]) for n in order]
    columns = (right(say("share")), left(_FIRST), left(_SECOND))
    caveat = None
    if found.approximate is not None:
        caveat = Remark(say("To keep in mind: {approximate}.", approximate=found.approximate))
    total = f"{float(flat.sum()):.4f}"
    return page(
        say("Why the cosine of the two texts is {cosine:.4f}", cosine=found.cosine),
        [
            Shaded(_FIRST, first, found.first_shares.tolist(), _SHARE),
            Shaded(_SECOND, second, found.second_shares.tolist(), _SHARE),
            Prose(
                say("sum"),
                say(
                    "{total} of {count} pairs, difference {difference:.1e}",
                    total=total,
                    count=len(flat),
                    difference=found.difference,
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
                say(
                    "Message vectors are means of the tokens' last hidden states, so the cosine is a sum over "
                    "pairs, and exactly that. A hidden state has seen its whole text: a share belongs to "
                    "two tokens in their contexts, not to two words. Control tokens count as tokens."
                )
            ),
            caveat,
        ],
    )
