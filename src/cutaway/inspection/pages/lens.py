"""Pages of the logit lens: all readings of a text, and those at one token."""

from typing import TYPE_CHECKING

from cutaway.inspection.pages.words import PROBABILITY, left, right
from cutaway.page.blocks import Heading, Matrix, Page, Remark, Table, Tinted, page
from cutaway.page.numbers import share
from cutaway.text.display import truncate
from cutaway.words import Phrase, say

if TYPE_CHECKING:
    from cutaway.inspection.layers.lens import Lens

PIECE = 8  # columns that a piece may take
LISTED = 3  # readings of a layer at one token
STACKS = {"encoder": say("the encoder"), "decoder": say("the decoder")}
READ = Remark(
    say(
        "Read by the model's own last norm and output matrix; no layer but the last was "
        "trained to be read so: a reading, not a thought. The reading after the last layer is "
        "what the model says."
    )
)


def lens_page(found: "Lens", more: Remark | None = None) -> Page:
    """Tokens down, layers across, each with its best reading in the colour of its probability. `more`: what to ask
    next."""
    which, outcome = STACKS[found.side], _outcome(found)
    rows = []
    for t, piece in enumerate(found.tokens.pieces):
        cells = [_cell(found, n, t) for n in range(len(found.layers))]
        rows.append((truncate(piece, PIECE), *cells, truncate(found.outcome.pieces[t], PIECE)))
    titles = [layer_name(layer) for layer in found.layers]
    columns = [left(say("reads")), *map(left, titles), left(outcome)]
    probabilities = found.outcome_log_probs.exp().T.double().numpy()
    return page(
        say("What each layer of {which} would say, were it the last", which=which),
        [
            Table(columns, rows, tint=PROBABILITY, keep=1),
            READ,
            _approximate(found),
            more,
            Heading(say("How probable each layer would make what stands there in the end")),
            Matrix(
                probabilities,
                found.outcome.pieces,
                [layer_name(layer) for layer in found.layers],
                outcome,
                say("read after"),
                PROBABILITY,
                drawn=True,
            ),
        ],
    )


def lens_at_page(found: "Lens", t: int, listed: int = LISTED) -> Page:
    """One token: the best readings of each layer, and the place of what really stands there."""
    piece, outcome = found.tokens.pieces[t], truncate(found.outcome.pieces[t], PIECE + 4)
    shown = min(listed, found.ids.shape[2])
    rows = []
    for n, layer in enumerate(found.layers):
        log_probs = found.log_probs[n, t, :shown].exp().tolist()
        best = [
            Tinted(f"{truncate(each, PIECE + 4)} {share(p)}", p)
            for each, p in zip(found.pieces[n][t], log_probs, strict=False)
        ]
        probability = float(found.outcome_log_probs[n, t].exp())
        rank = f"{int(found.outcome_ranks[n, t]):,}"
        rows.append((layer_name(layer), rank, Tinted(share(probability), probability), *best))
    columns = [
        left(say("after")),
        right(say("rank of {outcome}", outcome=outcome)),
        right(say("prob.")),
        left(say("most probable")),
        *(left(f"{place}.") for place in range(2, shown + 1)),
    ]
    return page(
        say("Token {t}, '{piece}': what each layer would say, were it the last", t=t, piece=piece),
        [Table(columns, rows, tint=PROBABILITY, keep=1), READ, _approximate(found)],
    )


def layer_name(passed: int) -> Phrase:
    """What was read after so many blocks."""
    if passed == 0:
        return say("embedding")
    return say("layer {passed}", passed=passed - 1)


def _cell(found: "Lens", n: int, t: int) -> Tinted:
    """The best reading, all of them in its hint."""
    probabilities = found.log_probs[n, t].exp().tolist()
    hint = "  ".join(
        f"{piece} {share(p)}" for piece, p in zip(found.pieces[n][t], probabilities, strict=True)
    )
    return Tinted(truncate(found.pieces[n][t][0], PIECE), probabilities[0], hint=hint)


def _outcome(found: "Lens") -> Phrase:
    return say("stands") if found.side == "encoder" else say("writes")


def _approximate(found: "Lens") -> Remark | None:
    if found.approximate is None:
        return None
    return Remark(say("Approximate: {approximate}.", approximate=found.approximate))
