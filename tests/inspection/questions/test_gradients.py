"""One probability by two methods, side by side, and what they add up to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese

from cutaway import CutawayError, find, load
from cutaway.inspection.input_gradients import Asked, gradient_x_input, integrated_gradients
from cutaway.inspection.questions.gradients import gradients
from cutaway.inspection.runs import Run, run
from cutaway.page.blocks import Shaded
from cutaway.page.numbers import nats

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("masked", "今天[MASK]好。", {"baseline": 30, "tolerance": 0.5, "quantity": "logit"}),
]

RunOf = Callable[..., Run]


@pytest.mark.parametrize(
    ("name", "text", "position", "baseline"),
    [
        ("translate-zh-en", "我们明天去北京。", 2, None),
        ("poet-zh", "床前明月光，", -1, 0),
        ("bert-tiny", "She was [MASK] happy.", 3, None),
    ],
)
def test_bundled_models_are_complete_within_the_tolerance(
    name: str, text: str, position: int, baseline: int | None
) -> None:
    read = run(load(find(name)), text)
    found = gradients(read, at=position, baseline=baseline, tolerance=0.01)
    whole = found.integrated
    assert whole.difference is not None and whole.baseline_value is not None
    assert abs(whole.difference) < 0.01 * abs(whole.value - whole.baseline_value)
    scores = read.forward()[0][position].log_softmax(dim=-1)
    gap = name == "bert-tiny"  # where the model's own token is told of
    assert whole.token_id == (int(scores.argmax()) if gap else read.outcome.ids[position])
    for each in (found.gradient_x_input, whole):
        assert each.value == pytest.approx(float(scores[whole.token_id]), abs=1e-4)
        assert max(float(share.abs().max()) for share in each.shares.values()) > 0.01


def test_options_reach_both_methods(run_of: RunOf) -> None:
    read = run_of("T5")
    found = gradients(read, at=1, token=11, quantity="logit", baseline=3, tolerance=0.3, most_points=36)
    asked = Asked.of(read, 1, 11, "logit")
    assert found.gradient_x_input.value == gradient_x_input(asked).value
    expected = integrated_gradients(asked, baseline=3, tolerance=0.3, most_points=36)
    assert (found.integrated.points, found.integrated.total) == (expected.points, expected.total)
    for options, message in (
        ({"tolerance": 0.0}, "tolerance is 0"),
        ({"most_points": 3}, "most_points is 3"),
    ):
        given: Any = options
        with pytest.raises(CutawayError, match=message):
            gradients(read, **given)
    with pytest.raises(CutawayError, match="no output head"):
        gradients(run_of("no head"))


def test_the_page_shades_every_token_that_counts(run_of: RunOf) -> None:
    found = gradients(run_of("post-norm pair"), at=4, token=11, tolerance=0.5)
    shaded = [block for block in found.page().blocks if isinstance(block, Shaded)]
    seen = {"encoder": None, "decoder": 5}  # later tokens of the target cannot count
    expected = [
        (each.tokens[side].pieces[: seen[side]], each.shares[side].tolist()[: seen[side]])
        for side in ("encoder", "decoder")
        for each in (found.gradient_x_input, found.integrated)
    ]
    assert [(block.tokens, block.values) for block in shaded] == expected
    assert not found.integrated.shares["decoder"][5:].any()


def test_both_methods_stand_side_by_side_and_completeness_is_told(
    cutaway: command.Run, translator: Path
) -> None:
    asked = ("gradients", "好久不见。", "-m", translator, "--at", "0", "--tolerance", "0.2")
    found, lines = result(cutaway, *asked), shown(cutaway, *asked).splitlines()
    first, second = found["gradient_x_input"], found["integrated"]
    rows = [line.split() for line in lines]
    for place, piece in enumerate(first["tokens"]["encoder"]["pieces"]):
        shares = [nats(each["shares"]["encoder"][place]) for each in (first, second)]
        assert [piece, *shares] in rows
    assert len([line for line in lines if line.startswith("target, up to token 0")]) == 1
    told = " ".join(" ".join(lines).split())
    gain = nats(second["value"] - second["baseline_value"])
    assert f"sum {nats(second['total'])}; value {second['value']:.4g} minus" in told
    assert f"at zeros is {gain}, and the sum misses {nats(second['difference'])} of it" in told


def test_as_a_command_in_both_languages(cutaway: command.Run, poet: Path, headless: Path) -> None:
    asked = ("gradients", "今天天气", "-m", poet, "--baseline", "今", "--token", "好")
    assert shown_in_chinese(cutaway, *asked).startswith("在词元 4“气”处，“好”的对数概率依赖什么\n")
    assert "减去起点（今）的" in shown_in_chinese(cutaway, *asked)
    html = page_of(cutaway, *asked)
    shares = result(cutaway, *asked)["integrated"]["shares"]["decoder"]
    assert f'title="{nats(shares[0])}"' in html and html.count('class="token"') == 2 * len(shares)
    assert cutaway("inspect", *asked, "--save", "g.safetensors").code == 0
    assert load_file("g.safetensors")["integrated.shares.decoder"].tolist() == shares
    assert "--tolerance is 2, expected at most 1" in refused(cutaway, *asked, "--tolerance", "2")
    assert "gradients needs an output head" in refused(cutaway, "gradients", "好", "-m", headless)


def test_passes_are_those_of_the_methods(passes: Callable[[], int], translator: Path) -> None:
    read = run(load(translator), "好久不见。")
    passes()
    found = gradients(read, tolerance=1.0)
    assert found.integrated.points == 12
    found.page()
    assert (
        passes() == 4
        # which token and its vectors; gradient x input; both ends of the path; its one piece
    )
