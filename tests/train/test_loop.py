import json
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tests.nearness import tolerance
from tests.train.conftest import FAMILIES, examples, never, trainer
from torch import Tensor, nn

from cutaway.checkpoint import folder as checkpoint
from cutaway.errors import CutawayError
from cutaway.models.build import Model
from cutaway.text.batches.batch import IGNORED, Batch
from cutaway.train.loop import Trainer, TrainingStopped
from cutaway.train.objective import Objective, next_token
from cutaway.train.recipe import OptimizerName
from cutaway.train.state import RunFolder, read_state
from cutaway.train.validation import Scores


def weights(made: Trainer) -> list[Tensor]:
    with made.average.swapped():
        averaged = [p.detach().clone() for p in made.model.parameters()]
    return [*averaged, *(p.detach().clone() for p in made.model.parameters())]


def log(folder: RunFolder) -> list[dict[str, object]]:
    kept = ("step", "loss", "lr", "gradient_norm", "tokens", "skipped", "samples")
    lines = (folder.path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k in kept} for line in lines]


def same(one: Trainer, other: Trainer) -> bool:
    return all(torch.equal(p, q) for p, q in zip(weights(one), weights(other), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_resumed_equals_uninterrupted(tmp_path: Path, family: str, optimizer: OptimizerName) -> None:
    """R05, with dropout, accumulation and averaging on, across epochs: losses, order and weights bit-equal."""
    straight = RunFolder(tmp_path / "straight")
    parts = RunFolder(tmp_path / "parts")
    for folder in (straight, parts):
        folder.path.mkdir()
    whole = trainer(straight, family, steps=14, optimizer=optimizer)
    whole.run()
    assert whole.batches.state()["epoch"] != 0
    half = trainer(parts, family, optimizer=optimizer, steps=14, interrupted=after(5))
    half.run()
    assert half.position.step == 5
    rest = trainer(parts, family, steps=14, optimizer=optimizer)
    rest.resume(parts.at(5))
    rest.run()
    assert log(parts) == log(straight)
    assert same(whole, rest)


def after(steps: int, batches: int = 0) -> Callable[[], bool]:
    """An interrupt that comes when that many steps of two batches, and so many batches of the next, are done. It is
    asked before each step and before each of its batches."""
    asked = iter(range(1_000_000))
    return lambda: next(asked) >= 3 * steps + (1 + batches if batches else 0)


def test_a_stop_inside_an_accumulation_window_repeats_the_window(tmp_path: Path) -> None:
    straight, parts = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "parts")
    for folder in (straight, parts):
        folder.path.mkdir()
    whole = trainer(straight, steps=6)
    whole.run()
    half = trainer(parts, steps=6, interrupted=after(3, batches=1))
    half.run()
    assert half.position.step == 3
    rest = trainer(parts, steps=6)
    rest.resume(parts.at(3))
    rest.run()
    assert log(parts) == log(straight) and same(whole, rest)


def test_a_stop_at_the_end_of_an_epoch_keeps_the_dropout(tmp_path: Path) -> None:
    """faults.md 54: the first loss after it is that of the straight run."""
    straight, parts = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "parts")
    for folder in (straight, parts):
        folder.path.mkdir()
    epoch = len(list(examples("decoder-only").once()))
    whole = trainer(straight, "decoder-only", steps=epoch + 2, accumulate=1, dropout=0.3)
    whole.run()
    half = trainer(parts, "decoder-only", steps=epoch + 2, save_every=epoch, accumulate=1, dropout=0.3)
    half.interrupted = lambda: half.position.step == epoch
    half.run()
    assert half.batches.state()["epoch"] == 1 and half.batches.state()["position"] == 0
    rest = trainer(parts, "decoder-only", steps=epoch + 2, accumulate=1, dropout=0.3)
    rest.resume(parts.at(epoch))
    rest.run()
    assert log(parts) == log(straight) and same(whole, rest)


def test_other_data_are_named_on_resume(folder: RunFolder) -> None:
    trainer(folder, steps=1).run()
    with pytest.raises(CutawayError, match=r"examples was \[40\], now it is \[41\]"):
        trainer(folder, batches=examples("encoder-decoder", count=41)).resume(folder.at(1))


def test_one_step_changes_the_weights_and_is_counted(folder: RunFolder) -> None:
    made = trainer(folder, steps=1)
    start = [p.detach().clone() for p in made.model.parameters()]
    assert made.run().step == 1
    assert folder.steps() == [1]
    assert not all(torch.equal(p, q) for p, q in zip(made.model.parameters(), start, strict=True))


