"""What seeing inside costs: nothing to speak of while nobody looks, little while everything is recorded."""

import torch
from torch import Tensor

from benchmarks.measure import Effort, Row, take_turns, translator_config
from cutaway.models.build import build
from cutaway.tap import Trace, tap

TOKENS = 32


def measure(effort: Effort) -> list[Row]:
    torch.manual_seed(0)
    model = build(translator_config(effort, "pre")).eval()
    source, target = (torch.randint(3, effort.vocab_size, (1, TOKENS)) for _ in range(2))
    x = torch.zeros(1)

    def tapping() -> None:
        for _ in range(effort.calls):
            tap(model, "x", x)

    def idling() -> None:
        for _ in range(effort.calls):
            pass

    @torch.inference_mode()
    def plain() -> Tensor:
        return model(source, target)

    @torch.inference_mode()
    def traced() -> Trace:
        with Trace(model, watch=["*"]) as trace:
            model(source, target)
        return trace

    n_taps = sum(map(len, traced().calls.values()))
    with_tap, without = take_turns((tapping, idling), effort, rounds=effort.rounds + 6)
    tap_seconds = (with_tap - without) / effort.calls
    forward, trace = take_turns((plain, traced), effort, repeat=5, rounds=3 * effort.rounds)
    return [
        Row(part="seeing inside", case="a tap that nobody watches", unit="ns", ours=1e9 * tap_seconds),
        Row(
            part="seeing inside", case=f"{n_taps} such taps, of a forward pass", unit="%",
            ours=100 * n_taps * tap_seconds / forward, most=1.0,
        ),
        Row(
            part="seeing inside", case=f"all recorded, {TOKENS} + {TOKENS} tokens", unit="ms",
            ours=1e3 * trace, peer="the plain forward pass", theirs=1e3 * forward, ratio=forward / trace, least=1 / 1.3,
        ),
    ]  # fmt: skip
