"""Linear layers that read half the memory at inference: the same modules and the same arithmetic, faster."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ROWS = 256  # with more, reading the weights is no longer what a product waits for
_SAMPLE = 4096  # values that tell whether a weight may be a 16-bit float throughout


class HalfStoredLinear(nn.Linear):
    """y = x Wᵀ + b with a second copy of W, stored in 16 bits, for inference on a CPU.

    Decoding waits for weights to come from memory. Where every weight is a 16-bit float exactly, as in a model that was
    saved in that type, the copy is read instead: products and sums stay in fp32, only the order of sums changes. The
    copy is for steps of one token a row, without gradients: what reads a whole text reads each weight once and need not
    wait for a copy, and gives to the bit what the plain layer gives. It is made at the first such step, and anew when
    the weight has changed since.
    """

    def __init__(self, linear: nn.Linear):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._copy: torch.ScriptObject | None = None  # None too where 16 bits cannot hold the weights
        self._copied_from: tuple[int, int] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        step = input.dim() < 3 or input.shape[-2] == 1
        few = input.numel() <= _ROWS * self.in_features
        if step and few and input.dtype == torch.float32 and not torch.is_grad_enabled():
            copy = self._stored()
            if copy is not None:
                return _operator("linear_dynamic_fp16")(input, copy)
        return F.linear(input, self.weight, self.bias)

    def _stored(self) -> "torch.ScriptObject | None":
        version = (self.weight.data_ptr(), getattr(self.weight, "_version"))
        if version != self._copied_from:
            weight = self.weight.detach()
            bias = None if self.bias is None else self.bias.detach()
            self._copy = _operator("linear_prepack_fp16")(weight, bias) if fits_16_bits(weight) else None
            self._copied_from = version
        return self._copy


def fits_16_bits(weight: Tensor) -> bool:
    """Whether every value is a 16-bit float exactly."""
    return weight.dtype == torch.float32 and torch.equal(weight.half().float(), weight)


def store_in_half(model: nn.Module) -> None:
    """Give the linear layers of a model on the CPU whose weights 16 bits seem to hold exactly, by a sample of them, a
    `HalfStoredLinear`, in place; it looks at all when it makes its copy. Names, parameters and taps stay as they are.
    Does nothing where this build of PyTorch lacks the kernels."""
    if torch.backends.quantized.engine not in ("x86", "fbgemm"):
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is not nn.Linear or child.weight.device.type != "cpu":
                continue
            if fits_16_bits(child.weight.detach().flatten()[:_SAMPLE]):
                setattr(module, name, HalfStoredLinear(child))


def _operator(name: str) -> Callable[..., Any]:
    return getattr(torch.ops.quantized, name)
