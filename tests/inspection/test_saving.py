"""A result in files of arrays, read back by other libraries."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tests import command

from cutaway import CutawayError, __version__, load
from cutaway.inspection import run, sweep
from cutaway.inspection.saving import ENDINGS, arrays, check_ending
from cutaway.words import say


@pytest.mark.parametrize("ending", [each.removeprefix(".") for each in ENDINGS])
def test_what_is_saved_reads_back(cutaway: command.Run, poet: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"sweep.{ending}"
    found = cutaway("inspect", "sweep", "今天天气", "-m", poet, "--save", out)
    assert found.code == 0 and found.err.startswith(f"note: {out}: base, ")
    expected = sweep(run(load(poet), "今天天气"))
    grid, sides = expected.effects["decoder"], [each.side for each in expected.ranking]
    if ending == "safetensors":
        torch.testing.assert_close(load_file(out)["effects.decoder"], grid)
        with safe_open(out, "pt") as file:
            about = file.metadata()
        assert (about["question"], about["model"], about["text"]) == ("sweep", str(poet), "今天天气")
        assert json.loads(about["texts"])["ranking.side"] == sides
    elif ending == "npz":
        with np.load(out, allow_pickle=False) as file:
            np.testing.assert_allclose(file["effects.decoder"], grid.numpy(), rtol=1e-5)
            assert file["ranking.side"].tolist() == sides
            assert (file["about.model"], file["about.cutaway"]) == (str(poet), __version__)
    else:
        with out.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        values = [float(row["value"]) for row in rows if row["array"] == "effects.decoder"]
        np.testing.assert_allclose(values, grid.flatten().numpy(), rtol=1e-5)
        assert [row["value"] for row in rows if row["array"] == "ranking.side"] == sides
        assert [rows[0][key] for key in ("array", "index0", "value")] == ["about.question", "", "sweep"]
        assert rows[2]["value"] == "今天天气"


def test_arrays_join_what_is_alike_and_keep_the_rest_apart() -> None:
    value = {
        "alike": [{"n": 1, "text": "a"}, {"n": 2, "text": "b"}],
        "ragged": [{"x": torch.ones(2)}, {"x": torch.ones(3)}],
        "words": [["a", "b"], ["c", "d"]],
        "uneven": [["a"], ["b", "c"]],
        "flag": [True, False],
        "mixed": [1, 2.5],
        "links": frozenset({(1, 0), (0, 2)}),
        "why": say("token"),
        "nothing": None,
        "empty": [],
    }
    found = dict(arrays(value))
    assert list(found) == [
        "alike.n", "alike.text", "ragged.0.x", "ragged.1.x", "words", "uneven.0", "uneven.1", "flag", "mixed",
        "links", "why",
    ]  # fmt: skip
    assert (found["alike.text"], found["words"], found["why"]) == (
        ["a", "b"],
        [["a", "b"], ["c", "d"]],
        "token",
    )
    assert torch.equal(torch.as_tensor(found["alike.n"]), torch.tensor([1, 2]))
    assert torch.equal(torch.as_tensor(found["mixed"]), torch.tensor([1, 2.5], dtype=torch.float64))
    assert torch.equal(torch.as_tensor(found["links"]), torch.tensor([[0, 2], [1, 0]]))


def test_where_a_file_cannot_be_it_is_told(tmp_path: Path) -> None:
    for name, endings, message in (
        (
            "x.pt",
            ENDINGS,
            r"--save .*x\.pt: ends in '\.pt' .*, expected \.safetensors, \.npz, \.csv",
        ),
        ("x.SVG", (".html", ".htm"), r"ends in '\.SVG'"),
        ("x", ENDINGS, "ends in nothing, expected"),
        ("x.npy", ENDINGS, r"ends in '\.npy' \(did you mean '\.npz'\?\)"),
        ("no/x.npz", ENDINGS, "there is no folder .*no; make it first$"),
    ):
        with pytest.raises(CutawayError, match=message):
            check_ending("save", tmp_path / name, endings)
    check_ending("save", tmp_path / "x.NPZ", ENDINGS)
