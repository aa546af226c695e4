"""A view's result as JSON and as files of arrays."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tests.command import Run

from cutaway import __version__, load
from cutaway.cli.views.saving import arrays, plain
from cutaway.inspection import run as prepare
from cutaway.inspection import sweep
from cutaway.page.locale import Both
from cutaway.zoo import POET, find

VERSE = "床前明月光"


@pytest.mark.parametrize("ending", ["safetensors", "npz", "csv"])
def test_save_reads_back(cutaway: Run, tmp_path: Path, ending: str):
    out = tmp_path / f"sweep.{ending}"
    found = cutaway("inspect", POET, VERSE, "--show", "sweep", "--save", out)
    assert found.code == 0 and found.err.startswith(f"note: {out}: base, ")
    expected = sweep(prepare(load(find(POET)), VERSE, max_new_tokens=1))
    grid, sides = expected.effects["decoder"], [each.side for each in expected.ranking]
    if ending == "safetensors":
        torch.testing.assert_close(load_file(out)["effects.decoder"], grid)
        with safe_open(out, "pt") as file:
            about = file.metadata()
        assert (about["view"], about["model"], about["text"]) == ("sweep", POET, VERSE)
        assert json.loads(about["texts"])["ranking.side"] == sides
    elif ending == "npz":
        with np.load(out, allow_pickle=False) as file:
            np.testing.assert_allclose(file["effects.decoder"], grid.numpy())
            assert file["ranking.side"].tolist() == sides
            assert (file["about.model"], file["about.cutaway"]) == (POET, __version__)
    else:
        with out.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        values = [float(row["value"]) for row in rows if row["array"] == "effects.decoder"]
        np.testing.assert_allclose(values, grid.flatten().numpy())
        assert [row["value"] for row in rows if row["array"] == "ranking.side"] == sides
        assert (rows[0]["array"], rows[0]["value"], rows[2]["value"]) == ("about.view", "sweep", VERSE)


def test_arrays_join_what_is_alike_and_keep_the_rest_apart():
    value = {
        "alike": [{"n": 1, "text": "a"}, {"n": 2, "text": "b"}],
        "ragged": [{"x": torch.ones(2)}, {"x": torch.ones(3)}],
        "words": [["a", "b"], ["c", "d"]],
        "uneven": [["a"], ["b", "c"]],
        "flag": [True, False],
        "mixed": [1, 2.5],
        "nothing": None,
        "empty": [],
    }
    found = dict(arrays(value))
    assert list(found) == [
        "alike.n", "alike.text", "ragged.0.x", "ragged.1.x", "words", "uneven.0", "uneven.1", "flag", "mixed",
    ]  # fmt: skip
    assert (found["alike.text"], found["words"]) == (["a", "b"], [["a", "b"], ["c", "d"]])
    assert torch.equal(torch.as_tensor(found["alike.n"]), torch.tensor([1, 2]))
    assert torch.equal(torch.as_tensor(found["mixed"]), torch.tensor([1, 2.5], dtype=torch.float64))


def test_plain_values_are_json():
    value = {"t": torch.tensor([1.0, float("-inf")]), "i": (0, slice(None), slice(1, 3)), "f": float("nan")}
    assert plain(value) == {"t": [1.0, None], "i": [0, ":", "1:3"], "f": None}


def test_a_text_in_two_languages_is_said_in_the_readers():
    assert plain({"why": Both("because", "因为")}, "zh") == {"why": "因为"}
    assert dict(arrays({"why": Both("because", "因为")})) == {"why": "because"}
