"""From a recipe of word vectors to a finished model: texts become sequences of words, and every word of them a step.

A step of the run is `step_words` words. Threads take parts of it as they come and write into the same two matrices
without a lock (Recht et al. 2011): two of them seldom meet in a row. One thread takes them in order, and the same seed
then gives the same bits, whether the run was stopped in between or not.
"""

import hashlib
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from cutaway.checkpoint.word_vectors import save_vectors
from cutaway.config import parse, to_dict
from cutaway.errors import CutawayError
from cutaway.models.word2vec import Word2Vec, Word2VecConfig, all_rows, huffman
from cutaway.text.corpus import raw_lines
from cutaway.text.sequences import Sequences, cutter, gather
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.train.data import read_texts
from cutaway.train.machine import Interrupts, draw_seed, give_back_memory
from cutaway.train.progress import Progress, Tell
from cutaway.train.recipe import refuse_changes
from cutaway.train.state import Position, RunFolder, past_recipe, read_state
from cutaway.train.word_recipe import WordRecipe, parse_word_recipe

PART = 10_000  # words that a thread takes at a time, at one learning rate


def train_vectors(recipe: WordRecipe, interrupted: Interrupts | None = None) -> Position:
    """Train what `recipe` says and export it to `<run folder>/model`, as `train.run.train` does for Transformers.

    Raises CutawayError for a user's mistakes, where numba is not installed, and for a loss that is no number.
    """
    if find_spec("numba") is None:
        raise CutawayError(
            "training word vectors needs numba, which is not installed; pip install 'cutaway[word2vec]'"
        )
    place = Path(recipe.data.folder)
    for source in recipe.data.sources:
        # every file can be opened, before the first is read to its end
        next(iter(raw_lines(place / source.path)), None)
    with RunFolder(recipe.folder) as folder:
        progress = Progress(folder.path / "log.jsonl")
        newest = folder.newest(progress.tell)
        if newest is not None:
            refuse_changes(past_recipe(newest), recipe, folder.path, parse_word_recipe)
        text = read_sequences(recipe, progress.tell)
        give_back_memory()
        torch.manual_seed(recipe.run.seed)
        values = to_dict(recipe.model) | {"vocab_size": len(text.words)}
        model = Word2Vec(parse(Word2VecConfig, values, recipe.run.name))
        trainer = WordTrainer(recipe, model, text, folder, progress)
        if newest is not None:
            trainer.resume(newest)
            progress.tell("resumed from {path} (step {step})", path=newest, step=trainer.position.step)
        else:
            progress.rewind(0)
        progress.tell(
            "{count:,} words, {width} numbers each; {tokens:,} words of text, {epochs} times; {threads} threads",
            count=len(text.words),
            width=model.config.d_model,
            tokens=len(text.ids),
            epochs=recipe.train.epochs,
            threads=trainer.threads,
        )
        with interrupted or nullcontext():
            position = trainer.run(interrupted or (lambda: False))
        if not trainer.finished:
            progress.tell(
                "stopped by a signal; step {step} is saved, the same command goes on", step=position.step
            )
        else:
            done = folder.export(folder.at(position.step))
            progress.tell("{path}: the model of step {step}", path=done, step=position.step)
        return position


def read_sequences(recipe: WordRecipe, tell: Tell) -> Sequences:
    """The texts of a recipe as sequences of word ids."""
    part = recipe.words
    tokenizer = None if part.tokenizer is None else Tokenizer.open(part.tokenizer)
    cut = cutter(part.cut, part.lowercase, tokenizer)
    texts = (text for source in recipe.data.sources for text in read_texts(source, recipe.data.folder, tell))
    return gather(
        map(cut, texts), min_count=part.min_count, phrases=part.phrases, threshold=part.phrase_threshold
    )


def keep_shares(counts: np.ndarray, subsample: float) -> np.ndarray:
    """How likely an occurrence of each word is kept, in float32: (√(f/t) + 1)·t/f of its share f of the text, at most 1
    (word2vec's code; Mikolov et al. 2013b, §2.3 has √(t/f))."""
    if subsample == 0:
        return np.ones(len(counts), dtype=np.float32)
    share = counts / (counts.sum() * subsample)
    return np.minimum(1, (np.sqrt(share) + 1) / share).astype(np.float32)


