"""Numbers that carry a bound on what the model's floating-point arithmetic may have made of them."""

import math

import torch
from torch import Tensor

# PyTorch's vectorised exponential, which its softmax takes on a CPU, is within 20 units in the last place of fp32; its
# other functions are nearer. Functions of 16-bit numbers are computed in fp32 and rounded once.
FUNCTION_ULPS, HALF_FUNCTION_ULPS = 20, 1


def growth(n: int) -> float:
    """How many units of roundoff a sum of n terms may lose; see `Rounded`."""
    return min(n - 1, 6 * math.sqrt(n))


class Rounded:
    """A value recomputed in float64, and a bound on its distance from what a coarser arithmetic gets.

    Each operation adds what its own rounding may do to what the errors of its operands may do (running error analysis:
    Higham 2002, *Accuracy and Stability of Numerical Algorithms*, §3.3): fl(x ∘ y) = (x ∘ y)(1 + δ) with |δ| <= u, the
    unit roundoff (§2.2). A sum of n terms, in whatever order, is off by growth(n) · u · Σ|x_i| at most, with growth(n)
    the smaller of n - 1, which holds always (§4.2), and 6√n, which holds where single roundings are independent and as
    often up as down, but for a chance below 2n · exp(-18) (Higham & Mary 2019, *A New Approach to Probabilistic
    Rounding Error Analysis*, Theorem 3.1). Beside it stands the smallest normal number, below which
    results may become zero.
    """

    def __init__(self, value: Tensor, error: Tensor | float, dtype: torch.dtype):
        """value: float64; `dtype` is the type that the model computes in."""
        self.value, self.dtype = value, dtype
        kind = torch.finfo(dtype)
        # float64 rounds too, which counts beside itself.
        self.unit, self.tiny = kind.eps / 2 + 2.0**-53, kind.tiny
        self._ulps = FUNCTION_ULPS if kind.bits > 16 else HALF_FUNCTION_ULPS
        # An infinity is exact.
        bound = torch.as_tensor(error, dtype=torch.float64).expand(value.shape)
        self.error = torch.where(value.isinf(), 0.0, bound)

    def _with(self, value: Tensor, error: Tensor, ulps: float = 0.5) -> "Rounded":
        return Rounded(value, error + 2 * ulps * self.unit * value.abs() + self.tiny, self.dtype)

    def _other(self, other: "Rounded | float") -> "Rounded":
        if isinstance(other, Rounded):
            return other
        constant = torch.tensor(float(other), dtype=torch.float64)
        return Rounded(constant, self.unit * constant.abs(), self.dtype)

    def __getitem__(self, index: int | slice | Tensor) -> "Rounded":
        return Rounded(self.value[index], self.error[index], self.dtype)

    def flatten(self) -> "Rounded":
        return Rounded(self.value.flatten(), self.error.flatten(), self.dtype)

    def __neg__(self) -> "Rounded":
        return Rounded(-self.value, self.error, self.dtype)

    def __add__(self, other: "Rounded | float") -> "Rounded":
        b = self._other(other)
        return self._with(self.value + b.value, self.error + b.error)

    def __sub__(self, other: "Rounded | float") -> "Rounded":
        return self + -self._other(other)

    def __mul__(self, other: "Rounded | float") -> "Rounded":
        b = self._other(other)
        error = self.value.abs() * b.error + b.value.abs() * self.error + self.error * b.error
        return self._with(self.value * b.value, error)

    def __truediv__(self, other: "Rounded | float") -> "Rounded":
        b = self._other(other)
        quotient = self.value / b.value
        return self._with(quotient, (self.error + quotient.abs() * b.error) / (b.value.abs() - b.error))

    def sum(self) -> "Rounded":
        """Of all elements, in whatever order."""
        size, terms = (self.value.abs() + self.error).sum(), self.value.numel()
        error = self.error.sum() + growth(terms) * self.unit * size + self.tiny
        return Rounded(self.value.sum(), error, self.dtype)

    def mean(self) -> "Rounded":
        return self.sum() / self.value.numel()

    def dot(self, other: "Rounded") -> "Rounded":
        return (self * other).sum()

    def max(self) -> "Rounded":
        return Rounded(self.value.max(), self.error.max(), self.dtype)

    def clamp(self, low: float, high: float) -> "Rounded":
        return Rounded(self.value.clamp(low, high), self.error, self.dtype)

    def exp(self) -> "Rounded":
        value = self.value.exp()
        return self._with(value, value * torch.expm1(self.error), self._ulps)

    def log(self) -> "Rounded":
        error = -torch.log1p(-(self.error / self.value).clamp(max=1))
        return self._with(self.value.log(), error, self._ulps)

    def rsqrt(self) -> "Rounded":
        """1/√x."""
        value = self.value.rsqrt()
        return self._with(value, (self.value - self.error).clamp(min=0).rsqrt() - value, self._ulps)

    def tanh(self) -> "Rounded":
        # No slope is above 1.
        return self._with(self.value.tanh(), self.error, self._ulps)

    def erf(self) -> "Rounded":
        # The bf16 kernel makes 0 of the erf of small numbers.
        small = 2.0**-23
        return self._with(self.value.erf(), self.error * 2 / math.sqrt(math.pi) + small, self._ulps)

    def cos(self) -> "Rounded":
        return self._with(self.value.cos(), self.error, self._ulps)

    def sin(self) -> "Rounded":
        return self._with(self.value.sin(), self.error, self._ulps)


def softmax(row: Rounded) -> Rounded:
    """exp(x_i - max) / Σ_j exp(x_j - max); a row of nothing but -∞ gives zeros, as in the model."""
    if bool((row.value == -math.inf).all()):
        return Rounded(torch.zeros_like(row.value), 0.0, row.dtype)
    powers = (row - row.max()).exp()
    return powers / powers.sum()


def relu(x: Rounded) -> Rounded:
    return x.clamp(0.0, math.inf)


def gelu(x: Rounded) -> Rounded:
    return x * ((x * math.sqrt(0.5)).erf() + 1) * 0.5


def gelu_tanh(x: Rounded) -> Rounded:
    return x * (((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh() + 1) * 0.5


def silu(x: Rounded) -> Rounded:
    result = x / ((-x).exp() + 1)
    # Where the model's exponential may be infinite.
    endless = -x.value > math.log(torch.finfo(x.dtype).max) - 1
    return Rounded(result.value, result.error + torch.where(endless, result.value.abs(), 0.0), x.dtype)


# name in the config -> function and formula
ACTIVATIONS = {
    "relu": (relu, "max(x, 0)"),
    "gelu": (gelu, "½·x·(1 + erf(x/√2))"),
    "gelu_tanh": (gelu_tanh, "½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))"),
    "silu": (silu, "x / (1 + exp(-x))"),
}
