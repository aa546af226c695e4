"""`--show neurons`: what a feed-forward network looks up at one token."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import memory, run
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

GAP = (MASKED, "The cat sat on the [MASK].", "--layer", "1", "--top", "3")


def test_the_strongest_neurons_at_a_gap(cutaway: Run) -> None:
    lines = shown(cutaway, View.NEURONS, *GAP).splitlines()
    assert lines[0] == "Neurons of encoder layer 1 that write most at token 6, '[MASK]'"
    found = memory(run(load(find(MASKED)), GAP[1]), 1, 6, top=3, words=5)
    for line, each in zip(lines[3:6], found.neurons, strict=True):
        assert each.logit is not None
        numbers = (f"{each.coefficient:#.4g}", f"{each.strength:#.4g}", f"{each.logit:+.3f}")
        words = [word.piece for word in each.promotes]
        assert line.split() == [str(each.number), *numbers, *words]
    assert "To keep in mind: post-norm: the stream passes a norm" in "\n".join(lines)
    neurons = result(cutaway, View.NEURONS, *GAP)["neurons"]
    assert [each["number"] for each in neurons] == [each.number for each in found.neurons]


def test_in_chinese(cutaway: Run) -> None:
    out = shown_in_chinese(cutaway, View.NEURONS, *GAP)
    assert out.startswith("编码器第 1 层中，在第 6 个词块“[MASK]”处写入最多的神经元\n")
    assert "请注意：后置归一化：" in out
    source = shown_in_chinese(cutaway, View.NEURONS, TRANSLATOR, "书", "--side", "encoder")
    assert "因此没有对应的词。" in source.replace("\n", "")


def test_a_drawing_shows_all_neurons_and_the_whole_text(cutaway: Run) -> None:
    html, texts = drawn(cutaway, View.NEURONS, *GAP)
    found = memory(run(load(find(MASKED)), GAP[1]), 1, 6, top=3, words=5)
    assert {"[MASK]", "cat", str(found.neurons[0].number), "+63"} <= set(texts.split("\n"))
    assert f'<td class="right">{float(found.activations[0, 2]):.3f}</td>' in html
    assert html.count("<figure data-values=") == 2


def test_arrays_are_saved(cutaway: Run, tmp_path: Path) -> None:
    saved = tmp_path / "neurons.safetensors"
    assert cutaway("inspect", POET, "床前明月光", "--show", "neurons", "--save", saved).code == 0
    found = memory(run(load(find(POET)), "床前明月光", max_new_tokens=1), -1, -1, words=5)
    arrays = load_file(saved)
    torch.testing.assert_close(arrays["activations"], found.activations)
    assert arrays["neurons.number"].tolist() == [each.number for each in found.neurons]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--side", "cross"), "--side is cross, which is attention: neurons are in encoder or decoder"),
        (("--layer", "9"), "the decoder has no layer 9: expected 0 to 3"),
        (("--index", "9"), "position 9 is not in the text"),
        (("--index", "1,2"), "--index is '1,2', expected one number: a token's place"),
        (("--head", "1"), "--head has no effect on --show neurons"),
    ],
)
def test_what_is_refused(cutaway: Run, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, POET, "床前", "--show", "neurons", *arguments)
