from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cutaway.train.loss import IGNORED, cross_entropy


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
    assert float(total.detach()) / count == pytest.approx(float(reference.detach()), rel=1e-6)
    for mine, other in zip(ours, theirs, strict=True):
        if other.grad is not None:
            assert mine.grad is not None
            torch.testing.assert_close(mine.grad, other.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_padding_adds_nothing(smoothing: float) -> None:
    """faults.md 44: a padded batch's loss is that of its counted rows alone."""
    hidden, weight, bias, labels = problem()
    counted = labels != IGNORED
    padded, n = cross_entropy(hidden, weight, bias, labels, smoothing=smoothing)
    alone, m = cross_entropy(hidden[counted], weight, bias, labels[counted], smoothing=smoothing)
    assert n == m
    assert float(padded) == pytest.approx(float(alone), abs=1e-9)


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
