"""What seeing inside costs: nothing to speak of while nobody looks, little while everything is recorded; and memory
for what was asked for alone. On the bundled translator where it is there, else on random weights."""

from functools import partial

import torch
from torch import Tensor

from benchmarks.measure import Effort, Row, take_turns, translator_config, translator_folder
from benchmarks.memory import held
from cutaway.checkpoint.folder import load
from cutaway.models.build import Model, build
from cutaway.tap import Edit, Trace, tap

PART = "seeing inside"
PATTERN = "decoder.layers.0.cross_attn.pattern"
WATCHES: dict[str, dict[str, Edit]] = {
    "one pattern": {PATTERN: lambda x: x},
    "one head of it": {PATTERN: lambda x: x[:, 0]},
}


def measure(effort: Effort) -> list[Row]:
    name, model = _translator(effort)
    ids = torch.randint(3, model.config.vocab_size, (2, 1, effort.traced))
    source, target = ids.unbind()
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
    def traced(watch: dict[str, Edit] | tuple[str, ...] = ("*",)) -> Trace:
        with Trace(model, watch=watch) as trace:
            model(source, target)
        return trace

    everything = traced()
    n_taps = sum(map(len, everything.calls.values()))
    agree = torch.allclose(plain(), everything["head.logits"], atol=1e-3)
    del everything
    with_tap, without = take_turns((tapping, idling), effort, rounds=effort.rounds + 6)
    tap_seconds = (with_tap - without) / effort.calls
    forward, trace = take_turns((plain, traced), effort, repeat=5, rounds=3 * effort.rounds)
    whole = held(traced)
    return [
        Row(part=PART, case="a tap that nobody watches", unit="ns", ours=1e9 * tap_seconds),
        Row(
            part=PART, case=f"{n_taps} such taps, of a forward pass", unit="%",
            ours=100 * n_taps * tap_seconds / forward, most=1.0,
        ),
        Row(
            part=PART, case=f"all {n_taps} recorded, {name}, {effort.traced} + {effort.traced} tokens", unit="ms",
            ours=1e3 * trace, peer="the plain forward pass", theirs=1e3 * forward, ratio=forward / trace,
            least=1 / 1.3, agree=agree,
        ),
        *(
            Row(
                part=PART, case=f"memory held by {case}", unit="MB", ours=held(partial(traced, watch)) / 1e6,
                peer="all taps", theirs=whole / 1e6,
            )
            for case, watch in WATCHES.items()
        ),
    ]  # fmt: skip


def _translator(effort: Effort) -> tuple[str, Model]:
    folder = translator_folder(effort)
    if folder is not None:
        return folder.name, load(folder).model
    torch.manual_seed(0)
    return "random weights", build(translator_config(effort, "pre")).eval()
