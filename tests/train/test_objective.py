import pytest
import torch
from tests.train.conftest import FAMILIES, MASK, VOCABULARY, examples, tiny

from cutaway.config import ModelConfig
from cutaway.models.build import build
from cutaway.text.batches.batch import IGNORED, Batch
from cutaway.train.loss import cross_entropy
from cutaway.train.objective import mask_tokens, next_token


def many(rows: int = 400) -> Batch:
    draws = torch.Generator().manual_seed(3)
    ids = torch.randint(4, VOCABULARY, (rows, 50), generator=draws)
    ids[:, 0] = 2
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 40:] = False
    labels = torch.where(mask, ids, torch.full_like(ids, IGNORED))
    return Batch({"ids": ids, "mask": mask}, labels, torch.arange(rows))


def test_masking_is_berts() -> None:
    """Devlin et al. 2019, §3.1: 15 % are predicted; of these 80 % masked, 10 % random, 10 % as they were."""
    batch = many()
    ids, labels = mask_tokens(batch, MASK, VOCABULARY, (0, 1, 2, 3), 0.15, seed=5)
    original, chosen = batch.inputs["ids"], labels != IGNORED
    assert torch.equal(labels[chosen], original[chosen])
    assert torch.equal(ids[~chosen], original[~chosen])
    assert not chosen[:, 0].any() and not chosen[:, 40:].any()
    n, free = int(chosen.sum()), 400 * 39
    assert n / free == pytest.approx(0.15, abs=0.01)
    assert int((ids[chosen] == MASK).sum()) / n == pytest.approx(0.8, abs=0.03)
    assert int((ids[chosen] == original[chosen]).sum()) / n == pytest.approx(0.1, abs=0.03)


def test_masking_depends_on_the_seed_alone() -> None:
    batch = many()
    one, again, other = (mask_tokens(batch, MASK, VOCABULARY, (0,), 0.15, seed=s) for s in (1, 1, 2))
    torch.rand(1)
    assert torch.equal(one[0], again[0]) and torch.equal(one[1], again[1])
    assert not torch.equal(one[1], other[1])


def test_a_short_row_still_has_something_to_predict() -> None:
    ids = torch.tensor([[2, 9, 3]])
    batch = Batch({"ids": ids}, ids.clone(), torch.arange(1))
    for seed in range(20):
        _, labels = mask_tokens(batch, MASK, VOCABULARY, (0, 1, 2, 3), 0.01, seed)
        assert labels.tolist() == [[IGNORED, 9, IGNORED]]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("changes", [{}, {"logit_scale": 0.5, "head_bias": True}, {"tied": False}])
def test_the_loss_is_that_of_the_models_logits(family: str, changes: dict[str, object]) -> None:
    torch.manual_seed(0)
    config: ModelConfig = tiny(family, head="masked" if family == "encoder-only" else "linear", **changes)
    model = build(config).eval()
    batch = next(examples(family))
    with torch.no_grad():
        loss, count = next_token(0.1)(model, batch, 0)
        logits = model(**batch.inputs)
        identity = torch.eye(VOCABULARY)
        expected, n = cross_entropy(logits, identity, None, batch.labels, smoothing=0.1)
    assert count == n == batch.tokens
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_no_gradient(family: str) -> None:
    """Two batches of the same rows, one with more padding: the same loss and gradients."""
    model = build(tiny(family)).eval()
    results = []
    for rows in (1, 40):
        model.zero_grad()
        total = 0.0
        for batch in examples(family, rows=rows).once():
            loss, _ = next_token(0.0)(model, batch, 0)
            loss.backward()
            total += float(loss.detach())
        results.append((total, [p.grad for p in model.parameters() if p.grad is not None]))
        model.zero_grad(set_to_none=True)
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-6)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-4)
