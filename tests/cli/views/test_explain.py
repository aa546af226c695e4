"""`--show explain`: one number with its formula and operands."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import explain
from cutaway.inspection import run as prepare
from cutaway.page.numbers import number
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

VERSE, GAP = "床前明月光", "The cat sat on the [MASK]."
PATTERN = "decoder.layers.0.self_attn.pattern"


def test_the_last_logit_unless_another_is_named(cutaway: Run) -> None:
    out = shown(cutaway, View.EXPLAIN, POET, VERSE)
    run = prepare(load(find(POET)), VERSE, max_new_tokens=1)
    index = (0, len(VERSE), run.outcome.ids[-1])
    found = explain(run, "head.logits", index)
    assert out.startswith(f"head.logits[{','.join(map(str, index))}] = {number(found.recorded)}\n")
    assert f"\nworked out   {found.result:.9g} in float64 from these operands\n" in out
    assert ", within the " in out and "\nformula      logits[t,v] = " in out
    assert shown(cutaway, View.EXPLAIN, MASKED, GAP).startswith("head.logits[0,6,")  # of the gap


def test_a_number_by_name(cutaway: Run) -> None:
    found = result(cutaway, View.EXPLAIN, POET, VERSE, "--name", PATTERN, "--index", "0,1,2,-1")
    assert found["recorded"] == found["result"] == 0  # a decoder does not see later tokens
    assert found["agrees"] is True
    assert None in found["operands"][0]["values"]  # -inf of the mask


def test_where_the_way_ends(cutaway: Run) -> None:
    out = shown(cutaway, View.EXPLAIN, TRANSLATOR, "好", "--name", "source", "--index", "0,0")
    assert out.splitlines()[1:] == ["a token's id: what the model was given."]
    weight = ("--name", "head.unembed.weight", "--index", "0,0")
    assert "a parameter: learned" in shown(cutaway, View.EXPLAIN, POET, "好", *weight)
    assert "参数：训练得到" in shown(cutaway, View.EXPLAIN, POET, "好", *weight, lang="zh")


def test_meanings_in_both_languages(cutaway: Run) -> None:
    masked = ("--name", "decoder.layers.0.self_attn.masked", "--index", "0,0,0,1")
    assert "the key stands after the query" in shown(cutaway, View.EXPLAIN, POET, VERSE, *masked)
    out = shown(cutaway, View.EXPLAIN, POET, VERSE, *masked, lang="zh")
    assert "键在查询之后" in out
    assert not any(word in out for word in ("formula", "operand", "worked", "difference", "command"))
    found = cutaway("inspect", POET, VERSE, "--show", "explain", *masked, "--json", "--lang", "zh").out
    assert "键在查询之后" in found and "the key stands" not in found


def test_a_drawing_has_the_operands_and_the_same_number_in_python(cutaway: Run) -> None:
    html, texts = drawn(cutaway, View.EXPLAIN, TRANSLATOR, "好久不见。", lang="zh")
    assert (
        "运算数，逐个数值" in texts and texts.count("W_u[") == 1 + 8
    )  # the formula, and 256 numbers in rows of 32
    assert "value = trace[" in texts and "<pre><code>import torch" in html


def test_saved(cutaway: Run, tmp_path: Path) -> None:
    path = tmp_path / "explain.safetensors"
    assert cutaway("inspect", POET, VERSE, "--show", "explain", "--save", path).code == 0
    assert load_file(path)["agrees"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--index", "3"), "--index without --name"),
        (("--name", "head.logits"), "name one number of it by --index"),
        (("--name", "head.logit", "--index", "0"), "'head.logits'?)"),
        (("--name", "head.logits", "--index", "0,99,0"), "99 in index (0, 99, 0) is outside"),
    ],
)
def test_what_is_refused(cutaway: Run, options: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, POET, "好", "--show", "explain", *options)
