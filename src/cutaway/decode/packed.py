"""Linear layers whose weights lie in memory as the processor's matrix kernels want them: the same modules, faster."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.errors import CutawayError

M = TypeVar("M", bound=nn.Module)

_MANY_ROWS = 8  # fewer than this, and fp32 weights are read faster as they are


class PackedLinear(nn.Linear):
    """y = x Wᵀ + b with a second copy of W, packed by oneDNN for inference on a CPU.

    The copy is used without gradients only, and made anew when the weight has changed since. In bfloat16 weight and
    input are rounded to 8 bits of mantissa and sums are kept in fp32: half of the memory is read, which is what a
    small batch waits for.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._dtype = dtype
        self._packed: tuple[Tensor, Tensor | None] | None = None
        self._packed_from: tuple[int, int] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) -> (..., out), in the input's type."""
        rows = input.numel() // self.in_features
        exact = self._dtype == torch.float32
        if torch.is_grad_enabled() or input.device.type != "cpu" or (exact and rows < _MANY_ROWS):
            return F.linear(input, self.weight, self.bias)
        weight, bias = self._pack()
        rounded = input.to(self._dtype)
        return _operator("_linear_pointwise")(rounded, weight, bias, "none", [], "").to(input.dtype)

    def _pack(self) -> tuple[Tensor, Tensor | None]:
        version = (self.weight.data_ptr(), getattr(self.weight, "_version"))
        if self._packed is None or version != self._packed_from:
            weight = self.weight.detach().to(self._dtype)
            bias = None if self.bias is None else self.bias.detach().to(self._dtype)
            self._packed = _operator("_reorder_linear_weight")(weight, 32), bias
            self._packed_from = version
        return self._packed


def pack(model: M, dtype: torch.dtype = torch.float32) -> M:
    """Give every linear layer of `model`, in place, a packed copy of its weights; returns the model.

    float32 changes nothing but the order of sums. bfloat16 rounds, and is refused where the processor lacks it.
    Names, parameters and taps stay as they are.
    """
    if dtype not in (torch.float32, torch.bfloat16):
        raise CutawayError(f"weights cannot be packed as {dtype}, only as float32 or bfloat16")
    if not torch.backends.mkldnn.is_available():
        raise CutawayError("this build of PyTorch lacks oneDNN, which packs weights")
    if dtype == torch.bfloat16 and not has_bfloat16():
        raise CutawayError("this processor has no bfloat16 arithmetic; pack the weights as float32")
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear) and not isinstance(child, PackedLinear):
                setattr(module, name, PackedLinear(child, dtype))
    return model


def has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16 in hardware."""
    return torch.backends.mkldnn.is_available() and _operator("_is_mkldnn_bf16_supported")()


def _operator(name: str) -> Callable[..., Any]:
    """One of the oneDNN operators that PyTorch's own compiler emits; they have no public names."""
    return getattr(torch.ops.mkldnn, name)
