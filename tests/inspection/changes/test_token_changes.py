"""Embeddings and words changed are ids or logits changed."""

import math
from dataclasses import replace

import torch
from tests.inspection.changes.altered import (
    Change,
    changed,
    same,
    sides,
)  # fmt: skip

from cutaway.inspection.runs import Run, Tokens


def test_another_embedding_is_another_token(run: Run) -> None:
    for side in sides(run, cross=False):
        tokens = run.source if side == "encoder" else run.target
        assert tokens is not None
        swapped = Tokens([*tokens.ids[:2], 11, *tokens.ids[3:]], tokens.pieces)
        expected = replace(run, **{"source" if side == "encoder" else "target": swapped}).forward()[0]
        assert torch.equal(changed(run, {"op": "embedding", "side": side, "token": 2, "id": 11}), expected)
        steps: Change = {"op": "embedding", "side": side, "token": 2, "along": [tokens.ids[2], 11]}
        same(changed(run, steps), expected)
        half = changed(run, {**steps, "amount": 0.5}, {**steps, "amount": 0.5})
        same(half, expected)


def test_a_temperature_divides_the_logits(run: Run) -> None:
    base = run.forward()[0]
    for value in (0.25, 3.0):
        found = changed(run, {"op": "temperature", "value": value})
        probabilities = base.double().softmax(dim=-1) ** (
            1 / value
        )  # the definition by probabilities, renormalised
        expected = (probabilities / probabilities.sum(dim=-1, keepdim=True)).float()
        torch.testing.assert_close(found.softmax(dim=-1), expected, rtol=1e-4, atol=1e-7)
    assert torch.equal(changed(run, {"op": "temperature", "value": 1}), base)


def test_banned_and_forced_outputs(run: Run) -> None:
    base = run.forward()[0]
    found = changed(run, {"op": "token", "ban": [3, 5]}, {"op": "token", "at": 2, "ban": [9]})
    expected = base.clone()
    expected[:, [3, 5]] = -math.inf
    expected[2, 9] = -math.inf
    assert torch.equal(found, expected)
    found = changed(run, {"op": "token", "at": 2, "force": 17})
    assert found[2].isfinite().nonzero().flatten().tolist() == [17] and torch.equal(found[3:], base[3:])
