"""Which tokens a run's output is judged by, how probable they are (forced decoding), and which are never written."""

# Shapes: R rows, T tokens, n counted tokens, D width, V vocabulary.

from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.decode.parts import unwanted_ids
from cutaway.inspection.runs.run import Run
from cutaway.models.build import Model
from cutaway.models.encoder_only import EncoderOnly

_ROWS = 256  # positions whose logits are held at a time


@dataclass(frozen=True)
class Forced:
    """The tokens (T,) that the logits' positions should name, and which positions count.

    Where a model writes, the run's outcome, and every position counts. An encoder-only model is judged by the tokens
    that it puts in the place of `[MASK]`, its most probable ones; where nothing is masked, by the text itself.
    """

    ids: list[int]
    positions: list[int]


def forced_tokens(run: Run, logits: Tensor) -> Forced:
    """`logits` (T, V) are those of the unchanged run."""
    ids = list(run.outcome.ids)
    if not isinstance(run.model, EncoderOnly):
        return Forced(ids, list(range(len(ids))))
    masked = masked_positions(run)
    for position in masked:
        ids[position] = int(logits[position].argmax())
    return Forced(ids, masked or list(range(len(ids))))


def masked_positions(run: Run) -> list[int]:
    """Where an encoder-only model's text has its mask token."""
    tokenizer = run.loaded.tokenizer
    mask_id = run.model.config.mask_id
    if mask_id is None and tokenizer is not None:
        mask_id = tokenizer.role("mask")
    return [position for position, id in enumerate(run.outcome.ids) if id == mask_id]


def never_written(run: Run) -> list[int]:
    """`decode.parts.unwanted_ids` of a run."""
    return unwanted_ids(run.loaded, run.loaded.require_tokenizer())


def log_probs_of(model: Model, hidden: Tensor, forced: Forced) -> Tensor:
    """hidden (R, T, D), the stack's result -> (R, n) natural logarithms of the counted tokens' probabilities, without
    holding more than a few rows' logits."""
    states = hidden[:, forced.positions].flatten(0, 1)  # (R·n, D)
    ids = torch.tensor([forced.ids[position] for position in forced.positions], device=hidden.device)
    ids = ids.repeat(len(hidden))
    found: list[Tensor] = []
    for first in range(0, len(states), _ROWS):
        chunk = slice(first, first + _ROWS)
        logits = model.head(states[chunk][None])[0].float()  # (r, V)
        chosen = logits.gather(1, ids[chunk, None])[:, 0]
        found.append(chosen - logits.logsumexp(dim=-1))
    return torch.cat(found).view(len(hidden), -1)
