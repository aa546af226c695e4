"""What a mixture of experts costs a token: more and more of them, two at work, beside one network as wide as two."""

from functools import partial

import torch

from benchmarks.measure import Effort, Row, take_turns
from cutaway.nn.mlp import GatedMLP
from cutaway.nn.moe import MoE

EXPERTS = (4, 16, 64)


def measure(effort: Effort) -> list[Row]:
    d, f = effort.d_model, effort.d_ff
    x = torch.randn(1, effort.rows * effort.source, d)
    wide = GatedMLP(d, 2 * f, "silu", False)
    mixtures = [MoE(d, n, 2, True, partial(GatedMLP, d, f, "silu", False)) for n in EXPERTS]
    with torch.inference_mode():
        dense, *sparse = take_turns([partial(module, x) for module in (wide, *mixtures)], effort)
    return [
        Row(part="experts", case=f"2 of {n} experts, {x.shape[1]:,} tokens", unit="ms", ours=1e3 * seconds,
            peer="one network as wide as two", theirs=1e3 * dense, ratio=dense / seconds)
        for n, seconds in zip(EXPERTS, sparse, strict=True)
    ]  # fmt: skip
