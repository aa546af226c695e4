import pytest
import torch
from torch import nn

from cutaway.train.average import Average, AverageName


def walk(model: nn.Linear, average: Average, steps: int) -> list[torch.Tensor]:
    seen = []
    for _ in range(steps):
        with torch.no_grad():
            model.weight.add_(1.0)
        average.update()
        seen.append(model.weight.detach().clone())
    return seen


def test_ema_follows_its_formula() -> None:
    model = nn.Linear(2, 2, bias=False)
    expected = model.weight.detach().clone()
    average = Average(model, "ema", decay=0.5)
    for n, weight in enumerate(walk(model, average, 20), 1):
        decay = min(0.5, (1 + n) / (10 + n))
        expected = decay * expected + (1 - decay) * weight
    with average.swapped():
        torch.testing.assert_close(model.weight.detach(), expected)


def test_mean_takes_the_last_snapshots() -> None:
    model = nn.Linear(2, 2, bias=False)
    average = Average(model, "mean", count=3, every=2)
    seen = walk(model, average, 11)
    with average.swapped():
        torch.testing.assert_close(model.weight.detach(), (seen[5] + seen[7] + seen[9]) / 3)


@pytest.mark.parametrize("name", ["none", "ema", "mean"])
def test_the_raw_weights_come_back_bit_for_bit(name: AverageName) -> None:
    model = nn.Linear(3, 3)
    average = Average(model, name, every=1)
    walk(model, average, 4)
    raw = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(KeyError), average.swapped():
        raise KeyError
    assert all(torch.equal(p, value) for p, value in zip(model.parameters(), raw, strict=True))


@pytest.mark.parametrize("name", ["ema", "mean"])
def test_state_comes_back(name: AverageName) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    first, second = Average(model, name, every=2, count=2), Average(model, name, every=2, count=2)
    walk(model, first, 5)
    second.restore(first.state(), first.updates)
    assert second.updates == 5
    for key, value in first.state().items():
        assert torch.equal(second.state()[key], value)
