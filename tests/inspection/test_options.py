"""What a signature says of its options, and what is read of them as JSON and as a command spells it."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest

from cutaway import CutawayError
from cutaway.inspection.options import (
    Option,
    OtherText,
    Parameter,
    Progress,
    Repeated,
    checked,
    read_signature,
    read_token,
)
from cutaway.inspection.runs import Run
from cutaway.words import say


def read_things(given: object) -> object:
    """What a list of things becomes; CutawayError for a thing without a name."""
    assert isinstance(given, list)
    if not all(isinstance(each, dict) and "name" in each for each in given):
        raise CutawayError("things: a thing has no name")
    return tuple(each["name"] for each in given)


def everything(
    run: Run,
    word: Annotated[int | str, Option(say("A token."), positional=True)],
    needed: Annotated[str, Option(say("Must be given."))],
    *,
    count: Annotated[int, Option(say("How many."), at_least=1, at_most=9)] = 3,
    part: Annotated[float | None, Option(say("How much."), at_least=0, at_most=1)] = None,
    exact: Annotated[bool, Option(say("Whether."))] = True,
    kind: Annotated[Literal["red", "green"], Option(say("Which."))] = "red",
    layers: Annotated[tuple[int, ...] | None, Option(say("Several."), at_least=0)] = None,
    pinned: Annotated[tuple[int | str, ...], Option(say("Tokens."))] = (),
    things: Annotated[Sequence[Any], Repeated(say("Things."), each="thing", read=read_things)] = (),
    other: Annotated[Run | None, OtherText(say("Another text."))] = None,
    heard: Progress | None = None,
) -> None: ...


FIRST, PARAMETERS, PROGRESS = read_signature(everything)
BY_NAME: dict[str, Parameter] = {each.name: each for each in PARAMETERS}
GIVEN = {"word": "猫", "needed": "x"}


def test_a_signature_is_the_declaration() -> None:
    assert FIRST is Run and PROGRESS == "heard"
    assert list(BY_NAME) == [
        "word", "needed", "count", "part", "exact", "kind", "layers", "pinned", "things", "other",
    ]  # fmt: skip
    assert [name for name, each in BY_NAME.items() if each.required] == ["word", "needed"]
    assert [name for name, each in BY_NAME.items() if each.names_tokens] == ["word", "pinned"]
    assert [name for name, each in BY_NAME.items() if each.is_text] == ["other"]
    assert [BY_NAME[name].kind for name in ("part", "other", "count")] == [float, str, int]
    assert BY_NAME["count"].default == 3 and str(BY_NAME["count"].option.about) == "How many."

    def bare(run: Run, top: int = 5) -> None: ...

    with pytest.raises(TypeError, match=r"bare\(top\) says nothing about itself"):
        read_signature(bare)


def test_options_of_json_are_checked_and_of_their_types() -> None:
    given = {
        **GIVEN, "count": 9, "part": 1, "exact": False, "kind": "green", "layers": [0, 2], "pinned": ["好", 5],
        "things": [{"name": "a"}, {"name": "b"}], "other": "a text",
    }  # fmt: skip
    found = checked("everything", PARAMETERS, given)
    assert found == {
        **given, "part": 1.0, "layers": (0, 2), "pinned": ("好", 5), "things": ("a", "b"),
    }  # fmt: skip
    # what is not given is left to the function
    assert checked("everything", PARAMETERS, GIVEN) == GIVEN
    assert checked("everything", PARAMETERS, {**GIVEN, "word": 7, "part": None})["word"] == 7


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cuont": 1}, r"everything: unknown key 'cuont' \(did you mean 'count'\?\); known keys: .*count"),
        ({"count": 0}, "count is 0, expected 1 to 9"),
        ({"count": 10}, "count is 10, expected 1 to 9"),
        ({"count": "3"}, "count is '3', expected a whole number"),
        ({"count": True}, "count is True, expected a whole number"),
        ({"count": None}, "count is None, expected a whole number"),
        ({"part": 1.5}, "part is 1.5, expected 0 to 1"),
        ({"exact": 1}, "exact is 1, expected true or false"),
        ({"kind": "gren"}, r"kind is 'gren', expected one of red, green \(did you mean 'green'\?\)"),
        ({"layers": [0, -1]}, "layers is -1, expected at least 0"),
        ({"layers": 2}, "layers is 2, expected a list"),
        ({"layers": [0, "1"]}, r"layers\[1\] is '1', expected a whole number"),
        ({"pinned": [1.5]}, r"pinned\[0\] is 1.5"),
        ({"things": [{}]}, "things: a thing has no name"),
        ({"other": 3}, "other is 3, expected a text"),
        ({"word": 1.5}, "word is 1.5"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(CutawayError, match=message):
        checked("everything", PARAMETERS, {**GIVEN, **wrong})


def test_what_is_missing_is_named() -> None:
    with pytest.raises(CutawayError, match="everything: key 'needed' is missing"):
        checked("everything", PARAMETERS, {"word": "猫"})


def test_what_a_command_spells() -> None:
    for name, text, value in (
        ("word", "#123", 123),
        ("word", "123", "123"),
        ("word", "#", "#"),
        ("word", "#12a", "#12a"),
        ("layers", "0,3,-1", (0, 3, -1)),
        ("pinned", "#5,好,12", (5, "好", "12")),
        ("needed", "#5", "#5"),
        ("other", "0,1", "0,1"),
        ("things", '{"name": "a"}', [{"name": "a"}]),
        ("things", '[{"name": "a"}, {"name": "b"}]', [{"name": "a"}, {"name": "b"}]),
    ):
        assert BY_NAME[name].read(text) == value
    assert (read_token("#7"), read_token("7")) == (7, "7")
    with pytest.raises(
        CutawayError, match=r"layers is '1;2', expected whole numbers with commas .* such as 0,3,-1"
    ):
        BY_NAME["layers"].read("1;2")
    for broken, message in (
        ("{", r"thing '\{': not valid JSON: Expecting property name .* \(character 2\)"),
        ("[" * 100_000, "thing .*: JSON is nested too deeply"),
        ("1" * 10_000, "thing .*: not valid JSON: a number has thousands of digits"),
    ):
        with pytest.raises(CutawayError, match=message):
            BY_NAME["things"].read(broken)


def test_bounds_of_one_side_are_told_as_such() -> None:
    low, high = (
        Parameter("n", int, 1, Option(say("A number."), at_least=least, at_most=most))
        for least, most in ((2, None), (None, 4))
    )
    with pytest.raises(CutawayError, match=r"n is 1, expected at least 2$"):
        low.check(1)
    with pytest.raises(CutawayError, match=r"n is 5, expected at most 4$"):
        high.check(5)
    low.check(2)
    high.check(4)
