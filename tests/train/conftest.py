"""Tiny models of every family, random examples for them, and a trainer put together from both."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cutaway.checkpoint import folder as checkpoint
from cutaway.config import ModelConfig, parse
from cutaway.models.build import Model, build
from cutaway.text.batches.batch import Ragged
from cutaway.text.batches.documents import DocumentBatches, MaskedBatches
from cutaway.text.batches.pairs import PairBatches, Pairs
from cutaway.train.loop import Batches, Trainer
from cutaway.train.objective import Objective, masked, next_token
from cutaway.train.optimizer import Average, Optimizer
from cutaway.train.progress import Progress
from cutaway.train.recipe import AverageName, TrainPart
from cutaway.train.state import RunFolder
from cutaway.train.validation import Scores
from cutaway.words import Text

TextBatches = PairBatches | DocumentBatches | MaskedBatches
FAMILIES = ["encoder-decoder", "decoder-only", "encoder-only"]
VOCABULARY = 32
PAD, MASK, BOS, EOS = 0, 1, 2, 3


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads what a run says: an English reader, wherever the tests run."""
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def tiny(family: str, **changes: object) -> ModelConfig:
    values = {
        "family": family, "vocab_size": VOCABULARY, "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24,
        "max_len": 16, "position": "rotary", "pad_id": PAD, "bos_id": BOS, "eos_id": EOS, "mask_id": MASK,
        "decoder_start_id": BOS,
    }  # fmt: skip
    return parse(ModelConfig, {**values, **changes}, "tiny")


def examples(family: str, count: int = 40, seed: int = 0, rows: int = 4) -> TextBatches:
    draws = random.Random(seed)

    def text() -> list[int]:
        return [draws.randrange(4, VOCABULARY) for _ in range(draws.randint(2, 9))]

    if family == "encoder-decoder":
        pairs = [([*text(), EOS], [*text(), EOS]) for _ in range(count)]
        return PairBatches([Pairs.of(pairs)], budget=rows * 20, pad_id=PAD, decoder_start_id=BOS, seed=seed)
    documents = Ragged.of(text() for _ in range(count))
    if family == "decoder-only":
        return DocumentBatches(
            documents, max_len=16, rows=rows, pad_id=PAD, eos_id=EOS, start_id=BOS, seed=seed
        )
    return MaskedBatches(documents, max_len=16, budget=rows * 16, pad_id=PAD, seed=seed)


def objective_for(family: str) -> Objective:
    if family == "encoder-only":
        return masked(MASK, VOCABULARY, (PAD, MASK, BOS, EOS), smoothing=0.1)
    return next_token(0.1)


def trainer(
    folder: RunFolder,
    family: str = "encoder-decoder",
    *,
    dropout: float = 0.1,
    average: AverageName = "ema",
    batches: Batches | None = None,
    objective: Objective | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    validate: Callable[[Model, Callable[[], bool]], Scores | None] | None = None,
    **changes: object,
) -> Trainer:
    """A trainer over the examples of `family`, with `changes` to its plan; equal arguments train equally."""
    torch.manual_seed(7)
    model = build(tiny(family, dropout=dropout))
    values = {
        "objective": "seq2seq",
        "steps": 6,
        "accumulate": 2,
        "schedule": "cosine",
        "warmup": 3,
        **changes,
    }
    plan = parse(TrainPart, values, "plan")
    return Trainer(
        model,
        examples(family) if batches is None else batches,
        objective_for(family) if objective is None else objective,
        plan,
        Optimizer(model, plan.optimizer, lr=0.01, eps=plan.eps),
        Average(model, average, decay=0.9, count=2, every=2),
        folder,
        write_model=lambda path, model: checkpoint.save(path, model),
        validate=validate,
        progress=Progress(folder.path / "log.jsonl"),
        interrupted=interrupted,
    )


def never(text: Text) -> None:
    """For `tell`, where nothing is to be told."""
    pytest.fail(str(text))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    path = tmp_path / "run"
    path.mkdir()
    return RunFolder(path)
