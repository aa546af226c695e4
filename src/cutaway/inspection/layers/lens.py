"""What each layer would say, were it the last: the logit lens (nostalgebraist 2020)."""

# Shapes: N rows (states that are read), T tokens, K best ones, P pinned tokens, V vocabulary.

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.pages.lens import lens_page
from cutaway.inspection.runs.forced import forced_tokens
from cutaway.inspection.runs.run import Run, Tokens
from cutaway.inspection.runs.selection import at_least_one, layer_number, piece_of, word_ids
from cutaway.inspection.runs.stacks import output_head, stack_named
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.words import Phrase, say


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

    def page(self) -> Page:
        return lens_page(self)


def lens(
    run: Run,
    *,
    top: int = 5,
    pinned: Sequence[int | str] = (),
    layers: Sequence[int] | None = None,
) -> Lens:
    """Read the residual stream of the decoder, or of an encoder-only model, through the model's own head.

    `top` is how many tokens are kept of each reading, `pinned` are tokens (ids, pieces, or texts of one token) whose
    place is wanted whatever it is. `layers` are the numbers of blocks passed, 0 to L, -1 for all L; None: each of
    them. Logits of one row at a time are held, N·T·K numbers are kept.
    Raises CutawayError for a model without output head, a number out of range, or a token that is not one.
    """
    side, head = stack_named(run, None), output_head(run)
    at_least_one(top=top)
    if layers is not None and not layers:
        raise CutawayError("layers is empty, expected numbers of blocks passed, or None for all of them")
    if isinstance(pinned, str):
        raise CutawayError("pinned is {pinned!r}, expected a list of tokens: [{pinned!r}]", pinned=pinned)
    chosen = word_ids(run, pinned)
    depth = len(side.stack.layers)
    wanted = range(depth + 1) if layers is None else layers
    rows = tuple(layer_number(depth + 1, layer, "the lens") for layer in wanted)
    names = {row: _tap(side.name, row) for row in rows}
    final, trace = run.forward(list(dict.fromkeys(names.values())))
    forced = forced_tokens(run, final)
    targets = torch.tensor(forced.ids)
    ids, log_probs, outcomes, outcome_ranks, pins, pin_ranks = [], [], [], [], [], []
    for row in rows:
        with torch.no_grad():
            logits = head(side.stack.norm(trace[names[row]]))[0].float()  # (T, V)
        scores = logits.log_softmax(dim=-1)
        best = scores.topk(min(top, scores.shape[-1]), dim=-1)
        ids.append(best.indices.cpu())
        log_probs.append(best.values.cpu())
        at = targets.to(logits.device)[:, None]
        outcomes.append(scores.gather(1, at)[:, 0].cpu())
        outcome_ranks.append(_ranks(logits, at)[:, 0].cpu())
        pin = torch.tensor(chosen, dtype=torch.long, device=logits.device).expand(len(logits), -1)
        pins.append(scores.gather(1, pin).cpu())
        pin_ranks.append(_ranks(logits, pin).cpu())
    found = torch.stack(ids)
    spelled = {id: piece_of(run, id) for id in found.unique().tolist()}
    return Lens(
        side=side.name,
        tokens=side.tokens,
        outcome=Tokens(forced.ids, [piece_of(run, id) for id in forced.ids]),
        layers=rows,
        ids=found,
        log_probs=torch.stack(log_probs),
        pieces=tuple(tuple(tuple(spelled[id] for id in cell) for cell in row) for row in found.tolist()),
        outcome_log_probs=torch.stack(outcomes),
        outcome_ranks=torch.stack(outcome_ranks),
        pinned=Tokens(list(chosen), [piece_of(run, id) for id in chosen]),
        pinned_log_probs=torch.stack(pins),
        pinned_ranks=torch.stack(pin_ranks),
        approximate=_reason(run),
    )


def _tap(side: str, passed: int) -> str:
    """The tap of the residual stream after so many blocks."""
    return f"{side}.layers.0.resid_pre" if passed == 0 else f"{side}.layers.{passed - 1}.resid_post"


def _ranks(logits: Tensor, ids: Tensor) -> Tensor:
    """logits (T, V), ids (T, P) -> (T, P): one more than the number of higher logits."""
    ranks = torch.ones_like(ids)
    for p in range(ids.shape[1]):
        ranks[:, p] += (logits > logits.gather(1, ids[:, p : p + 1])).sum(dim=1)
    return ranks


def _reason(run: Run) -> Phrase | None:
    config = run.model.config
    if config.norm_order != "post":
        return None
    final = say("there is no final norm")
    if config.has_final_norm:
        final = say("a final norm follows the last block only")
    return say(
        "post-norm: each block has normalised its own result already and {final}, so an "
        "earlier row is read without the norms of the blocks left out, which would change it "
        "even if those blocks wrote nothing",
        final=final,
    )
