"""Normalisation, recomputed from its definition: LayerNorm, RMSNorm, and RMSNorm scaled by 1 + weight."""

from torch import nn

from cutaway.inspection.arithmetic.record import Sheet
from cutaway.inspection.arithmetic.rounding import Rounded, growth
from cutaway.nn.norm import RMSNorm1P


def normalised(sheet: Sheet, x: Rounded, i: int, path: str, norm: nn.Module) -> tuple[str, Rounded]:
    """Element i of the norm of `x` (n,), and the formula's right side (Ba et al. 2016, §3; Zhang & Sennrich 2019, §4).

    The bound on the variance, growth(n) · u · κ² of it with κ² = Σx² / Σ(x - μ)², covers every usual way to compute one
    (Chan, Golub & LeVeque 1983, *Algorithms for computing the sample variance*: one pass over x² is the worst).
    """
    n = x.value.numel()
    weight = sheet.take("γ", f"{path}.weight", i)
    if isinstance(norm, nn.LayerNorm):
        centred = x.value - x.value.mean()
        spread = (growth(n) + 4) * x.unit * (x.value**2).sum() / n + x.tiny
        variance = Rounded((centred**2).mean(), spread, x.dtype)
        scale = (variance + sheet.constant("ε", norm.eps, "norm_eps")).rsqrt()
        # Some kernels compute x·scale - μ·scale, which rounds more than (x - μ)·scale does.
        result = (x[i] * scale - x.mean() * scale) * weight
        formula = "(x[i] - μ) / √(σ² + ε) · γ[i]"
        if sheet.has(f"{path}.bias"):
            result, formula = result + sheet.take("β", f"{path}.bias", i), f"{formula} + β[i]"
        return f"{formula},  μ = Σ_j x[j] / {n},  σ² = Σ_j (x[j] - μ)² / {n}", result
    assert isinstance(norm, nn.RMSNorm) and norm.eps is not None
    plus = isinstance(norm, RMSNorm1P)
    scale = ((x * x).mean() + sheet.constant("ε", norm.eps, "norm_eps")).rsqrt()
    result = x[i] * scale * (weight + 1 if plus else weight)
    return f"x[i] / √(Σ_j x[j]² / {n} + ε) · {'(1 + γ[i])' if plus else 'γ[i]'}", result
