"""Neurons fire as the network's own modules say, and their words are what the logits gain where scales are held."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway import CutawayError, find, load
from cutaway.inspection.layers.firing import firing
from cutaway.inspection.layers.memory import memory
from cutaway.inspection.runs import Run, run

STRUCTURES = [
    "pre-norm pair", "post-norm pair", "T5", "Llama", "GPT-2", "Gemma 2", "sandwich of layer norms", "experts", "BERT",
    "pair with experts", "masked, pre-norm",
]  # fmt: skip


def stack_of(read: Run) -> tuple[str, nn.ModuleList]:
    name = "decoder" if hasattr(read.model, "decoder") else "encoder"
    layers = read.model.get_submodule(name).get_submodule("layers")
    assert isinstance(layers, nn.ModuleList)
    return name, layers


def down_of(network: nn.Module) -> nn.Linear:
    down = network.get_submodule("down")
    assert isinstance(down, nn.Linear)
    return down


def recorded(read: Run, module: nn.Module) -> tuple[Tensor, Tensor]:
    """What a module read and gave in a plain pass, by a hook of PyTorch."""
    seen: list[tuple[Tensor, Tensor]] = []
    hook = module.register_forward_hook(lambda *called: seen.append((called[1][0], called[-1])))
    with torch.no_grad():
        read.model.hidden(**read.inputs)
    hook.remove()
    return seen[0]


def activations(network: nn.Module, x: Tensor) -> Tensor:
    """x (D,) -> (F,): what `down` reads when the network reads x."""
    seen: list[Tensor] = []
    hook = network.get_submodule("down").register_forward_hook(lambda _, args, __: seen.append(args[0]))
    with torch.no_grad():
        network(x[None, None])
    hook.remove()
    return seen[0][0, 0]


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(("layer", "position"), [(0, 5), (1, 2), (-1, -1)])
def test_all_neurons_and_the_bias_are_what_the_network_writes(
    run_of: Callable[..., Run], structure: str, layer: int, position: int
) -> None:
    read = run_of(structure)
    _, layers = stack_of(read)
    network = layers[layer].get_submodule("mlp")
    entered, out = (value[0, position] for value in recorded(read, network))
    found = memory(read, layer, position, top=10_000, words=1)
    if mixed := hasattr(network, "router"):
        probabilities = network.get_submodule("router")(entered).softmax(dim=-1).detach()
        weights, experts = probabilities.topk(2)
        if read.model.config.experts_renormalised:
            weights = weights / weights.sum()
        assert found.experts == tuple(experts.tolist())
        networks = [network.get_submodule(f"experts.{expert}") for expert in experts.tolist()]
    else:
        weights, networks = torch.ones(1), [network]
        assert found.experts == ()
    total, biases = torch.zeros(len(out)), torch.zeros(len(out))
    for a, (weight, each) in enumerate(zip(weights, networks, strict=True)):
        down = down_of(each)
        hidden = activations(each, entered)
        assert torch.allclose(found.coefficients[a], hidden * weight, rtol=1e-4, atol=1e-6)
        lengths = down.weight.square().sum(dim=0).sqrt()
        assert torch.allclose(found.strengths[a], (hidden * weight).abs() * lengths, rtol=1e-4, atol=1e-6)
        total += found.coefficients[a] @ down.weight.detach().T
        biases += 0 if down.bias is None else down.bias.detach() * weight
    assert torch.allclose(total + biases, out, rtol=1e-4, atol=1e-5)
    assert torch.allclose(found.written, out, rtol=1e-5, atol=1e-6)
    assert len(found.neurons) == found.strengths.numel()
    strengths = [neuron.strength for neuron in found.neurons]
    assert strengths == sorted(strengths, reverse=True)
    assert torch.allclose(found.listed + biases, out, rtol=1e-4, atol=1e-5)
    first = found.neurons[0]
    assert (first.expert is not None) == mixed
    row = found.experts.index(first.expert) if first.expert is not None else 0
    assert first.coefficient == float(found.coefficients[row, first.number])
    assert first.activation * float(weights[row]) == pytest.approx(first.coefficient, rel=1e-5)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_words_are_what_a_unit_of_a_value_adds_to_the_logits(
    run_of: Callable[..., Run], held_model: Callable[[Run], Any], structure: str
) -> None:
    read, layer, position, token = run_of(structure), 1, 3, 40
    side, layers = stack_of(read)
    found = memory(read, layer, position, top=3, words=5, token=token)
    held = held_model(read)
    whole, name = held.logits({})[position], f"{side}.layers.{layer}.mlp"
    for neuron in found.neurons:
        network = layers[layer].get_submodule("mlp")
        if neuron.expert is not None:
            network = network.get_submodule(f"experts.{neuron.expert}")
        value = down_of(network).weight[:, neuron.number].double()
        gain = held.logits({}, {f"{name}.out": -value})[position] - whole
        order = gain.argsort(descending=True).tolist()
        assert [word.id for word in neuron.promotes] == order[:5]
        assert [word.id for word in neuron.suppresses] == order[:-6:-1]
        for word in (*neuron.promotes, *neuron.suppresses):
            assert word.value == pytest.approx(float(gain[word.id]), rel=1e-3, abs=1e-4)
            assert word.piece == read.loaded.require_tokenizer().readable(word.id)
        assert neuron.logit == pytest.approx(float(gain[token]) * neuron.coefficient, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("structure", ["pre-norm pair", "Llama", "BERT"])
def test_the_stream_is_read_before_and_after(run_of: Callable[..., Run], structure: str) -> None:
    read = run_of(structure)
    found = memory(read, -1, 2, words=4)
    scores = read.forward()[0][2].log_softmax(dim=-1)
    assert [word.id for word in found.after] == scores.argsort(descending=True)[:4].tolist()
    assert [word.value for word in found.after] == pytest.approx(
        scores.sort(descending=True).values[:4].tolist(), abs=1e-5
    )
    assert found.token_id == read.outcome.ids[2]
    assert [word.id for word in found.before] != [word.id for word in found.after]


def test_an_encoder_that_words_are_not_read_from(run_of: Callable[..., Run]) -> None:
    read = run_of("post-norm pair")
    found = memory(read, 0, 9, side="encoder", top=2)
    assert found.side == "encoder" and found.token is None and found.before == ()
    assert found.approximate is not None and "cross-attention" in found.approximate.en
    assert all(neuron.promotes == () and neuron.logit is None for neuron in found.neurons)
    _, out = recorded(read, read.model.get_submodule("encoder.layers.0.mlp"))
    assert torch.allclose(found.written, out[0, 9], atol=1e-6)
    with pytest.raises(CutawayError, match="token is 3, but the encoder's stream is read by cross-attention"):
        memory(read, 0, 0, side="encoder", token=3)


@pytest.mark.parametrize("structure", ["GPT-2", "experts", "pair with experts"])
def test_listed_neurons_are_followed_over_the_text(run_of: Callable[..., Run], structure: str) -> None:
    read = run_of(structure)
    found = memory(read, 1, 2, top=6, words=1)
    for neuron, activations in zip(found.neurons, found.activations, strict=True):
        alone = firing(read, 1, neuron.number, expert=neuron.expert)
        assert torch.allclose(activations, alone.activations.float(), equal_nan=True)
        assert float(activations[2]) == pytest.approx(neuron.activation)


@pytest.mark.parametrize("structure", ["GPT-2", "T5", "BERT"])
def test_where_a_neuron_fires(run_of: Callable[..., Run], structure: str) -> None:
    read = run_of(structure)
    _, layers = stack_of(read)
    entered, _ = recorded(read, layers[1].get_submodule("mlp.down"))
    assert torch.allclose(firing(read, 1, 17).activations, entered[0, :, 17], atol=1e-6)


def test_where_a_neuron_of_an_expert_fires(run_of: Callable[..., Run]) -> None:
    read = run_of("experts", length=20)
    _, layers = stack_of(read)
    network = layers[2].get_submodule("mlp")
    entered, _ = recorded(read, network)
    chosen = network.get_submodule("router")(entered[0]).topk(2).indices
    for expert in range(5):
        found = firing(read, 2, 4, expert=expert).activations
        for t in range(20):
            if expert in chosen[t]:
                value = activations(network.get_submodule(f"experts.{expert}"), entered[0, t])[4]
                assert float(found[t]) == pytest.approx(float(value), rel=1e-4, abs=1e-6)
            else:
                assert found[t].isnan()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: memory(r, 3, 0), "the decoder has no layer 3: expected 0 to 2"),
        (lambda r: memory(r, 0, 7), "position 7 is not in the text"),
        (lambda r: memory(r, 0, 0, side="encode"), r"no stack 'encode'.*expected decoder"),
        (lambda r: memory(r, 0, 0, top=0), "top is 0"),
        (lambda r: firing(r, 1, 40), "the network of layer 1 has no neuron 40: expected 0 to 39"),
        (lambda r: firing(r, 1, 4, expert=0), "layer 1 has one plain network"),
        (lambda r: firing(r, 0, 4), "layer 0 is a mixture: expected an expert from 0 to 4"),
        (lambda r: firing(r, 0, 16, expert=1), "expert 1 of layer 0 has no neuron 16: expected 0 to 15"),
    ],
)
def test_what_is_not_there_is_refused(
    run_of: Callable[..., Run], ask: Callable[[Run], object], message: str
) -> None:
    with pytest.raises(CutawayError, match=message):
        ask(run_of("experts"))


def test_neurons_of_a_model_without_head_have_no_words(run_of: Callable[..., Run]) -> None:
    read = run_of("no head")
    found = memory(read, 0, 4, top=3, token=None)
    _, out = recorded(read, read.model.get_submodule("encoder.layers.0.mlp"))
    down = down_of(read.model.get_submodule("encoder.layers.0.mlp"))
    assert torch.allclose(found.coefficients[0] @ down.weight.T + down.bias, out[0, 4], atol=1e-4)
    assert torch.allclose(found.written, out[0, 4], atol=1e-5)
    assert all(not each.promotes and each.logit is None for each in found.neurons)
    assert (found.token, found.before, found.after) == (None, (), ())
    assert found.approximate is not None and "no output head" in found.approximate.en
    with pytest.raises(CutawayError, match=r"no output head.*leave `token` out"):
        memory(read, 0, 4, token="天")


def test_a_bundled_model() -> None:
    read = run(load(find("poet-zh")), "床前明月光，")
    found = memory(read, 3, -1, top=3, words=3)
    _, out = recorded(read, read.model.get_submodule("decoder.layers.3.mlp"))
    values = down_of(read.model.get_submodule("decoder.layers.3.mlp")).weight
    assert torch.allclose(found.coefficients[0] @ values.T, out[0, -1], atol=1e-4)
    assert found.token_id == read.outcome.ids[-1]
    assert len(found.neurons[0].promotes) == 3
