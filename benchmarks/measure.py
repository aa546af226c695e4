"""What every measurement shares: its sizes, the clock, taking turns, and one line of the result."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import torch
import transformers

from cutaway import zoo
from cutaway.checkpoint import folder
from cutaway.config import ModelConfig
from cutaway.models.build import Model, preset

Peer = transformers.MarianMTModel | transformers.M2M100ForConditionalGeneration
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Sizes and patience. The defaults are what `make bench` measures; QUICK is for tests."""

    rounds: int = 7
    clock: Literal["wall", "cpu"] = "wall"
    model: Path | None = None  # the translator to measure in place of the bundled one
    vocab_size: int = 12_000
    d_model: int = 256
    n_layers: int = 4
    n_heads: int = 4
    d_ff: int = 1024
    rows: int = 200  # of a training batch
    source: int = 12  # tokens a row
    target: int = 13
    bundled: bool = True  # translate with a real model where there is one
    sentences: int = 64
    new_tokens: int = 24  # where random weights never end a sentence
    traced: int = 128  # tokens, a side, of what is looked into
    gpt2_small: bool = True  # beside TransformerLens in GPT-2 small's shape, else in the sizes above
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)  # at which attention is measured
    matrix: int = 1024  # rows and columns of the product that shows the machine's rate
    words: int = 4_000_000  # of text that word vectors learn from
    widths: tuple[int, ...] = (100, 300)  # of word vectors
    calls: int = 200_000  # of something that takes nanoseconds


QUICK = {
    "rounds": 1, "vocab_size": 120, "d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 48, "rows": 4,
    "bundled": False, "sentences": 4, "new_tokens": 3, "traced": 8, "gpt2_small": False, "lengths": (8,), "matrix": 64,
    "words": 20_000, "widths": (16,), "calls": 1000,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. `ratio` is how many times as fast as the peer; `least` and `most` are what the
    project wants of the ratio and of `ours`; `agree` tells whether both computed the same."""

    part: str
    case: str
    unit: str
    ours: float
    peer: str = ""
    theirs: float | None = None
    ratio: float | None = None
    least: float | None = None
    most: float | None = None
    agree: bool | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the wanted figure was reached; None where nothing was asked for."""
        if self.least is not None and self.ratio is not None:
            return self.ratio >= self.least
        return None if self.most is None else self.ours <= self.most


def take_turns(
    works: Sequence[Callable[[], object]], effort: Effort, repeat: int = 1, rounds: int | None = None
) -> list[float]:
    """Median seconds of one call of each work. They run in turns within every round, forwards and backwards
    alternately, so that a disturbance meets all alike; each was called once before."""
    clock = CLOCKS[effort.clock]
    seconds: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for number in range(rounds or effort.rounds):
        order = range(len(works)) if number % 2 == 0 else reversed(range(len(works)))
        for i in order:
            started = clock()
            for _ in range(repeat):
                works[i]()
            seconds[i].append((clock() - started) / repeat)
    # a clock may be too coarse for a tiny work
    return [max(median(each), math.ulp(1.0)) for each in seconds]


def translator_folder(effort: Effort) -> Path | None:
    """The bundled translator, or the one asked for; None when there is neither."""
    bundled = [path for path in zoo.bundled() if path.name == zoo.TRANSLATOR and effort.bundled]
    return effort.model or next(iter(bundled), None)


def translator_config(effort: Effort, norm_order: Literal["post", "pre"]) -> ModelConfig:
    """An encoder-decoder of the given sizes: Marian's architecture, or M2M100's for pre-norm."""
    sizes = {name: getattr(effort, name) for name in ("vocab_size", "d_model", "n_layers", "n_heads", "d_ff")}
    changes = sizes | {"embed_scale": effort.d_model**0.5, "dropout": 0.0, "pad_id": 1, "eos_id": 2}
    if norm_order == "post":
        return preset("marian-tiny", {**changes, "decoder_start_id": 1})
    return preset("m2m100-tiny", {**changes, "decoder_start_id": 2})


def opened_by_transformers(model: Model, path: Path) -> Peer:
    """The same weights as transformers runs them, in fp32."""
    folder.save(path, model)
    peer = transformers.AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32)
    assert isinstance(peer, Peer)
    return peer
