"""y = x Wᵀ + b: the linear layer of every model, which reads half the memory while it decodes."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ROWS = 256  # with more, reading the weights is no longer what a product waits for
_ENGINES = ("x86", "fbgemm")  # builds of PyTorch whose kernels work
_PREPARE, _MULTIPLY = "linear_prepack_fp16", "linear_dynamic_fp16"  # among torch.ops.quantized
_SAMPLE = 4096  # values that tell most weights apart from 16-bit floats


class Linear(nn.Linear):
    """y = x Wᵀ + b (..., in) -> (..., out).

    Decoding on a CPU waits for weights to come from memory. Where every weight is a 16-bit float exactly, as in a model
    that was saved in that type, a step reads a second copy of them in 16 bits instead: products and sums stay in fp32,
    only the order of sums changes. A step is one token a row, (B, 1, in) in fp32 without gradients, whoever takes it;
    what reads a whole text reads each weight once, and takes the plain product. The copy is made at the first step,
    and anew when the weight or the bias has changed since. Where PyTorch was built without such products, every step is
    the plain one.
    """

    _copy: torch.ScriptObject | None = None  # None too where 16 bits cannot hold the weights
    _copied_from: list[tuple[int, int]] | None = None

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or not _is_step(input):
            return F.linear(input, self.weight, self.bias)
        copy = self._in_16_bits()
        if copy is None:
            return F.linear(input, self.weight, self.bias)
        return _operator(_MULTIPLY)(input, copy)

    def _in_16_bits(self) -> torch.ScriptObject | None:
        weight, bias = self.weight, self.bias
        # Such tensors do not tell whether they have changed.
        if weight.is_inference():
            return None
        parts = [weight] if bias is None else [weight, bias]
        state = [(part.data_ptr(), getattr(part, "_version")) for part in parts]
        if state != self._copied_from:
            kept = multiplies_16_bits() and fits_16_bits(weight)
            bias = None if bias is None else bias.detach()
            self._copy = _operator(_PREPARE)(weight.detach(), bias) if kept else None
            self._copied_from = state
        return self._copy


@cache
def multiplies_16_bits() -> bool:
    """Whether this build of PyTorch has the two operators, and works with them: those for ARM have others."""
    here = all(hasattr(torch.ops.quantized, name) for name in (_PREPARE, _MULTIPLY))
    return here and torch.backends.quantized.engine in _ENGINES


def fits_16_bits(weight: Tensor) -> bool:
    """Whether every value is a 16-bit float exactly, in fp32 on the CPU."""
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return False
    sample = weight.detach().flatten()[:_SAMPLE]
    return torch.equal(sample.half().float(), sample) and torch.equal(weight.half().float(), weight)


def _is_step(input: Tensor) -> bool:
    one_token = input.dim() == 3 and input.shape[1] == 1
    return one_token and input.shape[0] <= _ROWS and input.dtype == torch.float32


def _operator(name: str) -> Callable[..., Any]:
    return getattr(torch.ops.quantized, name)
