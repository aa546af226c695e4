"""Neurons fire as the network's own modules say, and their words are what the logits gain where scales are held."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.command import Run as Command
from tests.inspection.networks import activations, down_of, recorded, stack_of

from cutaway import CutawayError, find, load
from cutaway.inspection.neuron_firing import firing
from cutaway.inspection.questions.neurons import neurons
from cutaway.inspection.runs import Run, run
from cutaway.page.blocks import Matrix

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("poet", "今天天气", {"at": 2, "layer": 0, "top": 3, "token": 20}),
]

STRUCTURES = [
    "pre-norm pair", "post-norm pair", "T5", "Llama", "GPT-2", "Gemma 2", "sandwich of layer norms", "experts", "BERT",
    "pair with experts", "masked, pre-norm",
]  # fmt: skip


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(("layer", "position"), [(0, 5), (1, 2), (-1, -1)])
def test_all_neurons_and_the_bias_are_what_the_network_writes(
    run_of: Callable[..., Run], structure: str, layer: int, position: int
) -> None:
    read = run_of(structure)
    _, layers = stack_of(read)
    network = layers[layer].get_submodule("mlp")
    entered, out = (value[0, position] for value in recorded(read, network))
    found = neurons(read, layer=layer, at=position, top=10_000, words=1)
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
    found = neurons(read, layer=layer, at=position, top=3, words=5, token=token)
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
    found = neurons(read, layer=-1, at=2, words=4)
    scores = read.forward()[0][2].log_softmax(dim=-1)
    assert [word.id for word in found.after] == scores.argsort(descending=True)[:4].tolist()
    assert [word.value for word in found.after] == pytest.approx(
        scores.sort(descending=True).values[:4].tolist(), abs=1e-5
    )
    assert found.token_id == read.outcome.ids[2]
    assert [word.id for word in found.before] != [word.id for word in found.after]


def test_an_encoder_that_words_are_not_read_from(run_of: Callable[..., Run]) -> None:
    read = run_of("post-norm pair")
    found = neurons(read, layer=0, at=9, side="encoder", top=2)
    assert found.side == "encoder" and found.token is None and found.before == ()
    assert found.approximate is not None and "cross-attention" in str(found.approximate)
    assert all(neuron.promotes == () and neuron.logit is None for neuron in found.neurons)
    _, out = recorded(read, read.model.get_submodule("encoder.layers.0.mlp"))
    assert torch.allclose(found.written, out[0, 9], atol=1e-6)
    with pytest.raises(CutawayError, match="token is 3, but the encoder's stream is read by cross-attention"):
        neurons(read, layer=0, at=0, side="encoder", token=3)


@pytest.mark.parametrize("structure", ["GPT-2", "experts", "pair with experts"])
def test_listed_neurons_are_followed_over_the_text(run_of: Callable[..., Run], structure: str) -> None:
    read = run_of(structure)
    found = neurons(read, layer=1, at=2, top=6, words=1)
    for neuron, values in zip(found.neurons, found.activations, strict=True):
        alone = firing(read, 1, neuron.number, expert=neuron.expert)
        assert torch.allclose(values, alone.activations.float(), equal_nan=True)
        assert float(values[2]) == pytest.approx(neuron.activation)
    drawn = found.page().blocks[-1]
    assert isinstance(drawn, Matrix)
    # An expert that was not at work is hidden, as by a mask.
    expected = found.activations.double().nan_to_num(nan=-torch.inf)
    assert torch.equal(torch.from_numpy(drawn.values), expected)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: neurons(r, layer=3, at=0), "there is no layer 3, expected 0 to 2"),
        (lambda r: neurons(r, layer=0, at=7), "position 7 is not in the text"),
        (lambda r: neurons(r, layer=0, at=0, top=0), "top is 0"),
    ],
)
def test_what_is_not_there_is_refused(
    run_of: Callable[..., Run], ask: Callable[[Run], object], message: str
) -> None:
    with pytest.raises(CutawayError, match=message):
        ask(run_of("experts"))


def test_neurons_of_a_model_without_head_have_no_words(run_of: Callable[..., Run]) -> None:
    read = run_of("no head")
    found = neurons(read, layer=0, at=4, top=3, token=None)
    _, out = recorded(read, read.model.get_submodule("encoder.layers.0.mlp"))
    down = down_of(read.model.get_submodule("encoder.layers.0.mlp"))
    assert torch.allclose(found.coefficients[0] @ down.weight.T + down.bias, out[0, 4], atol=1e-4)
    assert torch.allclose(found.written, out[0, 4], atol=1e-5)
    assert all(not each.promotes and each.logit is None for each in found.neurons)
    assert (found.token, found.before, found.after) == (None, (), ())
    assert found.approximate is not None and "no output head" in str(found.approximate)
    with pytest.raises(CutawayError, match=r"no output head.*leave `token` out"):
        neurons(read, layer=0, at=4, token="天")


def test_a_bundled_model() -> None:
    read = run(load(find("poet-zh")), "床前明月光，")
    found = neurons(read, layer=3, at=-1, top=3, words=3)
    _, out = recorded(read, read.model.get_submodule("decoder.layers.3.mlp"))
    values = down_of(read.model.get_submodule("decoder.layers.3.mlp")).weight
    assert torch.allclose(found.coefficients[0] @ values.T, out[0, -1], atol=1e-4)
    assert found.token_id == read.outcome.ids[-1]
    assert len(found.neurons[0].promotes) == 3


# As it is asked for.

GAP = "The [MASK] is fine today."


def test_the_strongest_neurons_at_a_gap(cutaway: Command, masked: Path) -> None:
    asked = ("neurons", GAP, "-m", masked, "--layer", "1", "--top", "3")
    lines = shown(cutaway, *asked).splitlines()
    assert lines[0] == "The strongest neurons of encoder layer 1 at position 2, '[MASK]'"
    found = neurons(run(load(masked), GAP), layer=1, top=3)
    for line, each in zip(lines[3:6], found.neurons, strict=True):
        assert each.logit is not None
        numbers = (f"{each.coefficient:#.4g}", f"{each.strength:#.4g}", f"{each.logit:+.3f}")
        assert line.split() == [str(each.number), *numbers, *(word.piece for word in each.promotes)]
    given = result(cutaway, *asked)["neurons"]
    assert [each["number"] for each in given] == [each.number for each in found.neurons]
    html = page_of(cutaway, *asked)
    assert f'<td class="right">{float(found.activations[0, 1]):.3f}</td>' in html


def test_where_a_model_writes_the_title_tells_what_was_read_and_what_written(
    cutaway: Command, translator: Path, headless: Path
) -> None:
    read = run(load(translator), "好久不见。")
    assert read.target is not None
    written, before = read.outcome.pieces[1], read.target.pieces[1]
    title = " ".join(shown(cutaway, "neurons", "好久不见。", "-m", translator, "--at", "1").split("\n")[:2])
    assert f"when '{written}' was written (position 1, after '{before}')" in title
    source = shown_in_chinese(cutaway, "neurons", "书", "-m", translator, "--side", "encoder")
    assert "因此没有对应的词。" in source.replace("\n", "")
    vectors = shown_in_chinese(cutaway, "neurons", "今天", "-m", headless)
    assert "这个模型没有输出头" in vectors


def test_one_pass_and_arrays(
    cutaway: Command, passes: Callable[[], int], masked: Path, headless: Path, tmp_path: Path
) -> None:
    for model in (masked, headless):
        read = run(load(model), GAP)
        passes()
        found = neurons(read)
        assert passes() == 1
        path = tmp_path / "neurons.safetensors"
        assert cutaway("inspect", "neurons", GAP, "-m", model, "--save", path).code == 0
        arrays = load_file(path)
        assert torch.equal(arrays["activations"], found.activations)
        assert arrays["neurons.number"].tolist() == [each.number for each in found.neurons]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--side", "cross"), "cross"),
        (("--side", "encoder"), "has no stack 'encoder'"),
        (("--layer", "9"), "there is no layer 9, expected 0 to 1"),
        (("--at", "9"), "position 9 is not in the text"),
        (("--head", "1"), "--head"),
        (("--token", "今天天气"), "tokens in this vocabulary"),
    ],
)
def test_what_is_refused(cutaway: Command, poet: Path, options: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, "neurons", "今天", "-m", poet, *options)
