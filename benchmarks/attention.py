"""The explicit product against torch's fused kernel, by length: what `nn.attention` chooses by.

Training counts forward and backward pass, about 2,400 tokens a call, causal; decoding one query against a cache,
in a batch with padding masked.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import Effort, Row, take_turns
from benchmarks.training import BF16
from cutaway.nn.attention import softmax_over_keys
from cutaway.nn.bias import causal_bias, key_bias

TOKENS = 2400
NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32"}
CPU = torch.device("cpu")
Product = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def explicit(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    scaled = (q @ k.mT) * q.shape[-1] ** -0.5
    return softmax_over_keys(scaled if bias is None else scaled + bias).to(v.dtype) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=None if bias is None else bias.to(q.dtype))


def measure(effort: Effort) -> list[Row]:
    kinds = (torch.bfloat16, torch.float32) if BF16 else (torch.float32,)
    rows = [
        _row(effort, f"training in {NAMES[kind]}, {length} tokens", _training, (length, kind))
        for kind in kinds
        for length in effort.lengths
    ]
    for batch in (1, 32):
        for length in effort.lengths:
            if length <= 128:
                case = f"decoding, batch {batch}, {length} keys"
                rows.append(_row(effort, case, _decoding, (batch, length)))
    return rows


def _row(
    effort: Effort, case: str, make: Callable[..., Callable[[], object]], sizes: tuple[object, ...]
) -> Row:
    works = [make(effort, product, *sizes) for product in (explicit, fused)]
    ours, theirs = take_turns(works, effort, repeat=3 if make is _training else 30)
    return Row(
        part="attention", case=case, unit="ms", ours=1e3 * ours, peer="the fused kernel", theirs=1e3 * theirs,
        ratio=theirs / ours,
    )  # fmt: skip


def _training(effort: Effort, product: Product, length: int, kind: torch.dtype) -> Callable[[], object]:
    batch = max(1, TOKENS // length)
    xs = [torch.randn(batch, length, effort.d_model, dtype=kind, requires_grad=True) for _ in range(3)]
    gradient = torch.randn(batch, length, effort.d_model, dtype=kind)
    bias = causal_bias(length, length, torch.float32, CPU)

    def work() -> None:
        q, k, v = (x.unflatten(-1, (effort.n_heads, -1)).transpose(1, 2) for x in xs)
        product(q, k, v, bias).transpose(1, 2).flatten(2).backward(gradient)

    return work


def _decoding(effort: Effort, product: Product, batch: int, length: int) -> Callable[[], object]:
    heads, width = effort.n_heads, effort.d_model // effort.n_heads
    q = torch.randn(batch, heads, 1, width)
    k, v = (torch.randn(batch, heads, 2 * length, width)[:, :, :length] for _ in range(2))
    bias = None if batch == 1 else key_bias(torch.rand(batch, length) < 0.8, torch.float32)

    @torch.inference_mode()
    def work() -> Tensor:
        return product(q, k, v, bias)

    return work
