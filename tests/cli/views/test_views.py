"""What all sub-views of `cutaway inspect` have in common."""

from pathlib import Path

import pytest
from tests.cli.views.asking import refused
from tests.command import Run

from cutaway.cli.views.registry import VIEWS
from cutaway.cli.views.request import View
from cutaway.zoo import MASKED, POET, TRANSLATOR

VERSE = "床前明月光"


def test_every_view_has_a_file_of_its_own():
    own = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")} | {"rollout"}
    assert set(VIEWS) == set(View) and {view.value for view in View} <= own


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TRANSLATOR, "--show", "align"), "--show align needs a text after the model"),
        (
            (POET, "好", "--show", "lens", "--head", "2"),
            "--head has no effect on --show lens; it goes with",
        ),
        ((TRANSLATOR, "--layer", "2"), "--layer has no effect without a text or --show"),
        ((TRANSLATOR, "--save", "x.npz"), "--save has no effect without a text or --show"),
        ((TRANSLATOR, "好", "--context", "4"), "--context goes with the model alone"),
        ((TRANSLATOR, "好", "--save", "x.pt"), "--save x.pt: ends in '.pt'"),
        ((TRANSLATOR, "好", "--save", "no/x.npz"), "--save no/x.npz: there is no folder no"),
        (
            (TRANSLATOR, "好", "--svg", "x.png"),
            "--svg x.png: ends in '.png' (did you mean '.svg'?), expected .svg",
        ),
        ((TRANSLATOR, "好", "--html", "no/x.html"), "--html no/x.html: there is no folder no"),
        ((TRANSLATOR, "--html", "x.html"), "--html has no effect without a text or --show"),
        ((MASKED, ""), "the text is empty"),
        (
            (POET, "好", "--show", "attention", "--layer", "9"),
            "layer 9 is not there: expected one of 0 to 3",
        ),
        ((POET, VERSE, "--to", "en"), "poet-zh is decoder-only: it writes no translation"),
        ((POET, VERSE, "--show", "align"), "expected encoder-decoder"),
        ((POET, VERSE, "--show", "leens"), "'leens' is not one of"),
    ],
)
def test_bad_input_is_told_in_a_line(cutaway: Run, arguments: tuple[str, ...], message: str):
    assert message in refused(cutaway, *arguments)
