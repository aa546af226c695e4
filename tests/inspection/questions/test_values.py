"""What each token adds to a head's result, summand by summand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.inspection.tokens import attention_inputs, projected

from cutaway import CutawayError, load
from cutaway.inspection.patterns import patterns
from cutaway.inspection.questions.values import values
from cutaway.inspection.runs import Run, run
from cutaway.inspection.wiring import places, sides
from cutaway.page.blocks import Atlas

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("headless", "今天很好。", {"through_output": False}),
]

RunOf = Callable[..., Run]


@pytest.mark.parametrize(
    "structure", ["post-norm pair", "T5", "GPT-2", "Llama", "Gemma 2", "experts", "no head"]
)
@torch.no_grad()
def test_norms_are_those_of_what_each_token_adds(run_of: RunOf, structure: str) -> None:
    asked = run_of(structure)
    for side in sides(asked.model):
        (place,) = places(asked.model, side, 1)
        module = place.attention
        _, memory = attention_inputs(asked, module)
        pattern = patterns(asked, side, 1).values[0].double()
        found, bare = (values(asked, side=side, layer=1, through_output=out) for out in (True, False))
        total = torch.zeros(len(found.queries), asked.loaded.config.d_model, dtype=torch.float64)
        for head in range(4):
            v = projected(memory, module.v_proj, head // module.groups, module.d_head)
            alone = torch.zeros(len(memory), 4 * module.d_head, dtype=torch.float64)
            alone[:, head * module.d_head : (head + 1) * module.d_head] = v
            written = alone @ module.o_proj.weight.double().T  # (S, D)
            summands = pattern[head][..., None] * written  # (T, S, D)
            torch.testing.assert_close(
                found.weights[0, head].double(), summands.norm(dim=-1), rtol=1e-4, atol=1e-5
            )
            torch.testing.assert_close(bare.norms[0, head].double(), v.norm(dim=-1), rtol=1e-4, atol=1e-5)
            total += summands.sum(dim=1)
        name = f"{place.attention_path}.out"
        _, trace = asked.hidden([name])
        bias = 0 if module.o_proj.bias is None else module.o_proj.bias.double()
        torch.testing.assert_close(total + bias, trace[name][0].double(), rtol=1e-4, atol=1e-4)


def test_what_is_not_there_is_refused(run_of: RunOf) -> None:
    with pytest.raises(CutawayError, match=r"side is 'cross'.* attends on decoder only"):
        values(run_of("Llama"), side="cross")
    with pytest.raises(CutawayError, match="there is no head 4, expected 0 to 3"):
        values(run_of("Llama"), head=4)


def test_the_table_names_the_longest_and_the_shortest(cutaway: command.Run, translator: Path) -> None:
    asked = ("values", "好久不见。", "-m", translator)
    found = result(cutaway, *asked)
    weights, norms, pieces = np.array(found["weights"]), np.array(found["norms"]), found["keys"]["pieces"]
    row = next(line.split() for line in shown(cutaway, *asked).splitlines() if line.startswith("1.1 "))
    weighed = (weights[1, 1] / norms[1, 1]).sum(axis=0)
    assert row[1:3] == [pieces[weighed.argmax()], pieces[weights[1, 1].sum(axis=0).argmax()]]
    longest, shortest = norms[1, 1].argmax(), norms[1, 1].argmin()
    assert row[3::2] == [pieces[longest], pieces[shortest]]
    assert list(map(float, row[4::2])) == pytest.approx(
        [norms[1, 1, longest], norms[1, 1, shortest]], rel=5e-3
    )


def test_the_strongest_colour_is_the_longest_vector(run_of: RunOf) -> None:
    found = values(run_of("T5"))
    (atlas,) = (block for block in found.page().blocks if isinstance(block, Atlas))
    assert len(atlas.maps) == 12 and max(each.values.max() for each in atlas.maps) == 1
    np.testing.assert_allclose(
        atlas.maps[5].values * float(found.weights.max()), found.weights[1, 1], rtol=1e-5
    )


def test_both_languages_and_files(cutaway: command.Run, headless: Path) -> None:
    asked = ("values", "今天天气很好。", "-m", headless, "--no-through-output")
    assert shown(cutaway, *asked).startswith("encoder self-attention: weight times length of the value\n")
    one = ("--layer", "1", "--head", "0")
    assert shown_in_chinese(cutaway, *asked, *one).startswith(
        "编码器自注意力：权重乘以值向量的长度，第 1 层，头 0\n"
    )
    assert page_of(cutaway, *asked).count("data-place=") == 4
    assert cutaway("inspect", *asked, "--save", "values.safetensors").code == 0
    expected = values(run(load(headless), "今天天气很好。"), through_output=False)
    torch.testing.assert_close(load_file("values.safetensors")["weights"], expected.weights)
    assert "attends on encoder only" in refused(cutaway, *asked, "--side", "decoder")


def test_one_pass(passes: Callable[[], int], translator: Path) -> None:
    read = run(load(translator), "好久不见。")
    passes()
    values(read).page()
    assert passes() == 1
