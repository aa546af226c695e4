"""Routing is recomputed from what the routers read, by loops and by the published implementation's own loss."""

import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cutaway import CutawayError, find, load
from cutaway.inspection.layers.routing import routing
from cutaway.inspection.runs import Run, run


def router_scores(read: Run) -> dict[str, Tensor]:
    """(T, X) of every router by its name, by hooks of PyTorch."""
    seen: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out[0]))
        for name, module in read.model.named_modules()
        if name.endswith(".router")
    ]
    with torch.no_grad():
        read.model(**read.inputs)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize(
    ("structure", "changes"),
    [
        ("experts", {}),
        ("pair with experts", {"n_encoder_layers": 2}),
        ("experts", {"n_experts_per_token": 1}),
        ("experts", {"n_experts_per_token": 5}),
    ],
)
def test_every_number_is_what_a_loop_over_tokens_counts(
    run_of: Callable[..., Run], structure: str, changes: dict[str, object]
) -> None:
    read = run_of(structure, length=19, **changes)
    config, found, scores = read.model.config, routing(read), router_scores(read)
    most = config.n_experts_per_token
    assert (found.n_experts, found.n_per_token, found.renormalised) == (5, most, config.experts_renormalised)
    assert [f"{each.side}.layers.{each.layer}.mlp.router" for each in found.layers] == list(scores)
    for each, logits in zip(found.layers, scores.values(), strict=True):
        side = read.source if each.side == "encoder" else read.target
        assert each.tokens == side
        counts: Counter[int] = Counter()
        sums = [0.0] * 5
        for t, row in enumerate(logits.double().tolist()):
            total = sum(map(math.exp, row))
            probabilities = [math.exp(score) / total for score in row]
            order = sorted(range(5), key=lambda expert: -probabilities[expert])
            assert each.chosen[t].tolist() == order[:most]
            kept = sum(probabilities[e] for e in order[:most]) if config.experts_renormalised else 1.0
            assert each.weights[t].tolist() == pytest.approx(
                [probabilities[e] / kept for e in order[:most]], rel=1e-5
            )
            assert each.probabilities[t].tolist() == pytest.approx(probabilities, rel=1e-5)
            assert float(each.cut[t]) == pytest.approx(probabilities[order[most - 1]], rel=1e-5)
            rest = probabilities[order[most]] if most < 5 else 0.0
            assert float(each.runner_up[t]) == pytest.approx(rest, rel=1e-5)
            counts.update(order[:most])
            sums = [a + b for a, b in zip(sums, probabilities, strict=True)]
        n = len(each.tokens)
        shares = [counts[e] / (n * most) for e in range(5)]
        assert each.counts.tolist() == [counts[e] for e in range(5)]
        assert each.load.tolist() == pytest.approx(shares)
        assert each.mean_probability.tolist() == pytest.approx([s / n for s in sums], rel=1e-5)
        assert each.balance == pytest.approx(
            5 * sum(f * s / n for f, s in zip(shares, sums, strict=True)), rel=1e-5
        )
        entropy = -sum(f * math.log(f) for f in shares if f)
        assert each.entropy == pytest.approx(entropy, rel=1e-6)
        assert each.evenness == pytest.approx(entropy / math.log(5), rel=1e-6)


def test_the_balance_is_the_published_one(run_of: Callable[..., Run]) -> None:
    """Of one choice a token: Switch Transformers' own code. Of several: Mixtral's, which counts A times as much."""
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
    from transformers.models.switch_transformers.modeling_switch_transformers import (
        load_balancing_loss_func as switch,
    )

    read = run_of("experts", length=19, n_experts_per_token=1)
    for each in routing(read).layers:
        theirs = switch(each.probabilities[None], each.chosen[None, :, 0])
        assert each.balance == pytest.approx(float(theirs), rel=1e-5)
    read = run_of("experts", length=19)
    for each in routing(read).layers:
        theirs = load_balancing_loss_func((each.scores,), 5, 2)
        assert each.balance * 2 == pytest.approx(float(theirs), rel=1e-5)


def test_even_routing_has_balance_one_and_full_evenness(run_of: Callable[..., Run]) -> None:
    read = run_of("experts", n_experts_per_token=5)
    for each in routing(read).layers:
        assert each.balance == pytest.approx(1.0, rel=1e-5)
        assert each.evenness == pytest.approx(1.0)


def test_dense_layers_are_named(run_of: Callable[..., Run]) -> None:
    assert routing(run_of("experts")).dense == ("decoder.layers.1",)
    found = routing(run_of("pair with experts", dense_layers=[0, 2]))
    assert [(each.side, each.layer) for each in found.layers] == [("encoder", 1), ("decoder", 1)]
    assert found.dense == ("encoder.layers.0", "encoder.layers.2", "decoder.layers.0", "decoder.layers.2")


def test_a_model_without_experts_is_refused(run_of: Callable[..., Run]) -> None:
    with pytest.raises(CutawayError, match="tiny GPT-2: this model has no experts"):
        routing(run_of("GPT-2"))
    with pytest.raises(CutawayError, match="no experts"):
        routing(run(load(find("poet-zh")), "床前明月光"))