class Given:
    """A list of batches, once or endlessly."""

    def __init__(self, batches: list[Batch], endless: bool = False):
        self.batches, self.endless, self.at = batches, endless, 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.at == len(self.batches):
            if not self.endless:
                raise StopIteration
            self.at = 0
        self.at += 1
        return self.batches[self.at - 1]

    def state(self) -> dict[str, object]:
        return {"at": self.at}

    def restore(self, state: Mapping[str, object]) -> None:
        self.at = int(str(state["at"]))


def rows(count: int) -> Batch:
    return next(iter(examples("encoder-decoder", count=count, rows=1000)))


def part(batch: Batch, start: int, stop: int) -> Batch:
    inputs = {name: tensor[start:stop] for name, tensor in batch.inputs.items()}
    return Batch(inputs, batch.labels[start:stop], batch.index[start:stop])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_accumulated_equals_one_large_batch(tmp_path: Path, size: int) -> None:
    """faults.md 47: 1x8 against 2x4, 4x2 and 8x1, with different numbers of tokens in each part."""
    batch, results = rows(8), []
    for name, batches in (("one", [batch]), ("many", [part(batch, i, i + size) for i in range(0, 8, size)])):
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        made = trainer(
            folder,
            steps=1,
            dropout=0.0,
            accumulate=len(batches),
            batches=Given(batches),
            average="none",
            eps=1e-3,  # key biases have no gradient but rounding; AdamW must not blow that up
        )
        made.run()
        results.append((made, log(folder)[0]))
    (one, first), (many, second) = results
    assert first["loss"] == pytest.approx(second["loss"], rel=tolerance(1, first["tokens"]))
    assert first["tokens"] == second["tokens"]
    assert first["gradient_norm"] == pytest.approx(second["gradient_norm"], rel=1e-5)
    for p, q in zip(weights(one), weights(many), strict=True):
        torch.testing.assert_close(p, q, atol=1e-6, rtol=0)


def test_a_last_partial_window_is_applied(folder: RunFolder) -> None:
    """faults.md 49: ten batches in windows of four make three updates."""
    batch = rows(10)
    made = trainer(folder, steps=99, accumulate=4, batches=Given([part(batch, i, i + 1) for i in range(10)]))
    made.run()
    counted = [int((batch.labels[start : start + 4] != IGNORED).sum()) for start in (0, 4, 8)]
    assert [entry["tokens"] for entry in log(folder)] == counted
    assert made.average.updates == made.position.step == 3


def test_a_window_without_labels_changes_nothing(folder: RunFolder) -> None:
    batch = rows(4)
    empty = Batch(batch.inputs, torch.full_like(batch.labels, IGNORED), batch.index)
    made = trainer(folder, steps=2, accumulate=2, batches=Given([empty], endless=True))
    start = [p.detach().clone() for p in made.model.parameters()]
    made.run()
    assert all(torch.equal(p, q) for p, q in zip(made.model.parameters(), start, strict=True))
    assert [entry["skipped"] for entry in log(folder)] == ["no label of this window is counted"] * 2


def poisoned(value: float, at: set[int], gradient_only: bool) -> Objective:
    """The usual objective, but on its n-th calls in `at` the loss, or only its gradient, is `value`."""
    calls = iter(range(1, 1_000_000))
    usual = next_token(0.1)

    def objective(model: Model, batch: Batch, seed: int) -> tuple[Tensor, int]:
        loss, count = usual(model, batch, seed)
        if next(calls) in at:
            weight = next(model.parameters())
            loss = loss + (weight * 0).sqrt().sum() * 0 if gradient_only else loss * value
        return loss, count

    return objective


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("gradient_only", [False, True])
def test_no_loss_that_is_not_finite_reaches_the_weights(
    folder: RunFolder, value: float, gradient_only: bool
) -> None:
    """R08: the third of five steps is skipped and counted, with its samples; the others go on."""
    seen: list[list[Tensor]] = []
    made = trainer(folder, steps=5, objective=poisoned(value, {5}, gradient_only), average="none")
    made.interrupted = lambda: bool(seen.append([p.detach().clone() for p in made.model.parameters()]))
    made.run()
    by_step = seen[::3]
    assert [all(map(torch.equal, a, b)) for a, b in pairwise(by_step)] == [
        False, False, True, False, False,
    ]  # fmt: skip
    assert all(bool(p.isfinite().all()) for p in made.model.parameters())
    skipped = log(folder)[2]
    assert skipped["skipped"] == "loss or gradient is not finite" and skipped["samples"]
    assert made.position.skipped == 1 and made.position.step == 5
    assert "NaN" not in (folder.path / "log.jsonl").read_text(encoding="utf-8")


