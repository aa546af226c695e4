"""One training step of the encoder-decoder: ours, and transformers' with its own loss; same weights, same batch."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import Effort, Row, opened_by_transformers, take_turns, translator_config
from cutaway.models.build import build
from cutaway.text.batches.batch import Batch
from cutaway.train.machine import multiplies_bf16
from cutaway.train.objective import next_token
from cutaway.train.optimizer import Optimizer

PEERS = {"post": "transformers' Marian (post-norm)", "pre": "transformers' M2M100 (pre-norm)"}
BF16 = multiplies_bf16(torch.device("cpu"))


def measure(effort: Effort) -> list[Row]:
    rate = matrix_rate(effort)
    return [row for order in ("post", "pre") for row in _step(effort, order, rate)]


def _step(effort: Effort, norm_order: Literal["post", "pre"], rate: float) -> list[Row]:
    torch.manual_seed(0)
    config = translator_config(effort, norm_order)
    ours = build(config).train()
    with TemporaryDirectory() as path:
        theirs = opened_by_transformers(ours, Path(path)).train()
    assert config.decoder_start_id is not None
    source = torch.randint(3, effort.vocab_size, (effort.rows, effort.source))
    labels = torch.randint(3, effort.vocab_size, (effort.rows, effort.target))
    start = labels.new_full((effort.rows, 1), config.decoder_start_id)
    target = torch.cat([start, labels[:, :-1]], dim=1)
    batch = Batch({"source": source, "target": target}, labels, torch.arange(effort.rows))
    objective = next_token()

    def our_loss() -> Tensor:
        total, count = objective(ours, batch, 0)
        return total / count

    def their_loss() -> Tensor:
        return theirs(input_ids=source, labels=labels).loss

    with torch.no_grad():
        agree = torch.allclose(our_loss().float(), their_loss(), rtol=1e-4)
    our_step = _stepping(our_loss, Optimizer(ours, lr=1e-4, weight_decay=0.01))
    their_step = _stepping(their_loss, Optimizer(theirs, lr=1e-4, weight_decay=0.01))
    our_seconds, their_seconds = take_turns((our_step, their_step), effort)
    tokens = effort.rows * (effort.source + effort.target)
    case = f"{effort.rows} × ({effort.source} + {effort.target}) tokens, {_precision()}"
    counter = FlopCounterMode(display=False)
    with counter:
        our_step()
    share = 100 * counter.get_total_flops() / rate
    return [
        Row(
            part="training step", case=case, unit="tokens/s", ours=tokens / our_seconds, peer=PEERS[norm_order],
            theirs=tokens / their_seconds, ratio=their_seconds / our_seconds, least=1.0, agree=agree,
        ),
        Row(
            part="training step", case=f"of the machine's {_precision()} matrix rate", unit="%",
            ours=share / our_seconds, peer=PEERS[norm_order], theirs=share / their_seconds,
        ),
    ]  # fmt: skip


def _stepping(loss: Callable[[], Tensor], optimizer: Optimizer) -> Callable[[], None]:
    def step() -> None:
        with autocast():
            value = loss()
        value.backward()
        optimizer.step(1.0)
        optimizer.zero_grad()

    return step


def matrix_rate(effort: Effort) -> float:
    """Floating-point operations a second of a large product, in the type that training multiplies in."""
    n = effort.matrix
    a, b = (torch.randn(n, n).to(torch.bfloat16 if BF16 else torch.float32) for _ in range(2))
    (seconds,) = take_turns([lambda: a @ b], effort, repeat=10)
    return 2 * n**3 / seconds


def autocast() -> AbstractContextManager[object]:
    return torch.autocast("cpu", torch.bfloat16) if BF16 else nullcontext()


def _precision() -> str:
    return "bf16" if BF16 else "fp32"
