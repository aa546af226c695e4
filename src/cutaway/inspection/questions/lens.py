"""What each layer would say, were it the last: the logit lens (nostalgebraist 2020)."""

# Shapes: N rows (states that are read), T tokens, K best ones, P pinned tokens, V vocabulary.

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cutaway.inspection.asked import stream_taps
from cutaway.inspection.options import Option
from cutaway.inspection.outcome import forced_tokens
from cutaway.inspection.page_parts import array
from cutaway.inspection.question import WORDS, question
from cutaway.inspection.runs import Run, Tokens, piece_of, position_in, stack_named, token_id
from cutaway.inspection.terms import PROBABILITY, SIDES, left, right
from cutaway.inspection.wiring import chosen, output_head
from cutaway.page.blocks import Heading, Matrix, Page, Table, Tinted, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import share
from cutaway.text.display import truncate
from cutaway.words import Phrase, say

PIECE = 8  # columns that a piece may take


@dataclass(frozen=True, repr=False)
class Lens(Drawn):
    """log softmax(head(norm(x))) of the residual stream x after each number of blocks, at each token
    (nostalgebraist 2020, "interpreting GPT: the logit lens").

    `norm` and `head` are the model's own: the stack's final norm, where it has one, and the output head with all that
    belongs to it. A row of `layers` tells after how many blocks x was read: 0 is the embedding, the last row are the
    logits of the model itself, to the bit. With norms before the sublayers (pre-norm, sandwich) a row is exactly what
    the model would say if every later block wrote nothing; no layer was trained to be read so, and its words are a
    reading, not a thought. `approximate` tells why where it is not even that. Log-probabilities are natural ones.
    """

    side: str  # the stack that is read: "decoder", or "encoder" of an encoder-only model
    tokens: Tokens  # what that stack reads, T of them
    outcome: Tokens  # what stands, or is written, at each position; in a gap what the model puts there
    layers: tuple[int, ...]  # blocks passed, one number a row
    ids: Tensor  # (N, T, K) int64, best first
    log_probs: Tensor  # (N, T, K) fp32
    pieces: tuple[tuple[tuple[str, ...], ...], ...]  # of `ids`, as a reader sees them
    outcome_log_probs: Tensor  # (N, T) fp32
    outcome_ranks: Tensor  # (N, T) int64; 1: no token has a higher logit
    pinned: Tokens  # P tokens that were asked for
    pinned_log_probs: Tensor  # (N, T, P) fp32
    pinned_ranks: Tensor  # (N, T, P) int64
    approximate: Phrase | None  # the reason, in a sentence; None: exact as defined above
    at: int | None  # the position that is asked about; None: all of them

    def page(self) -> Page:
        return _whole_text(self) if self.at is None else _one_token(self, self.at)


@question(say("What each layer would say, were it the last."), "layers", WORDS)
def lens(
    run: Run,
    *,
    at: Annotated[int | None, Option(say("One position in the text, from 0; -1 is the last."))] = None,
    top: Annotated[int, Option(say("Tokens that are kept of each reading."), at_least=1)] = 5,
    layers: Annotated[
        tuple[int, ...] | None,
        Option(say("Numbers of blocks passed, from 0, the embedding; -1: all blocks.")),
    ] = None,
    pinned: Annotated[tuple[int | str, ...], Option(say("Tokens whose rank is wanted whatever it is."))] = (),
) -> Lens:
    """Read the residual stream of the output stack through the model's own head.

    `pinned` are ids, pieces, or texts of one token. Logits of one row at a time are held, N·T·K numbers are kept.
    Raises CutawayError for a model without output head, a number out of range, or a token that is not one.
    """
    side, head = stack_named(run, None), output_head(run.model)
    position = None if at is None else position_in(side.tokens, at)
    wanted = [token_id(run, token) for token in pinned]
    rows = chosen(say("number of blocks passed"), layers, len(side.stack.layers) + 1)
    taps = stream_taps(side)
    names = [taps[row] for row in rows]
    final, trace = run.forward(names)
    forced = forced_tokens(run, final)
    asked = torch.tensor([[id, *wanted] for id in forced.ids], device=final.device)  # (T, 1 + P)
    readings: list[tuple[Tensor, ...]] = []
    for name in names:
        with torch.no_grad():
            logits = head(side.stack.norm(trace[name]))[0].float()  # (T, V)
        scores = logits.log_softmax(dim=-1)
        best = scores.topk(min(top, scores.shape[-1]), dim=-1)
        readings.append((best.indices, best.values, scores.gather(1, asked), _ranks(logits, asked)))
    ids, log_probs, asked_log_probs, ranks = (torch.stack(each).cpu() for each in zip(*readings, strict=True))
    spelled = {id: piece_of(run, id) for id in ids.unique().tolist()}
    return Lens(
        side=side.name,
        tokens=side.tokens,
        outcome=Tokens(forced.ids, [piece_of(run, id) for id in forced.ids]),
        layers=rows,
        ids=ids,
        log_probs=log_probs,
        pieces=tuple(tuple(tuple(spelled[id] for id in cell) for cell in row) for row in ids.tolist()),
        outcome_log_probs=asked_log_probs[..., 0],
        outcome_ranks=ranks[..., 0],
        pinned=Tokens(wanted, [piece_of(run, id) for id in wanted]),
        pinned_log_probs=asked_log_probs[..., 1:],
        pinned_ranks=ranks[..., 1:],
        approximate=_reason(run),
        at=position,
    )


