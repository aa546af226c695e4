import json
from pathlib import Path

from cutaway import load
from cutaway.decode.gaps import fill


def test_fills_as_the_library_does(cutaway, masked: Path):
    text = "I love [MASK] learning, [MASK]."
    expected = fill(load(masked), text, top=3)
    result = cutaway("fill", text, "-m", masked, "--top", "3")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{expected.text}\n")
    assert "gap 1" in result.out
    assert "gap 2" in result.out
    for gap in expected.gaps:
        for candidate in gap.candidates:
            assert f"{candidate.probability:.3f}" in result.out


def test_json_one_object_a_line(cutaway, masked: Path):
    result = cutaway("fill", "-m", masked, "--json", given="我爱[MASK]。\nI love [MASK].\n")
    found = [json.loads(line) for line in result.out.splitlines()]
    assert [len(each["gaps"]) for each in found] == [1, 1]
    assert [len(each["gaps"][0]["candidates"]) for each in found] == [5, 5]
