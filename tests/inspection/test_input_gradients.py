"""Gradients are what small steps measure, and integrated ones the integral that a plain sum of many points gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway import CutawayError, Trace
from cutaway.inspection.input_gradients import (
    Asked,
    Quantity,
    gradient_x_input,
    integrated_gradients,
)
from cutaway.inspection.runs import Run

RunOf = Callable[..., Run]
STRUCTURES = [
    "pre-norm pair", "post-norm pair", "T5", "Llama", "GPT-2", "Gemma 2", "sandwich of layer norms", "BERT",
    "masked, pre-norm",
]  # fmt: skip


def asked(read: Run, position: int, token: int) -> Asked:
    return Asked.of(read, position, token, "log_prob")


def embeddings(read: Run) -> dict[str, str]:
    """Side -> the tap of its token vectors."""
    if hasattr(read.model, "source_embed"):
        return {"encoder": "source_embed.embed", "decoder": "target_embed.embed"}
    return {"decoder" if hasattr(read.model, "decoder") else "encoder": "embed.embed"}


def score(
    read: Run, edit: dict[str, Callable[[Tensor], Tensor]], position: int, token: int, quantity: Quantity
) -> float:
    """The number itself in fp64, with token vectors changed by hand."""
    model = read.model.double()
    with torch.no_grad(), Trace(model, edit=edit):
        logits = model(**read.inputs)[0, position]
    model.float()
    return float((logits.log_softmax(dim=-1) if quantity == "log_prob" else logits)[token])


@pytest.mark.parametrize("structure", [*STRUCTURES, "experts"])
@pytest.mark.parametrize("quantity", ["logit", "log_prob"])
def test_gradient_x_input_is_what_a_small_step_measures(
    run_of: Callable[..., Run], structure: str, quantity: Quantity
) -> None:
    read, position, token = run_of(structure), 4, 11
    found = gradient_x_input(Asked.of(read, position, token, quantity))
    assert found.value == pytest.approx(score(read, {}, position, token, quantity), rel=1e-4)
    step, size = 3e-4, max(float(share.abs().max()) for share in found.shares.values())
    for side, tap in embeddings(read).items():
        for t in range(len(found.shares[side])):

            def stretched(by: float, t: int = t) -> Callable[[Tensor], Tensor]:
                def edit(x: Tensor) -> Tensor:
                    x = x.clone()
                    x[:, t] *= 1 + by
                    return x

                return edit

            ahead, behind = (
                score(read, {tap: stretched(by)}, position, token, quantity) for by in (step, -step)
            )
            assert float(found.shares[side][t]) == pytest.approx(
                (ahead - behind) / (2 * step), rel=2e-3, abs=2e-3 * size
            )
    if "decoder" in found.shares:
        # what comes later is not seen
        assert not found.shares["decoder"][position + 1 :].any()
    assert found.total == pytest.approx(sum(float(share.sum()) for share in found.shares.values()))


def test_parameters_get_no_gradient(run_of: RunOf) -> None:
    read = run_of("GPT-2")
    gradient_x_input(asked(read, 2, 11))
    assert all(parameter.grad is None for parameter in read.model.parameters())


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("baseline", [None, 3])
def test_shares_sum_to_what_the_way_gains(
    run_of: Callable[..., Run], structure: str, baseline: int | None
) -> None:
    read, position, token = run_of(structure, n_layers=2), 4, 11
    found = integrated_gradients(asked(read, position, token), baseline=baseline)

    def start(x: torch.Tensor) -> torch.Tensor:
        if baseline is None:
            return torch.zeros_like(x)
        table = read.model.get_submodule(next(iter(embeddings(read).values())).replace(".embed", ".tokens"))
        assert isinstance(table, torch.nn.Embedding)
        return (table.weight[baseline] * read.model.config.embed_scale).expand_as(x)

    there, before = (
        float(read.forward(edit=edit)[0][position].double().log_softmax(dim=-1)[token])
        for edit in ({}, dict.fromkeys(embeddings(read).values(), start))
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
    found = integrated_gradients(Asked.of(read, position, token, "logit"), baseline=3, tolerance=1e-4)
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
    rough, fine = (integrated_gradients(asked(run_of("Llama"), 4, 11), tolerance=t) for t in (0.5, 0.001))
    assert rough.points is not None and fine.points is not None and rough.points < fine.points
    assert rough.difference is not None and fine.difference is not None
    assert abs(fine.difference) <= 0.001 * abs(fine.value - (fine.baseline_value or 0)) + 1e-5
    heard: list[tuple[int, int]] = []

    def hear(_: object, done: int, total: int) -> None:
        heard.append((done, total))

    least = integrated_gradients(asked(run_of("Llama"), 4, 11), most_points=12, progress=hear)
    assert least.points == 12 and heard == [(12, 12)]
    heard.clear()
    again = integrated_gradients(asked(run_of("Llama"), 4, 11), tolerance=0.001, progress=hear)
    assert heard[:2] == [(12, 1200), (36, 1200)] and heard[-1] == (fine.points, fine.points)
    assert again.points == fine.points


def test_where_experts_change_on_the_way_the_shares_cannot_be_complete(run_of: Callable[..., Run]) -> None:
    found = integrated_gradients(asked(run_of("experts"), 4, 11), baseline=3, most_points=100)
    assert "a jump is no token's share" in found.approximate.said("en")
    assert found.difference is not None and abs(found.difference) > 0.01
    assert found.difference == pytest.approx(found.value - (found.baseline_value or 0) - found.total)


def test_a_baseline_may_be_named_by_its_piece(run_of: RunOf) -> None:
    one = asked(run_of("GPT-2"), 2, 11)
    assert integrated_gradients(one, baseline="<pad>", tolerance=0.1).baseline == "<pad>"
    assert integrated_gradients(one, tolerance=0.5).baseline == "zero"


def test_what_is_not_there_is_refused(run_of: RunOf) -> None:
    read = run_of("GPT-2")
    wrong: Any = "logits"
    with pytest.raises(
        CutawayError, match=r"quantity is 'logits' \(did you mean 'logit'\?\), expected logit or log"
    ):
        Asked.of(read, 0, None, wrong)
    with pytest.raises(CutawayError, match="position 7 is not in the text"):
        asked(read, 7, 11)
    with pytest.raises(CutawayError, match="no output head"):
        asked(run_of("no head"), 0, 11)
    one = asked(read, 2, 11)
    with pytest.raises(CutawayError, match="most_points is 0, expected at least 12"):
        integrated_gradients(one, most_points=0)
    with pytest.raises(CutawayError, match="tolerance is 0, expected a number above 0"):
        integrated_gradients(one, tolerance=0)
    with pytest.raises(CutawayError, match="token id 999"):
        integrated_gradients(one, baseline=999)
