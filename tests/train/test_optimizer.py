import pytest
import torch
from tests.train.conftest import FAMILIES, tiny
from torch import nn

from cutaway.config import ModelConfig
from cutaway.errors import CutawayError
from cutaway.models.build import Model, build
from cutaway.train.optimizer import Average, Muon, Optimizer, hidden_matrices, orthogonal, undecayed
from cutaway.train.recipe import AverageName, OptimizerName


def with_gradients(config: ModelConfig) -> Model:
    torch.manual_seed(0)
    model = build(config)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_no_decay_on_norms_biases_and_embeddings(family: str, tied: bool) -> None:
    """With a zero gradient only decay moves a weight, so what stays is exactly what is not decayed."""
    model = with_gradients(tiny(family, tied=tied, position="learned"))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
        with torch.no_grad():
            p.add_(1.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    Optimizer(model, lr=0.1, weight_decay=0.5).step(1.0)
    still = {name for name, p in model.named_parameters() if torch.equal(p, before[name])}
    assert still == undecayed(model)
    assert {name for name in before if name.endswith("bias") or "norm" in name} <= still
    assert any("tokens" in name for name in still) and any("position" in name for name in still)
    assert any(name.endswith("q_proj.weight") for name in set(before) - still)
    assert ("head.unembed.weight" in before and "head.unembed.weight" not in still) == (not tied)


@pytest.mark.parametrize("family", FAMILIES)
def test_muon_takes_the_matrices_inside(family: str) -> None:
    model = build(tiny(family, tied=False, position="learned"))
    inside = hidden_matrices(model)
    assert inside and all(model.get_parameter(name).ndim == 2 for name in inside)
    assert not any(name.startswith(("head", "embed", "source_embed", "target_embed")) for name in inside)
    shapes = {name for name, p in model.named_parameters() if p.ndim == 2}
    assert all("embed" in name or name.startswith("head") for name in shapes - inside)


def test_muon_is_torchs_muon() -> None:
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in ((8, 8), (16, 8), (8, 8), (8, 24))]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    mine = Muon(ours, momentum=0.9, weight_decay=0.1)
    reference = torch.optim.Muon(
        theirs, lr=0.1, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(3):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        mine.step(0.1)
        reference.step()
    # torch iterates in bf16, ours where hardware does
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, atol=0.02, rtol=0.02)


def test_orthogonal_brings_singular_values_near_one() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(3, 24, 12), 5).float())
    assert values.shape == (3, 12)
    assert float(values.min()) > 0.5 and float(values.max()) < 1.3


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_state_comes_back(name: OptimizerName) -> None:
    config = tiny("encoder-decoder")
    straight, resumed = with_gradients(config), with_gradients(config)
    first, second = Optimizer(straight, name, lr=0.01), Optimizer(resumed, name, lr=0.01)
    first.step(1.0)
    resumed.load_state_dict(straight.state_dict())
    second.restore(first.state())
    first.step(0.5)
    second.step(0.5)
    for p, q in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(p, q)
    with pytest.raises(CutawayError, match=r"'nowhere\.weight'"):
        second.restore({"nowhere.weight/step": torch.zeros(())})


def test_the_factor_scales_the_step() -> None:
    config = tiny("decoder-only")
    whole, half = with_gradients(config), with_gradients(config)
    start = next(whole.parameters()).detach().clone()
    Optimizer(whole, lr=0.01).step(1.0)
    Optimizer(half, lr=0.01).step(0.5)
    torch.testing.assert_close(next(half.parameters()) - start, (next(whole.parameters()) - start) / 2)


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
def test_an_average_comes_back(name: AverageName) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    first, second = Average(model, name, every=2, count=2), Average(model, name, every=2, count=2)
    walk(model, first, 5)
    second.restore(first.state(), first.updates)
    assert second.updates == 5
    for key, value in first.state().items():
        assert torch.equal(second.state()[key], value)
