"""Cross-entropy of a vocabulary layer, without ever holding N·V floats.

The linear layer and the softmax over the vocabulary are half of a small model's training step and nearly all of
its memory. Here they run over chunks of rows, each chunk's gradient is formed while its logits are still in the
cache, and rows that are not counted (padding) are dropped before the product.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

IGNORED = -100  # the label of a position that is not counted, as in torch's cross_entropy

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
        labels: Tensor,  # (N,) int64, none ignored
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
