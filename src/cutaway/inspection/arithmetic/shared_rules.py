"""Rules that stand in many places: linear layers and norms."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from cutaway.inspection.arithmetic.formula import Constant, Further, Read, Reads, Rule, Sheet
from cutaway.inspection.arithmetic.record import Record
from cutaway.inspection.arithmetic.rounding import Rounded, growth
from cutaway.nn.norm import RMSNorm1P


def linear(
    record: Record,
    layer: str,
    letter: str,
    row: str,
    source: str,
    x: str = "x[t,d]",
    over: str = "Σ_d",
    column: str = "d",
) -> tuple[str, Reads]:
    """The right side of element `row` of the linear layer of that path, which reads x from `source`, and its reads."""
    right, bias = f"{over} {x} · W_{letter}[{row}, {column}]", f"{layer}.bias"
    reads: Reads = {x.partition("[")[0]: source, f"W_{letter}": f"{layer}.weight"}
    if record.has(bias):
        right, reads[f"b_{letter}"] = f"{right} + b_{letter}[{row}]", bias
    return right, reads


def norm_rule(
    record: Record,
    left: str,
    path: str,
    source: str,
    places: str = "t,j",
    further: Mapping[str, Further] | None = None,
    made: Callable[[], Tensor] | None = None,
    activation: tuple[Callable[[Rounded], Rounded], str] | None = None,
) -> Rule:
    """Element i of the norm at `path` of a line x of `source` (Ba et al. 2016, §3; Zhang & Sennrich 2019, §4); with
    `activation` of what that makes of a line y."""
    norm = record.model.get_submodule(path)
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm) and norm.eps is not None
    n, x = norm.normalized_shape[0], "x" if activation is None else "y"
    reads: Reads = {x: Read(source, places), "γ[i]": f"{path}.weight", "ε": Constant(norm.eps, "norm_eps")}
    if isinstance(norm, nn.LayerNorm):
        right, also = "(x[i] - μ) / √(σ² + ε) · γ[i]", f",  μ = Σ_j x[j] / {n},  σ² = Σ_j (x[j] - μ)² / {n}"
        if record.has(f"{path}.bias"):
            right, reads["β[i]"] = f"{right} + β[i]", f"{path}.bias"
    else:
        gain = "(1 + γ[i])" if isinstance(norm, RMSNorm1P) else "γ[i]"
        right, also = f"x[i] / √(Σ_j x[j]² / {n} + ε) · {gain}", ""
    if activation is not None:
        also += f",  x[j] = f(y[t,j]),  f(x) = {activation[1]}"

    def work(
        at: Sheet, x: Rounded, weight: Rounded, epsilon: Rounded, bias: Rounded | None = None
    ) -> Rounded:
        x = x if activation is None else activation[0](x)
        if isinstance(norm, nn.LayerNorm):
            return _layer_norm(x, at["i"], weight, epsilon, bias)
        weight = weight + 1 if isinstance(norm, RMSNorm1P) else weight
        return x[at["i"]] * ((x * x).mean() + epsilon).rsqrt() * weight

    return Rule(left, right + also, reads, further or {}, work=work, made=made, follows=f"{x}[i]")


def _layer_norm(x: Rounded, i: int, weight: Rounded, epsilon: Rounded, bias: Rounded | None) -> Rounded:
    """The bound on the variance, growth(n) · u · κ² of it with κ² = Σx² / Σ(x - μ)², covers every usual way to compute
    one (Chan, Golub & LeVeque 1983, *Algorithms for computing the sample variance*: one pass over x² is the worst)."""
    n = x.value.numel()
    centred = x.value - x.value.mean()
    spread = (growth(n) + 4) * x.unit * (x.value**2).sum() / n + x.tiny
    scale = (Rounded((centred**2).mean(), spread, x.dtype) + epsilon).rsqrt()
    # Some kernels compute x·scale - μ·scale, which rounds more than (x - μ)·scale does.
    result = (x[i] * scale - x.mean() * scale) * weight
    return result if bias is None else result + bias
