from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.nearness import assert_near, tolerance
from tests.train.conftest import FAMILIES, MASK, VOCABULARY, examples, tiny
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from cutaway.config import ModelConfig
from cutaway.models.build import build
from cutaway.tap import Trace
from cutaway.text.batches.batch import IGNORED, Batch
from cutaway.train.objective import balanced, balancing_loss, cross_entropy, mask_tokens, next_token


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
        total, tokens = 0.0, 0
        for batch in examples(family, rows=rows).once():
            loss, count = next_token(0.0)(model, batch, 0)
            loss.backward()
            total, tokens = total + float(loss.detach()), tokens + count
        results.append((total, tokens, [p.grad for p in model.parameters() if p.grad is not None]))
        model.zero_grad(set_to_none=True)
    (total, tokens, gradients), (other_total, other_tokens, others) = results
    assert tokens == other_tokens
    assert total == pytest.approx(other_total, rel=tolerance(1, tokens))
    # They are sums of like terms, which may cancel out: no key's bias has any gradient.
    size = max(float(gradient.abs().max()) for gradient in gradients)
    for one, other in zip(gradients, others, strict=True):
        assert_near(one, other, tokens, size)


def problem(n: int = 300, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, 16, generator=draws)
    weight = torch.randn(50, 16, generator=draws)
    bias = torch.randn(50, generator=draws)
    labels = torch.randint(50, (n,), generator=draws)
    labels[::3] = IGNORED
    return hidden, weight, bias, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rows", [7, 256, 1000])
def test_equals_torch_on_padded_rows(smoothing: float, scale: float, with_bias: bool, rows: int) -> None:
    hidden, weight, bias, labels = problem()
    ours = [t.clone().requires_grad_() for t in (hidden, weight, bias)]
    theirs = [t.clone().requires_grad_() for t in (hidden, weight, bias)]
    total, count = cross_entropy(
        ours[0], ours[1], ours[2] if with_bias else None, labels, smoothing=smoothing, scale=scale, rows=rows
    )
    logits = F.linear(theirs[0], theirs[1], theirs[2] if with_bias else None) * scale
    reference = F.cross_entropy(logits, labels, ignore_index=IGNORED, label_smoothing=smoothing)
    (total / count).backward()
    reference.backward()
    assert count == 200
    assert float(total.detach()) / count == pytest.approx(float(reference.detach()), rel=tolerance(1, 200))
    for mine, other in zip(ours, theirs, strict=True):
        if other.grad is not None:
            assert mine.grad is not None
            assert_near(mine.grad, other.grad, 200)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_padding_adds_nothing(smoothing: float) -> None:
    """faults.md 44: a padded batch's loss is that of its counted rows alone."""
    hidden, weight, bias, labels = problem()
    counted = labels != IGNORED
    padded, n = cross_entropy(hidden, weight, bias, labels, smoothing=smoothing)
    alone, m = cross_entropy(hidden[counted], weight, bias, labels[counted], smoothing=smoothing)
    assert n == m
    assert float(padded) == pytest.approx(float(alone), rel=tolerance(1, n))


def test_nothing_counted_is_zero_without_nan() -> None:
    hidden, weight, bias, labels = problem()
    hidden.requires_grad_()
    weight.requires_grad_()
    total, count = cross_entropy(hidden, weight, bias, torch.full_like(labels, IGNORED), smoothing=0.1)
    total.backward()
    assert (float(total.detach()), count) == (0.0, 0)
    assert hidden.grad is not None and weight.grad is not None
    assert float(hidden.grad.abs().sum() + weight.grad.abs().sum()) == 0.0


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, Tensor):
                self.numel = max(self.numel, value.numel())
        return result


def test_never_holds_a_score_for_every_row_and_word() -> None:
    hidden, weight, labels = torch.randn(512, 8), torch.randn(200, 8), torch.randint(200, (512,))
    hidden.requires_grad_()
    weight.requires_grad_()
    with Largest() as largest:
        total, _ = cross_entropy(hidden, weight, None, labels, rows=32)
        total.backward()
    assert largest.numel == max(32 * 200, 512 * 8)


def test_without_gradients_none_are_formed() -> None:
    hidden, weight, bias, labels = problem()
    weight.requires_grad_()
    with torch.no_grad():
        total, _ = cross_entropy(hidden, weight, bias, labels)
    assert not total.requires_grad
    again, _ = cross_entropy(hidden, weight, bias, labels)
    assert float(total) == float(again.detach())


def test_autocast_products_are_bf16_and_the_softmax_is_not() -> None:
    hidden, weight, bias, labels = problem(n=600)
    exact, count = cross_entropy(hidden, weight, bias, labels, smoothing=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        rough, _ = cross_entropy(hidden, weight, bias, labels, smoothing=0.1)
    rounded = F.cross_entropy(
        (hidden.bfloat16() @ weight.bfloat16().t() + bias.bfloat16()).float(),
        labels,
        ignore_index=IGNORED,
        label_smoothing=0.1,
    )
    assert float(rough) != float(exact)
    assert float(rough) / count == pytest.approx(float(rounded), rel=1e-3)


@pytest.mark.parametrize("n_per_token", [1, 2, 3])
def test_the_balancing_loss_is_that_of_transformers(n_per_token: int) -> None:
    draws = torch.Generator().manual_seed(1)
    layers = [torch.randn(2, 7, 5, generator=draws, requires_grad=True) for _ in range(3)]
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, 4:] = False
    ours = balancing_loss([logits[mask] for logits in layers], n_per_token)
    # it takes a tuple of any length, whatever it says
    flat: Any = tuple(logits.flatten(0, 1) for logits in layers)
    theirs = load_balancing_loss_func(flat, 5, n_per_token, mask.long())
    assert isinstance(theirs, Tensor)
    assert_near(ours, theirs, terms=42)
    for one, other in zip(
        torch.autograd.grad(ours, layers), torch.autograd.grad(theirs, layers), strict=True
    ):
        assert_near(one, other, terms=42)
    even = torch.eye(5).repeat(2, 1) * 1e-3
    assert balancing_loss([even], 1) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_experts_are_kept_equally_busy(family: str) -> None:
    """The loss of a batch has the balancing loss of its real tokens, however much padding there is."""
    torch.manual_seed(0)
    config = tiny(family, n_layers=2, n_experts=4, n_experts_per_token=2, router_aux_coef=0.5)
    model = build(config).eval()
    plain = next_token()
    assert balanced(plain, build(tiny(family))) is plain
    assert balanced(plain, build(tiny(family, n_experts=4, router_aux_coef=0.0))) is plain
    (batch, *_) = examples(family, count=9, rows=9).once()
    loss, count = plain(model, batch, 0)
    with Trace(model, watch=["*.router"]) as trace:
        model.hidden(**batch.inputs)
    real = {"encoder": batch.inputs.get("source_mask"), "decoder": batch.labels != IGNORED}
    if family == "encoder-only":
        real["encoder"] = batch.inputs.get("mask")
    scores = [
        logits if real[name.partition(".")[0]] is None else logits[real[name.partition(".")[0]]]
        for name, (logits,) in trace.calls.items()
    ]
    assert len(scores) == (4 if family == "encoder-decoder" else 2)
    both, again = balanced(plain, model)(model, batch, 0)
    assert again == count
    assert_near((both - loss).float(), 0.5 * count * balancing_loss(scores, 2), terms=count)
