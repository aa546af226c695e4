"""What is learned from a batch: the next token (of a target, of a text) or the tokens that were masked.

Half of a small model's training step, and nearly all of its memory, is the linear layer and the softmax over the
vocabulary. `cross_entropy` runs them over chunks of rows, so that N·V floats are never held: each chunk's gradient is
formed while its logits are still in the cache, and rows that are not counted (padding) are dropped before the product.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from cutaway.errors import CutawayError
from cutaway.models.build import Model
from cutaway.nn.head import Head
from cutaway.nn.moe import MoE
from cutaway.tap import Trace
from cutaway.text.batches.batch import IGNORED, Batch

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


def balanced(objective: Objective, model: Model) -> Objective:
    """`objective` plus, where `model` has experts, the loss that keeps them equally busy."""
    config = model.config
    if not config.router_aux_coef or not any(isinstance(module, MoE) for module in model.modules()):
        return objective

    def with_balance(model: Model, batch: Batch, seed: int) -> tuple[Tensor, int]:
        with Trace(model, watch=["*.router"]) as trace:
            loss, count = objective(model, batch, seed)
        # of the tokens that are no padding: in the source, and wherever else there are experts
        source, real = batch.inputs.get("source_mask"), batch.inputs.get("mask", batch.labels != IGNORED)
        routers: list[Tensor] = []
        for name, (logits,) in trace.calls.items():
            in_source = config.family == "encoder-decoder" and name.startswith("encoder.")
            mask = source if in_source else real
            routers.append(logits if mask is None else logits[mask])
        extra = balancing_loss(routers, config.n_experts_per_token)
        return loss + config.router_aux_coef * count * extra, count

    return with_balance


def balancing_loss(routers: Sequence[Tensor], n_per_token: int) -> Tensor:
    """X · Σ over the experts of the part of the tokens that chose one, times its mean probability, over the layers
    together: least, n_per_token, when all are equally busy (Fedus et al. 2022, §2.2, equations 4 to 6; as transformers
    counts it for Mixtral). routers: scores (…, X) of each layer, of real tokens."""
    scores = torch.cat([logits.flatten(0, -2) for logits in routers])
    probabilities = scores.float().softmax(dim=-1)  # (N, X)
    n_experts = probabilities.shape[-1]
    chosen = probabilities.topk(n_per_token, dim=-1).indices
    busy = torch.bincount(chosen.flatten(), minlength=n_experts) / len(probabilities)
    return n_experts * (busy * probabilities.mean(0)).sum()


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
    # capped logits are no plain product, so they are computed whole
    if head.softcap is not None:
        logits = head(states).flatten(0, -2).float()
        total = F.cross_entropy(logits, labels.flatten(), reduction="sum", label_smoothing=smoothing)
        return total.double(), labels.numel()
    weight, bias, x = head.unembed.weight, head.unembed.bias, head.transform(states)
    return cross_entropy(x, weight, bias, labels, smoothing=smoothing, scale=head.scale)


# 256 was fastest of 128 … 2400 on two CPU cores (2,400 rows, D 256, V 8,000, bf16: 145 ms against 305 ms for
# linear + cross_entropy and 200 ms for one chunk); an accelerator wants larger products.
CPU_ROWS, ACCELERATOR_ROWS = 256, 2048


class _LinearCrossEntropy(torch.autograd.Function):
    """The sum of losses; the gradients are formed in the forward pass and only scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        hidden: Tensor,  # (N, D)
        weight: Tensor,  # (V, D)
        bias: Tensor | None,  # (V,)
        # (N,) int64, none ignored
        labels: Tensor,
        smoothing: float,
        rows: int,
        dtype: torch.dtype,
    ) -> Tensor:
        wanted: tuple[bool, ...] = getattr(ctx, "needs_input_grad")
        d_hidden = torch.empty_like(hidden) if wanted[0] else None
        d_weight = torch.zeros_like(weight) if wanted[1] else None
        d_bias = torch.zeros_like(bias) if bias is not None and wanted[2] else None
        x, w, b = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        n_words = weight.shape[0]
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        for start in range(0, x.shape[0], rows):
            x_rows, y = x[start : start + rows], labels[start : start + rows, None]
            log_p = torch.log_softmax(F.linear(x_rows, w, b), 1, dtype=torch.float32)  # (rows, V)
            total -= (1 - smoothing) * log_p.gather(1, y).sum(dtype=torch.float64)
            if smoothing:
                total -= smoothing / n_words * log_p.sum().double()
            if not any(wanted):
                continue
            # d loss / d logits = softmax - smoothed target
            gradient = log_p.exp_()
            if smoothing:
                gradient.sub_(smoothing / n_words)
            gradient.scatter_add_(1, y, gradient.new_full(y.shape, smoothing - 1))
            if d_bias is not None:
                d_bias += gradient.sum(0)
            g = gradient.to(dtype)
            if d_hidden is not None:
                d_hidden[start : start + rows] = g @ w
            if d_weight is not None:
                d_weight += g.t() @ x_rows
        setattr(ctx, "gradients", (d_hidden, d_weight, d_bias))
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        gradients: tuple[Tensor | None, ...] = getattr(ctx, "gradients")
        scale = grad_outputs[0]
        return (*(None if d is None else d * scale.to(d.dtype) for d in gradients), None, None, None, None)


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    smoothing: float = 0.0,
    scale: float = 1.0,
    rows: int | None = None,
) -> tuple[Tensor, int]:
    """Sum over counted positions of the label-smoothed cross-entropy of `scale · (hidden · weightᵀ + bias)`.

    hidden (…, D), weight (V, D), bias (V,) or None, labels (…) with IGNORED where not counted. Returns the sum
    (a float64 scalar that backpropagates into hidden, weight and bias) and the number of counted positions; with
    none counted the sum is 0. The smoothed target is (1 - smoothing) on the label plus smoothing / V on every
    word (Szegedy et al. 2016, §7; Vaswani et al. 2017, §5.4). Under autocast the products are in its dtype, the
    softmax in fp32.
    """
    labels = labels.reshape(-1)
    hidden = hidden.reshape(-1, hidden.shape[-1])
    counted = (labels != IGNORED).nonzero().squeeze(1)  # (N,)
    if counted.numel() < labels.numel():
        hidden, labels = hidden.index_select(0, counted), labels.index_select(0, counted)
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    if scale != 1.0:
        hidden, bias = hidden * scale, None if bias is None else bias * scale
    if rows is None:
        rows = CPU_ROWS if device == "cpu" else ACCELERATOR_ROWS
    if not torch.is_grad_enabled():
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    with torch.autocast(device, enabled=False):
        total = _LinearCrossEntropy.apply(hidden, weight, bias, labels, smoothing, rows, dtype)
    assert isinstance(total, Tensor)
    return total, counted.numel()
