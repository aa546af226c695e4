"""What a translation loses without each source token, against forward passes that read the source without it."""

import math
import random
import statistics
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cutaway import CutawayError, find, load
from cutaway.inspection.runs import Run, Tokens, run
from cutaway.inspection.source_effect import agreement, rank_correlation, source_effect
from cutaway.zoo import TRANSLATOR

RunOf = Callable[..., Run]


@torch.no_grad()
def log_probs(asked: Run, source: Tensor) -> Tensor:
    """Of the outcome (T,), by one plain forward pass that reads `source` (1, S)."""
    logits = asked.model(source=source, target=asked.inputs["target"])[0].double()
    return logits.log_softmax(dim=-1)[range(len(asked.outcome)), asked.outcome.ids]


def without(asked: Run, s: int) -> Tensor:
    """The same of a source that never had token s."""
    source = asked.inputs["source"]
    return log_probs(asked, torch.cat([source[:, :s], source[:, s + 1 :]], dim=1))


@pytest.mark.parametrize("structure", ["post-norm pair", "pre-norm pair", "pair with experts"])
def test_it_is_that_of_a_source_without_the_token(run_of: RunOf, structure: str) -> None:
    asked = run_of(structure)
    plain = log_probs(asked, asked.inputs["source"])
    for batch_size in (64, 3):
        found = source_effect(asked, batch_size)
        assert found.effect.shape == (len(asked.outcome), len(found.source))
        torch.testing.assert_close(found.log_probs.double(), plain, rtol=0, atol=1e-4)
        for s in range(len(found.source)):
            torch.testing.assert_close(
                found.effect[:, s].double(), plain - without(asked, s), rtol=0, atol=1e-4
            )


def test_with_relative_positions_it_is_that_of_a_key_nobody_sees(run_of: RunOf) -> None:
    asked = run_of("T5")
    found, plain = source_effect(asked), log_probs(asked, asked.inputs["source"])
    gone = asked.inputs["source"].shape[1] // 2

    def hide(masked: Tensor) -> Tensor:
        masked = masked.clone()
        masked[..., gone] = -math.inf
        return masked

    paths = ("encoder.layers.*.self_attn.masked", "decoder.layers.*.cross_attn.masked")
    logits, _ = asked.forward(edit=dict.fromkeys(paths, hide))
    rows = range(len(asked.outcome))
    hidden = logits.double().log_softmax(dim=-1)[rows, asked.outcome.ids]
    torch.testing.assert_close(found.effect[:, gone].double(), plain - hidden, rtol=0, atol=1e-4)


def test_on_the_bundled_translator() -> None:
    asked = run(load(find(TRANSLATOR)), "I love you.")
    found, plain = source_effect(asked), log_probs(asked, asked.inputs["source"])
    for s in range(len(found.source)):
        torch.testing.assert_close(found.effect[:, s].double(), plain - without(asked, s), rtol=0, atol=1e-3)


def test_a_source_of_one_token_may_be_hidden_too(run_of: RunOf) -> None:
    whole = run_of("post-norm pair")
    assert whole.source is not None
    first = Tokens(whole.source.ids[:1], whole.source.pieces[:1])
    assert source_effect(Run(whole.loaded, first, whole.target, whole.outcome)).effect.isfinite().all()


def test_what_has_no_source_is_refused(run_of: RunOf) -> None:
    with pytest.raises(CutawayError, match="of the decoder-only family and has no source"):
        source_effect(run_of("GPT-2"))
    with pytest.raises(CutawayError, match="batch_size is 0, expected at least 1"):
        source_effect(run_of("T5"), 0)


def ranks(values: list[float]) -> list[float]:
    """From 1: how many are smaller, and half of the others that are equal."""
    return [
        1 + sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def test_rank_correlation_with_ties() -> None:
    chance = random.Random(3)
    for n in (2, 5, 30):
        for _ in range(10):
            left, right = ([float(chance.randrange(6)) for _ in range(n)] for _ in range(2))
            found = rank_correlation(torch.tensor(left), torch.tensor(right))
            if len(set(left)) == 1 or len(set(right)) == 1:
                assert found is None
            else:
                assert found == pytest.approx(statistics.correlation(ranks(left), ranks(right)), abs=1e-9)
    assert rank_correlation(torch.tensor([0.1, 2.0, 3.0]), torch.tensor([-5.0, 0.0, 9.0])) == pytest.approx(1)


def test_agreement_compares_within_rows_and_over_all_cells() -> None:
    generator = torch.Generator().manual_seed(5)
    weights, effect = torch.rand(4, 6, generator=generator), torch.randn(4, 6, generator=generator)
    weights[2] = 0.25
    for keys in (None, [1, 2, 4]):
        found = agreement(weights, effect, keys)
        at = list(keys or range(6))
        assert found.keys == tuple(at)
        a, b = weights[:, at].tolist(), effect[:, at].tolist()
        rows = [None if t == 2 else statistics.correlation(ranks(a[t]), ranks(b[t])) for t in range(4)]
        assert found.rows == pytest.approx(tuple(rows))
        assert found.mean == pytest.approx(statistics.fmean(row for row in rows if row is not None))
        whole = statistics.correlation(
            ranks([x for row in a for x in row]), ranks([x for row in b for x in row])
        )
        assert found.pooled == pytest.approx(whole)


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CutawayError, match=r"shape \[2, 3\] and effects \[3, 2\], expected one"):
        agreement(torch.rand(2, 3), torch.rand(3, 2))
    with pytest.raises(CutawayError, match="there is no source token 3, expected 0 to 2"):
        agreement(torch.rand(2, 3), torch.rand(2, 3), [3])
