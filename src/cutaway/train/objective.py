"""What is learned from a batch: the next token (of a target, of a text) or the tokens that were masked."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.models.build import Model
from cutaway.nn.head import Head
from cutaway.text.batches.batch import Batch
from cutaway.train.loss import IGNORED, cross_entropy

ObjectiveName = Literal["seq2seq", "causal", "masked"]
# (model, batch, seed) -> sum of losses over counted tokens, and their number
Objective = Callable[[Model, Batch, int], tuple[Tensor, int]]


def next_token(smoothing: float = 0.0, hidden: Callable[..., Tensor] | None = None) -> Objective:
    """Teacher forcing: every label is predicted from the true tokens before it. Serves seq2seq and causal."""

    def objective(model: Model, batch: Batch, seed: int) -> tuple[Tensor, int]:
        states = (hidden or model.hidden)(**batch.inputs)  # (B, T, D)
        return vocabulary_loss(model, states, batch.labels, smoothing)

    return objective


def masked(
    mask_id: int,
    vocab_size: int,
    special: tuple[int, ...],
    smoothing: float = 0.0,
    rate: float = 0.15,
    hidden: Callable[..., Tensor] | None = None,
) -> Objective:
    """BERT's masked language model (Devlin et al. 2019, §3.1): `rate` of the tokens are predicted; of those 80 %
    are replaced by the mask, 10 % by a random token, 10 % left. The choice depends on `seed` alone."""

    def objective(model: Model, batch: Batch, seed: int) -> tuple[Tensor, int]:
        ids, labels = mask_tokens(batch, mask_id, vocab_size, special, rate, seed)
        states = (hidden or model.hidden)(**{**batch.inputs, "ids": ids})
        return vocabulary_loss(model, states, labels, smoothing)

    return objective


def mask_tokens(
    batch: Batch, mask_id: int, vocab_size: int, special: tuple[int, ...], rate: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Masked ids and labels (B, T) for a batch; labels are IGNORED where nothing is predicted. At least one token
    is chosen where there is one to choose."""
    ids = batch.inputs["ids"]
    draws = torch.Generator().manual_seed(seed)
    free = batch.labels != IGNORED
    if "mask" in batch.inputs:
        free = free & batch.inputs["mask"]
    free = free & ~torch.isin(ids, torch.tensor(special, dtype=ids.dtype, device=ids.device))
    score = torch.rand(ids.shape, generator=draws).to(ids.device).masked_fill(~free, 2.0)
    chosen = (score < rate) | (free & (score == score.min()))
    action = torch.rand(ids.shape, generator=draws).to(ids.device)
    random = torch.randint(vocab_size, ids.shape, generator=draws).to(ids.device)
    replaced = torch.where(
        action < 0.8, torch.full_like(ids, mask_id), torch.where(action < 0.9, random, ids)
    )
    return torch.where(chosen, replaced, ids), torch.where(chosen, ids, torch.full_like(ids, IGNORED))


def vocabulary_loss(model: Model, states: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, int]:
    """Cross-entropy of the model's head over the counted positions only. states (B, T, D), labels (B, T)."""
    head = model.head
    if not isinstance(head, Head):
        raise CutawayError(
            'this model has no output head (head = "none"), so it cannot learn to predict words'
        )
    counted = labels != IGNORED
    if not bool(counted.all()):
        states, labels = states[counted], labels[counted]
    if head.softcap is not None:  # capped logits are no plain product, so they are computed whole
        logits = head(states).flatten(0, -2).float()
        total = F.cross_entropy(logits, labels.flatten(), reduction="sum", label_smoothing=smoothing)
        return total.double(), labels.numel()
    unembed = head.unembed
    return cross_entropy(
        head.transform(states), unembed.weight, unembed.bias, labels, smoothing=smoothing, scale=head.scale
    )