def _ranks(logits: Tensor, ids: Tensor) -> Tensor:
    """logits (T, V), ids (T, P) -> (T, P): one more than the number of higher logits."""
    ranks = torch.ones_like(ids)
    for p in range(ids.shape[1]):
        ranks[:, p] += (logits > logits.gather(1, ids[:, p : p + 1])).sum(dim=1)
    return ranks


def _reason(run: Run) -> Phrase | None:
    if run.model.config.norm_order != "post":
        return None
    final = say("there is no final norm")
    if run.model.config.has_final_norm:
        final = say("a final norm follows the last block only")
    return say(
        "post-norm: each block has normalised its own result already and {final}, so an earlier row is read "
        "without the norms of the blocks left out, which would change it even if those blocks wrote nothing",
        final=final,
    )


# Its page.

READ = say(
    "Read by the model's own last norm and output matrix; no layer but the last was trained to be read so: a "
    "reading, not a thought. The reading after the last layer is what the model says."
)


def _whole_text(found: Lens) -> Page:
    """Tokens down, layers across, each with its best reading in the colour of its probability."""
    outcome = say("stands") if found.side == "encoder" else say("writes")
    rows = [
        (
            truncate(read, PIECE),
            *(_cell(found, n, t) for n in range(len(found.layers))),
            truncate(stands, PIECE),
        )
        for t, (read, stands) in enumerate(zip(found.tokens.pieces, found.outcome.pieces, strict=True))
    ]
    titles = [layer_name(layer) for layer in found.layers]
    probabilities, after = array(found.outcome_log_probs.exp().T), say("read after")
    return page(
        say("What each layer of the {which} would say, were it the last", which=SIDES[found.side]),
        [
            Table([left(say("reads")), *map(left, titles), left(outcome)], rows, tint=PROBABILITY, keep=1),
            READ,
            _approximate(found),
            say("All readings at one token: give its position, from 0, as `at`."),
            Heading(say("How probable each layer would make what stands there in the end")),
            Matrix(probabilities, found.outcome.pieces, titles, outcome, after, PROBABILITY, drawn=True),
        ],
    )


def _one_token(found: Lens, t: int) -> Page:
    """One token: the best readings of each layer, and the place of what really stands there."""
    outcome = truncate(found.outcome.pieces[t], PIECE + 4)
    rows = []
    for n, layer in enumerate(found.layers):
        readings = zip(found.pieces[n][t], found.log_probs[n, t].exp().tolist(), strict=True)
        best = [Tinted(f"{truncate(each, PIECE + 4)} {share(p)}", p) for each, p in readings]
        probability = float(found.outcome_log_probs[n, t].exp())
        rank = f"{int(found.outcome_ranks[n, t]):,}"
        rows.append((layer_name(layer), rank, Tinted(share(probability), probability), *best))
    columns = [
        left(say("after")),
        right(say("rank of {outcome}", outcome=outcome)),
        right(say("prob.")),
        left(say("most probable")),
        *(left(f"{place}.") for place in range(2, found.ids.shape[2] + 1)),
    ]
    piece = found.tokens.pieces[t]
    return page(
        say("Token {t}, '{piece}': what each layer would say, were it the last", t=t, piece=piece),
        [Table(columns, rows, tint=PROBABILITY, keep=1), READ, _approximate(found)],
    )


def layer_name(passed: int) -> Phrase:
    """What was read after so many blocks."""
    return say("embedding") if passed == 0 else say("layer {passed}", passed=passed - 1)


def _cell(found: Lens, n: int, t: int) -> Tinted:
    """The best reading, all of them in its hint."""
    pieces, probabilities = found.pieces[n][t], found.log_probs[n, t].exp().tolist()
    hint = "  ".join(f"{piece} {share(p)}" for piece, p in zip(pieces, probabilities, strict=True))
    return Tinted(truncate(pieces[0], PIECE), probabilities[0], hint=hint)


def _approximate(found: Lens) -> Phrase | None:
    reason = found.approximate
    return None if reason is None else say("Approximate: {approximate}.", approximate=reason)
