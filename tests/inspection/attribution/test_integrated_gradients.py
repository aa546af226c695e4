"""Integrated gradients are complete, and are the integral that a plain sum of very many points gives."""

from collections.abc import Callable

import pytest
import torch

from cutaway import CutawayError, Trace, find, load
from cutaway.inspection.attribution.integrated_gradients import integrated_gradients
from cutaway.inspection.runs import Run, run

STRUCTURES = [
    "pre-norm pair", "post-norm pair", "T5", "Llama", "GPT-2", "Gemma 2", "sandwich of layer norms", "BERT",
    "masked, pre-norm",
]  # fmt: skip


def embeddings(read: Run) -> list[str]:
    """The modules that turn ids into token vectors."""
    return ["source_embed", "target_embed"] if hasattr(read.model, "source_embed") else ["embed"]


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("baseline", [None, 3])
def test_shares_sum_to_what_the_way_gains(
    run_of: Callable[..., Run], structure: str, baseline: int | None
) -> None:
    read, position, token = run_of(structure, n_layers=2), 4, 11
    found = integrated_gradients(read, position, token, baseline=baseline)

    def start(x: torch.Tensor) -> torch.Tensor:
        if baseline is None:
            return torch.zeros_like(x)
        table = read.model.get_submodule(embeddings(read)[0] + ".tokens")
        assert isinstance(table, torch.nn.Embedding)
        return (table.weight[baseline] * read.model.config.embed_scale).expand_as(x)

    there, before = (
        float(read.forward(edit=edit)[0][position].double().log_softmax(dim=-1)[token])
        for edit in ({}, {f"{name}.embed": start for name in embeddings(read)})
    )
    assert found.value == pytest.approx(there, abs=1e-4)
    assert found.baseline_value == pytest.approx(before, abs=1e-4)
    assert found.difference == pytest.approx(there - before - found.total, abs=1e-3)
    assert sum(float(share.sum()) for share in found.shares.values()) == pytest.approx(
        there - before, rel=0.01, abs=2e-3
    )
    assert found.points is not None and found.points <= 1200


@pytest.mark.parametrize("structure", ["GPT-2", "BERT"])
def test_each_share_is_the_integral_of_its_token(run_of: Callable[..., Run], structure: str) -> None:
    """Against a midpoint sum of 600 points."""
    read, position, token = run_of(structure), 4, 11
    found = integrated_gradients(read, position, token, quantity="logit", baseline=3, tolerance=1e-4)
    table = read.model.get_submodule("embed.tokens")
    ids = read.inputs["ids"]
    with torch.no_grad():
        x, b = table(ids), table(torch.full_like(ids, 3))  # (1, T, D)
    total, n = torch.zeros(ids.shape[1]), 600
    for first in range(0, n, 100):
        alpha = (torch.arange(first, first + 100) + 0.5)[:, None, None] / n
        points = (b + alpha * (x - b)).requires_grad_()
        with Trace(read.model, edit={"embed.embed": lambda _, points=points: points}):
            logits = read.model(ids.expand(100, -1))[:, position, token]
        (slope,) = torch.autograd.grad(logits.sum(), points)
        total += ((x - b) * slope).sum(dim=(0, 2)) / n
    (shares,) = found.shares.values()
    assert torch.allclose(shares, total.double(), atol=2e-3 * float(total.abs().max()))


def test_a_smaller_tolerance_takes_more_points_and_misses_less(run_of: Callable[..., Run]) -> None:
    rough, fine = (integrated_gradients(run_of("Llama"), 4, 11, tolerance=t) for t in (0.5, 0.001))
    assert rough.points is not None and fine.points is not None and rough.points < fine.points
    assert rough.difference is not None and fine.difference is not None
    assert abs(fine.difference) <= 0.001 * abs(fine.value - (fine.baseline_value or 0)) + 1e-5
    heard: list[int] = []
    least = integrated_gradients(run_of("Llama"), 4, 11, most_points=12, told=heard.append)
    assert least.points == 12 and not heard
    again = integrated_gradients(run_of("Llama"), 4, 11, tolerance=0.001, told=heard.append)
    assert heard[:2] == [12, 36] and again.points == fine.points


def test_where_experts_change_on_the_way_the_shares_cannot_be_complete(run_of: Callable[..., Run]) -> None:
    found = integrated_gradients(run_of("experts"), 4, 11, baseline=3, most_points=100)
    assert "a jump is no token's share" in found.approximate.en
    assert found.difference is not None and abs(found.difference) > 0.01
    assert found.difference == pytest.approx(found.value - (found.baseline_value or 0) - found.total)


def test_a_baseline_may_be_named_by_its_piece(run_of: Callable[..., Run]) -> None:
    found = integrated_gradients(run_of("GPT-2"), baseline="<pad>", tolerance=0.1)
    assert found.baseline == "<pad>"
    assert integrated_gradients(run_of("GPT-2"), tolerance=0.5).baseline == "zero"


def test_what_is_not_there_is_refused(run_of: Callable[..., Run]) -> None:
    read = run_of("GPT-2")
    with pytest.raises(CutawayError, match="most_points is 0, expected at least 12"):
        integrated_gradients(read, most_points=0)
    with pytest.raises(CutawayError, match="tolerance is 0, expected a number above 0"):
        integrated_gradients(read, tolerance=0)
    with pytest.raises(CutawayError, match="token id 999"):
        integrated_gradients(read, baseline=999)
    with pytest.raises(CutawayError, match="no output head"):
        integrated_gradients(run_of("no head"))


@pytest.mark.parametrize(
    ("name", "text", "position", "baseline"),
    [
        ("translate-zh-en", "我们明天去北京。", 2, None),
        ("poet-zh", "床前明月光，", -1, 0),
        ("bert-tiny", "She was [MASK] happy.", 3, None),
    ],
)
def test_bundled_models_are_complete_within_a_hundredth(
    name: str, text: str, position: int, baseline: int | None
) -> None:
    read = run(load(find(name)), text)
    found = integrated_gradients(read, position, baseline=baseline)
    assert found.difference is not None and found.baseline_value is not None
    assert abs(found.difference) < 0.01 * abs(found.value - found.baseline_value)
    gap = name == "bert-tiny"  # where the model's own token is told of
    written = int(read.forward()[0][position].argmax()) if gap else read.outcome.ids[position]
    assert found.token_id == written
