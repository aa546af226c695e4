"""How good a model is: loss, bits per byte, BLEU and chrF of its translations."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch

from cutaway.errors import CutawayError
from cutaway.models.build import Model
from cutaway.text.batches.batch import Batch
from cutaway.train.objective import Objective


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The result of one validation."""

    loss: float  # nats per counted token
    tokens: int
    bits_per_byte: float | None = None
    translation: dict[str, float] = field(default_factory=dict)  # "bleu zh>en" -> 20.1
    samples: list[tuple[str, str, str]] = field(default_factory=list)  # source, output, reference

    def values(self) -> dict[str, float]:
        """The numbers by name, for logs."""
        found = {"loss": self.loss}
        if self.bits_per_byte is not None:
            found["bits_per_byte"] = self.bits_per_byte
        return found | self.translation


@dataclass(frozen=True, kw_only=True)
class Direction:
    """Sentences with their references, translated at every validation."""

    source: str  # "zh"
    target: str  # "en"
    texts: list[str]
    references: list[str]


@dataclass(frozen=True, kw_only=True)
class Validator:
    """Validates a model: the same batches, the same masked positions, every time."""

    batches: list[Batch]
    objective: Objective  # without label smoothing
    n_bytes: int | None = None  # UTF-8 bytes of the text whose tokens the batches count, for bits per byte
    directions: list[Direction] = field(default_factory=list)
    samples: int = 3
    translate: Callable[[Model, list[str], str], list[str]] | None = None  # (model, texts, target language)

    def __call__(self, model: Model, interrupted: Callable[[], bool] = lambda: False) -> Scores | None:
        """Scores of `model` as it stands (the caller sets eval mode, no_grad and autocast), or None when
        `interrupted` said so in between."""
        measured = mean_loss(model, self.batches, self.objective, interrupted)
        if measured is None:
            return None
        loss, tokens = measured
        bits = None if self.n_bytes is None else loss * tokens / math.log(2) / max(self.n_bytes, 1)
        results: dict[str, float] = {}
        samples: list[tuple[str, str, str]] = []
        for direction in self.directions:
            assert self.translate is not None
            outputs: list[str] = []
            for start in range(0, len(direction.texts), 64):
                if interrupted():
                    return None
                outputs += self.translate(model, direction.texts[start : start + 64], direction.target)
            name = f"{direction.source}>{direction.target}"
            bleu, chrf = translation_scores(outputs, direction.references, direction.target)
            results |= {f"bleu {name}": bleu, f"chrf {name}": chrf}
            samples += list(zip(direction.texts, outputs, direction.references, strict=True))[: self.samples]
        return Scores(loss=loss, tokens=tokens, bits_per_byte=bits, translation=results, samples=samples)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch where the model is."""
    if batch.labels.device == device:
        return batch
    inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.inputs.items()}
    return replace(batch, inputs=inputs, labels=batch.labels.to(device, non_blocking=True))


def mean_loss(
    model: Model,
    batches: Iterable[Batch],
    objective: Objective,
    interrupted: Callable[[], bool] = lambda: False,
) -> tuple[float, int] | None:
    """Loss per counted token over all batches, each token once whatever the batches, and the number of tokens.

    None when `interrupted` said so in between. Raises CutawayError when nothing is counted: an empty set has no loss.
    """
    total, tokens = 0.0, 0
    device = next(model.parameters()).device
    for i, batch in enumerate(batches):
        if interrupted():
            return None
        loss, count = objective(model, to_device(batch, device), i)
        total, tokens = total + float(loss), tokens + count
    if tokens == 0:
        raise CutawayError("the validation set has no token to predict; give it longer texts")
    return total / tokens, tokens


def translation_scores(outputs: list[str], references: list[str], target: str) -> tuple[float, float]:
    """Corpus BLEU and chrF by sacreBLEU; Chinese is scored with its own tokenisation (`zh`)."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu = BLEU(tokenize="zh" if target.startswith(("zh", "cmn")) else "13a")
    return bleu.corpus_score(outputs, [references]).score, CHRF().corpus_score(outputs, [references]).score
