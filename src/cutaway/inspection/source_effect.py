"""What a translation depends on: how much less likely it becomes when a source token is hidden."""

# Shapes: T written tokens, S source tokens.

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.decode.score import score
from cutaway.errors import CutawayError
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.wiring import at_least_one, chosen
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.words import say


@dataclass(frozen=True)
class SourceEffect:
    """effect[t, s] = log p(y_t | y_<t, x) - log p(y_t | y_<t, x without s), in nats; above 0 where token s helped.

    Both by forced decoding of the run's outcome y. "Without s" hides source token s by the mask that hides padding
    (`source_mask` False there): no token attends to it, in the encoder or from the decoder, and where a model counts
    positions absolutely, the tokens after it move up by one, as if the text had never had it; with relative positions
    (T5, ALiBi) the gap stays. Exact for that question (leave one out; occlusion: Zeiler & Fergus 2014, §4; Li et al.
    2016). A model was not trained on such gaps, so an effect shows dependence, not purpose, and what several tokens
    say alike may show no effect of any of them.
    """

    source: Tokens
    outcome: Tokens
    log_probs: Tensor  # (T,), nothing hidden
    effect: Tensor  # (T, S)


@dataclass(frozen=True)
class Agreement:
    """How far attention weights and measured effects put the source tokens in the same order.

    Spearman's ρ: the correlation of ranks, equal values sharing the mean of their ranks; 1 the same order, -1 the
    reverse, None where one side is constant. `rows[t]` compares within target token t, `mean` is the mean of those
    that there are, `pooled` ranks all cells (t, s) together. A weight may be large without effect: Jain & Wallace 2019.
    """

    keys: tuple[int, ...]  # the source tokens compared
    rows: tuple[float | None, ...]
    mean: float | None
    pooled: float | None


def source_effect(run: Run, batch_size: int = 64) -> SourceEffect:
    """Hide every source token in turn, up to `batch_size` of them in one batch.

    Raises CutawayError for a model that reads no source, and for a batch size below 1.
    """
    model = run.model
    if not isinstance(model, EncoderDecoder) or run.source is None:
        raise CutawayError(
            "the effect of source tokens needs an encoder-decoder model; {path} is of the {family} "
            "family and has no source beside its text",
            path=run.loaded.path,
            family=run.loaded.config.family,
        )
    at_least_one(batch_size=batch_size)
    inputs = run.inputs
    source, target = inputs["source"], inputs["target"]
    labels = torch.tensor([run.outcome.ids], device=source.device)
    plain = run.checked(torch.tensor(score(model, inputs, labels)[0], device=source.device))
    rows: list[list[float]] = []
    for kept in (~torch.eye(source.shape[1], dtype=torch.bool, device=source.device)).split(batch_size):
        many = len(kept)  # kept (many, S)
        batch = {"source": source.expand(many, -1), "target": target.expand(many, -1), "source_mask": kept}
        rows += score(model, batch, labels.expand(many, -1))
    without = torch.tensor(rows, device=source.device).mT  # (T, S)
    return SourceEffect(run.source, run.outcome, plain, plain[:, None] - without)


def agreement(weights: Tensor, effect: Tensor, keys: Sequence[int] | None = None) -> Agreement:
    """Compare weights (T, S) with effects (T, S), over the source tokens `keys` (None: all).

    Raises CutawayError for shapes that differ and for a source token that there is not.
    """
    if weights.shape != effect.shape or weights.ndim != 2:
        raise CutawayError(
            "weights have the shape {weights} and effects {effects}, expected one (T, S)",
            weights=list(weights.shape),
            effects=list(effect.shape),
        )
    places = chosen(say("source token"), keys, weights.shape[1])
    left, right = weights[:, list(places)], effect[:, list(places)]
    rows = tuple(rank_correlation(a, b) for a, b in zip(left, right, strict=True))
    there = [row for row in rows if row is not None]
    mean = sum(there) / len(there) if there else None
    return Agreement(places, rows, mean, rank_correlation(left.flatten(), right.flatten()))


def rank_correlation(left: Tensor, right: Tensor) -> float | None:
    """Spearman's ρ of two lists (n,), in -1 to 1; None where either is constant (Spearman 1904)."""
    a, b = (_ranks(values.cpu()) for values in (left, right))
    a, b = a - a.mean(), b - b.mean()
    size = float(a.norm() * b.norm())
    return None if size == 0 else max(-1.0, min(1.0, float(a @ b) / size))


def _ranks(values: Tensor) -> Tensor:
    """Ranks in float64, from 1, equal values with the mean of theirs."""
    _, which, counts = values.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(dim=0).double()
    return (last - (counts - 1) / 2)[which]