class WordTrainer:
    """Trains `model` on `text`, in steps that can be resumed."""

    def __init__(
        self, recipe: WordRecipe, model: Word2Vec, text: Sequences, folder: RunFolder, progress: Progress
    ):
        from cutaway.train.word_kernel import Plan, alias_table, learn

        self.recipe, self.model, self.text = recipe, model, text
        self.folder, self.progress, self._learn = folder, progress, learn
        self.threads = recipe.run.threads or torch.get_num_threads()
        self.position = Position()
        config, part, counts = model.config, recipe.train, text.counts
        tree = config.output == "hierarchical"
        none = np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
        starts, rows = all_rows(text.words.words, config)
        self.plan = Plan(
            text.ids, text.starts, keep_shares(counts, part.subsample), starts, rows,
            *alias_table(counts**part.exponent), *(huffman(text.words.counts) if tree else none),
            part.window, 0 if tree else part.negatives, config.context == "cbow",
        )  # fmt: skip
        # sequences are not divided: a part begins with the first that begins in its stretch of words
        marks = np.arange(0, len(text.ids), PART)
        firsts = np.searchsorted(text.starts[:-1], marks)
        self.parts = np.unique(np.append(firsts, len(text.starts) - 1))
        per_step = max(1, part.step_words // PART)
        self.firsts = list(range(0, len(self.parts) - 1, per_step))  # of each step of an epoch
        self.total = part.epochs * len(self.firsts)
        self.digest = hashlib.blake2b(
            text.ids.tobytes() + text.starts.tobytes() + "\n".join(text.words.words).encode(), digest_size=16
        )
        self._sums: list[float] = [0.0, 0.0]  # losses and pairs of this epoch so far
        # made into machine code here, which is no time of training
        learn(self.plan, 0, 0, *self._tables(), 0.0, np.uint64(0))

    @property
    def finished(self) -> bool:
        return self.position.step >= self.total

    def run(self, interrupted: Callable[[], bool]) -> Position:
        """Train until all epochs are done or a signal comes; the last state is saved."""
        at, saved = self.position, self.position.step
        with self.progress, ThreadPoolExecutor(self.threads) as pool:
            while not self.finished and not interrupted():
                self._step(pool)
                if at.step % self.recipe.train.save_every == 0:
                    self.save()
                    saved = at.step
            if at.step != saved:
                self.save()
        return at

    def _step(self, pool: ThreadPoolExecutor) -> None:
        at, started = self.position, time.monotonic()
        epoch, n = divmod(at.step, len(self.firsts))
        ends = [*self.firsts[1:], len(self.parts) - 1]
        loss, pairs = self.read(pool, epoch, range(self.firsts[n], ends[n]))
        words = int(self.plan.starts[self.parts[ends[n]]] - self.plan.starts[self.parts[self.firsts[n]]])
        at.step += 1
        at.tokens += words
        if not math.isfinite(loss):
            raise CutawayError(
                "stopped at step {step}: the loss is not finite, so this step is not saved. Earlier checkpoints lie in "
                "{path}; a lower train.lr may help",
                step=at.step,
                path=self.folder.path,
            )
        seconds = time.monotonic() - started
        at.seconds += seconds
        entry: dict[str, object] = {"step": at.step, "tokens": words, "lr": self._rate(epoch, ends[n] - 1)}
        if pairs:
            entry |= {"loss": loss / pairs, "pairs": pairs}
        self.progress.step(entry, seconds, at.step / self.total, at.seconds)
        self._sums = [self._sums[0] + loss, self._sums[1] + pairs]
        if n == len(self.firsts) - 1:
            mean = self._sums[0] / max(1, self._sums[1])
            at.history.append(
                {"step": at.step, "epoch": epoch + 1, "loss": mean, "pairs": int(self._sums[1])}
            )
            self._sums = [0.0, 0.0]
            self.progress.tell("epoch {epoch}: loss {loss:.6f} a pair", epoch=epoch + 1, loss=mean)

    def read(self, pool: ThreadPoolExecutor, epoch: int, parts: range) -> tuple[float, int]:
        """Learn from parts of the text as the threads of `pool` take them. Returns the sum of the losses in float64 and
        the number of pairs."""
        results = list(pool.map(lambda part: self._part(epoch, part), parts))
        return math.fsum(loss for loss, _ in results), sum(pairs for _, pairs in results)

    def _rate(self, epoch: int, part: int) -> float:
        """The learning rate of a part: linear in the words read before it."""
        words, whole = int(self.plan.starts[self.parts[part]]), len(self.text.ids)
        done = (epoch * whole + words) / (self.recipe.train.epochs * whole)
        return self.recipe.lr + (self.recipe.train.end_lr - self.recipe.lr) * done

    def _part(self, epoch: int, part: int) -> tuple[float, int]:
        first, last = self.parts[part : part + 2].tolist()
        seed = np.uint64(draw_seed(self.recipe.run.seed, epoch, part))
        loss, pairs = self._learn(self.plan, first, last, *self._tables(), self._rate(epoch, part), seed)
        return float(loss), int(pairs)

    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        """The two matrices, which share their memory with the model's."""
        return self.model.embed.weight.detach().numpy(), self.model.unembed.weight.detach().numpy()

    def save(self) -> None:
        """Save a checkpoint of this step; the model's two matrices are all that learning changes."""
        values = {
            "version": 1,
            "position": asdict(self.position),
            "sums": self._sums,
            "text": self.digest.hexdigest(),
            "recipe": to_dict(self.recipe),
        }
        step = torch.tensor([self.position.step])
        self.folder.save(
            self.position.step,
            lambda path: save_vectors(path, self.model, self.text.words),
            {"step": step},
            values,
        )
        for failure in self.folder.retain(self.recipe.train.keep, {}):
            self.progress.tell(failure)

    def resume(self, path: Path) -> None:
        """Go on from the checkpoint at `path`. Raises CutawayError where the texts are others now."""
        from cutaway.checkpoint.word_vectors import load_vectors

        _, values = read_state(path)
        position, sums = values.get("position"), values.get("sums")
        if not isinstance(position, dict) or not isinstance(sums, list):
            raise CutawayError(
                "{path}: not a training state of this version; train it anew, or with the version that wrote it",
                path=path / "training.json",
            )
        if values.get("text") != self.digest.hexdigest():
            raise CutawayError(
                "{path} was learned from other texts than data.sources give now; put them back to resume, or give this "
                "run another run.name",
                path=path,
            )
        theirs = load_vectors(path).model
        with torch.no_grad():
            self.model.embed.weight.copy_(theirs.embed.weight)
            self.model.unembed.weight.copy_(theirs.unembed.weight)
        self.position, self._sums = Position(**position), [float(each) for each in sums]
        self.progress.rewind(self.position.step)
