"""The training loop: windows of batches in, better parameters out, and never a step that cannot be repeated."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.models.build import Model
from cutaway.text.batches.batch import Batch
from cutaway.train.machine import RandomState, draw_seed, give_back_memory, random_state, restore_random_state
from cutaway.train.objective import Objective
from cutaway.train.optimizer import Average, Optimizer
from cutaway.train.progress import Progress
from cutaway.train.recipe import TrainPart
from cutaway.train.state import Position, RunFolder, read_state
from cutaway.train.validation import Scores, to_device
from cutaway.words import Phrase, Text, say


class Batches(Protocol):
    """What the loop draws from: an iterator that can say, and be put back to, where it stands."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...
    def state(self) -> dict[str, object]: ...
    def restore(self, state: Mapping[str, object]) -> None: ...


class TrainingStopped(CutawayError):
    """Training could not go on; the message names step, sample ids and the last good checkpoint."""


@dataclass
class Trainer:
    """Trains `model` by `plan` in `folder` until the plan's limits are reached, early stop, or a signal."""

    model: Model
    batches: Batches
    objective: Objective
    plan: TrainPart
    optimizer: Optimizer
    average: Average
    folder: RunFolder
    _: KW_ONLY
    write_model: Callable[[Path, Model], None]  # as a Hugging Face folder
    validate: Callable[[Model, Callable[[], bool]], Scores | None] | None = None  # None: it was interrupted
    progress: Progress
    precision: torch.dtype = torch.float32
    seed: int = 1
    fingerprint: dict[str, object] = field(default_factory=dict)  # the recipe, kept with every checkpoint
    interrupted: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.position = Position()
        self.device = next(self.model.parameters()).device
        self._saved_step: int | None = None

    def run(self) -> Position:
        """Train. On return the last state is saved, unless not a single step was taken."""
        last_save = time.monotonic()
        with self.progress:
            while True:
                better = False
                if self._validation_due():
                    best = self.position.best_step
                    # interrupted: the validation is repeated on resume
                    if not self._validate():
                        break
                    better = self.position.best_step != best
                if better or self._save_due(last_save):
                    self.save()
                    last_save = time.monotonic()
                if self.interrupted() or self._finished() or not self._step():
                    break
            if self.position.step > 0:
                self.save()
        return self.position

    def _save_due(self, last: float) -> bool:
        step, seconds = self.position.step, self.plan.save_every_seconds or math.inf
        if step in (0, self._saved_step):
            return False
        return step % self.plan.save_every == 0 or time.monotonic() - last >= seconds

    def _finished(self) -> bool:
        at, patience = self.position, self.plan.patience
        if patience is not None and at.stale >= patience:
            self.progress.tell("early stop: validations without a better loss: {count}", count=at.stale)
            return True
        return self.plan.reached(at.step, at.tokens, at.seconds)

    def _step(self) -> bool:
        """One window. False when the batches ended or a signal came; then nothing has changed."""
        at, started = self.position, time.monotonic()
        before = self.batches.state(), random_state(self.device)
        losses: list[Tensor] = []
        counts: list[int] = []
        index: list[int] = []  # of the samples
        self.model.train()
        self.optimizer.zero_grad()
        for i, batch in enumerate(islice(self.batches, self.plan.accumulate)):
            if self.interrupted():
                self.optimizer.zero_grad()
                self.batches.restore(before[0])
                restore_random_state(before[1], self.device)
                return False
            batch = to_device(batch, self.device)
            index += batch.index.tolist()
            with self._autocast():
                loss, count = self.objective(self.model, batch, draw_seed(self.seed, at.step, i))
            if count:
                loss.backward()
            losses.append(loss.detach())
            counts.append(count)
        if not counts:
            return False
        at.step += 1
        tokens = sum(counts)
        factor = self.plan.rate(at.step, self.plan.total(at.step, at.tokens + tokens, at.seconds or 1e-9))
        entry: dict[str, object] = {"step": at.step, "tokens": tokens, "lr": self.optimizer.lr * factor}
        skipped: Phrase | None = None
        if tokens == 0:
            skipped = say("no label of this window is counted")
        else:
            total = float(torch.stack(losses).sum())
            norm = self._normalise(tokens)
            entry |= {"loss": total / tokens, "gradient_norm": norm}
            if math.isfinite(total) and math.isfinite(norm):
                self.optimizer.step(factor)
                self.average.update()
                at.bad_in_a_row = 0
            else:
                at.skipped += 1
                at.bad_in_a_row += 1
                skipped = say("loss or gradient is not finite")
                entry["samples"] = index
                entry["loss"], entry["gradient_norm"] = repr(total / tokens), repr(norm)
        self.optimizer.zero_grad()
        at.tokens += tokens
        seconds = time.monotonic() - started
        at.seconds += seconds
        done = at.step / self.plan.total(at.step, at.tokens, at.seconds)
        self.progress.step(entry, seconds, done, at.seconds, skipped)
        if at.bad_in_a_row >= self.plan.max_bad_steps:
            saved = self.save()
            raise TrainingStopped(
                "stopped at step {step}: loss or gradient was not finite in {count} steps in a row (samples of "
                "the last: {samples}); no such step reached the weights, which are whole in {path}. A lower "
                "train.lr or a longer train.warmup may help",
                step=at.step,
                count=at.bad_in_a_row,
                samples=_some(index),
                path=saved,
            )
        return True

    def _normalise(self, tokens: int) -> float:
        """Turn summed gradients into those of the loss per token, clipped. Returns their norm before clipping."""
        gradients = [p.grad for p in self.optimizer.names if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients)) / tokens
        scale = 1.0 / tokens
        if self.plan.clip is not None and norm > self.plan.clip:
            scale *= self.plan.clip / norm
        if math.isfinite(norm):
            for gradient in gradients:
                gradient.mul_(scale)
        return norm

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.precision)

    def _validation_due(self) -> bool:
        every, at = self.plan.validate_every, self.position
        if self.validate is None or every is None or at.step == 0 or at.validated == at.step:
            return False
        return at.step % every == 0 or self.plan.reached(at.step, at.tokens, at.seconds)

    def _validate(self) -> bool:
        assert self.validate is not None
        at, before = self.position, random_state(self.device)
        self.model.eval()
        with self.average.swapped(), torch.no_grad(), self._autocast():
            scores = self.validate(self.model, self.interrupted)
        restore_random_state(before, self.device)
        if scores is None:
            return False
        at.validated = at.step
        if not math.isfinite(scores.loss):
            raise TrainingStopped(
                "step {step}: the validation loss is {loss}; nothing is exported. Earlier checkpoints lie in "
                "{path}; a smaller train.lr, or other values in [model], may help",
                step=at.step,
                loss=scores.loss,
                path=self.folder.path,
            )
        better = at.best_loss is None or scores.loss < at.best_loss
        at.stale = 0 if better else at.stale + 1
        if better:
            at.best_step, at.best_loss = at.step, scores.loss
        at.history.append({"step": at.step, **scores.values()})
        self.progress.validation(at.step, scores, better)
        return True

    def save(self) -> Path:
        """Save a checkpoint of this step (once), then keep the newest `keep` and the best. Raises TrainingStopped for
        weights that are not finite."""
        at = self.position
        if self._saved_step == at.step:
            return self.folder.at(at.step)
        generators = random_state(self.device)
        parts: dict[str, Mapping[str, Tensor]] = {
            "model": dict(self.model.named_parameters()),
            "optimizer": self.optimizer.state(),
            "average": self.average.state(),
            "random": generators.tensors,
        }
        tensors = {f"{part}/{name}": value for part, held in parts.items() for name, value in held.items()}
        if name := not_finite(tensors):
            raise TrainingStopped(
                "stopped at step {step}: {name} holds numbers that are not finite, so this step is not saved. Earlier "
                "checkpoints lie in {path}; a lower train.lr or train.weight_decay may help",
                step=at.step,
                name=name,
                path=self.folder.path,
            )
        values = {
            "version": 1,
            "position": asdict(at),
            "batches": self.batches.state(),
            "average_updates": self.average.updates,
            "python_random": generators.python,
            "threads": torch.get_num_threads(),
            "recipe": self.fingerprint,
        }

        def write(folder: Path) -> None:
            with self.average.swapped():
                self.write_model(folder, self.model)

        path = self.folder.save(at.step, write, tensors, values)
        self._saved_step = at.step
        give_back_memory()
        for failure in self.folder.retain(self.plan.keep, at.losses):
            self.progress.tell(failure)
        return path

    def resume(self, path: Path) -> None:
        """Continue from the checkpoint at `path`, bit for bit as if it had never stopped.

        Raises CutawayError for a state of another version, of other data, or of a model with other parameters.
        """
        tensors, values = read_state(path)
        position, batches, python = values.get("position"), values.get("batches"), values.get("python_random")
        if not (isinstance(position, dict) and isinstance(batches, dict)):
            raise CutawayError(
                "{path}: not a training state of this version; train it anew, or with the version that wrote it",
                path=path / "training.json",
            )
        if name := not_finite(tensors):
            raise CutawayError(
                "{path}: {name} holds numbers that are not finite; delete this checkpoint to go on from an earlier "
                "one",
                path=path,
                name=name,
            )
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "average": {}, "random": {}}
        for key, value in tensors.items():
            part, _, name = key.partition("/")
            parts[part][name] = value
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                p.copy_(parts["model"][name])
        self.optimizer.restore(parts["optimizer"])
        updates = values.get("average_updates")
        self.average.restore(parts["average"], updates if isinstance(updates, int) else 0)
        self.batches.restore(batches)
        restore_random_state(RandomState(parts["random"], python), self.device)
        self.position = Position(**position)
        self._saved_step = self.position.step
        self.progress.rewind(self.position.step)
        if values.get("threads") != torch.get_num_threads():
            self.progress.tell(
                "the checkpoint was made with {before} threads, this run has {now}: sums may differ in their "
                "last bit",
                before=values.get("threads"),
                now=torch.get_num_threads(),
            )


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that holds NaN or an infinity."""
    return next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None)


def _some(index: list[int]) -> Text:
    shown = ", ".join(map(str, index[:20]))
    return say("{shown} and {more} more", shown=shown, more=len(index) - 20) if len(index) > 20 else shown