def test_stops_after_too_many_in_a_row_with_a_good_checkpoint(folder: RunFolder) -> None:
    made = trainer(folder, steps=99, max_bad_steps=3, objective=poisoned(math.nan, set(range(5, 99)), False))
    with pytest.raises(TrainingStopped, match=r"stopped at step 5.*3 steps in a row.*samples.*step-00000005"):
        made.run()
    assert folder.newest(never) == folder.at(5)
    again = trainer(folder)
    again.resume(folder.at(5))
    assert same(made, again)


@pytest.mark.parametrize("every", [1, 100])
def test_weights_that_are_not_finite_are_never_saved(folder: RunFolder, every: int) -> None:
    """R08: neither at the next save nor when the losses, which then are not finite either, end the run."""
    made = trainer(folder, steps=60, average="none", save_every=every)

    def spoil() -> bool:
        if made.position.step == 3:
            next(made.model.parameters()).data[0, 0] = math.inf
        return False

    made.interrupted = spoil
    with pytest.raises(TrainingStopped, match=r"at step \d+: model/\S+ holds numbers that are not finite"):
        made.run()
    assert folder.steps() == ([2, 3] if every == 1 else [])
    for step in folder.steps():
        tensors, _ = read_state(folder.at(step))
        assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())


def test_a_checkpoint_with_numbers_that_are_not_finite_is_not_gone_on_from(folder: RunFolder) -> None:
    """As an older version may have left it: its manifest is right."""
    made = trainer(folder, steps=1)
    made.run()
    tensors, values = read_state(folder.at(1))
    name = next(name for name in tensors if name.startswith("model/"))
    tensors[name].view(-1)[0] = math.inf
    folder.save(1, lambda path: checkpoint.save(path, made.model), tensors, values)
    with pytest.raises(
        CutawayError, match=rf"{name} holds numbers that are not finite; delete this checkpoint"
    ):
        trainer(folder).resume(folder.at(1))


def scored(losses: list[float]) -> Callable[[Model, Callable[[], bool]], Scores]:
    waiting = iter(losses)
    return lambda model, interrupted: Scores(loss=next(waiting), tokens=1)


def test_early_stop_keeps_the_best_and_the_last(folder: RunFolder) -> None:
    made = trainer(
        folder, steps=99, validate_every=2, patience=2, keep=1, validate=scored([3.0, 2.0, 2.5, 2.0, 9.0])
    )
    position = made.run()
    assert (position.step, position.best_step, position.best_loss) == (8, 4, 2.0)
    assert folder.steps() == [4, 8]


def test_validation_does_not_touch_training(tmp_path: Path) -> None:
    runs = []
    for name, validate in (("with", True), ("without", False)):
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()

        def look(model: nn.Module, interrupted: Callable[[], bool]) -> Scores:
            assert not model.training
            torch.rand(3)
            return Scores(loss=1.0, tokens=1)

        made = trainer(folder, steps=4, validate_every=1, validate=look if validate else None, dropout=0.3)
        made.run()
        runs.append(made)
    assert same(*runs)


def test_an_interrupted_validation_is_repeated_on_resume(folder: RunFolder) -> None:
    made = trainer(folder, steps=4, validate_every=2, validate=lambda model, interrupted: None)
    assert made.run().step == 2
    again = trainer(folder, steps=4, validate_every=2, validate=scored([1.0, 2.0]))
    again.resume(folder.at(2))
    position = again.run()
    assert [entry["step"] for entry in position.history] == [2, 4]


def test_tokens_and_minutes_end_a_run_too(folder: RunFolder) -> None:
    made = trainer(folder, steps=None, tokens=100)
    position = made.run()
    last = log(folder)[-1]["tokens"]
    assert isinstance(last, int) and position.tokens >= 100 > position.tokens - last
    timed = trainer(folder, steps=None, minutes=0.5 / 60)
    assert timed.run().seconds == pytest.approx(0.5, abs=0.4)
