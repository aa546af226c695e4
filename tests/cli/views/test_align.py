"""`--show align`: where a translation looked, beside what it depends on."""

import re
from pathlib import Path

import torch
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import align, compare_with_gold, patterns, read_pharaoh, source_effect
from cutaway.inspection import run as prepare
from cutaway.zoo import POET, TRANSLATOR, find

TEXT = "好久不见。"


def test_align_tells_where_it_looked_and_what_it_depends_on(cutaway: Run, tmp_path: Path):
    saved_at = tmp_path / "align.safetensors"
    out = cutaway("inspect", TRANSLATOR, TEXT, "--show", "align", "--save", saved_at).out
    found = align(load(find(TRANSLATOR)), TEXT)
    for hypothesis in found.hypotheses:
        assert f"{hypothesis.score:.3f}   {hypothesis.text}" in out
    best = found.hypotheses[0].alignment
    assert best is not None and len(found.hypotheses) == 4
    arrays_of = load_file(saved_at)
    weights, effect = arrays_of["weights"], arrays_of["effect.effect"]
    torch.testing.assert_close(weights, best, atol=1e-4, rtol=0)
    lines = out.splitlines()
    row = lines[next(place for place, line in enumerate(lines) if line.startswith("token ")) + 2].split()
    source = found.source.pieces
    assert row[2] == source[int(weights[0].argmax())]
    assert row[6] == source[int(effect[0].argmax())]
    options = ("--target", "Yes.", "--layer", "2", "--head", "1")
    given = result(cutaway, View.ALIGN, TRANSLATOR, TEXT, *options)
    assert given["search"] is None
    run = prepare(load(find(TRANSLATOR)), TEXT, target="Yes.")
    torch.testing.assert_close(torch.tensor(given["weights"]), patterns(run, "cross").of(2, 1))


def test_both_languages(cutaway: Run):
    assert shown(cutaway, View.ALIGN, TRANSLATOR, TEXT).startswith(
        "Where the decoder looked (all layers, mean of all"
    )
    chinese = shown_in_chinese(cutaway, View.ALIGN, TRANSLATOR, "Hello.", "--layer", "3", "--head", "0")
    assert chinese.startswith("解码器看向哪里（第 3 层，第 0 头）\n") and "\n贪心 " in chinese


def test_drawings_have_every_head_and_the_measured_effect(cutaway: Run):
    html, texts = drawn(cutaway, View.ALIGN, TRANSLATOR, TEXT)
    assert html.count("data-place=") == 16
    found = source_effect(
        align(load(find(TRANSLATOR)), TEXT).run(align(load(find(TRANSLATOR)), TEXT).hypotheses[0])
    )
    greatest = f"{float(found.effect.abs().max()):.4g}"
    assert f"\n{greatest}\n" in texts and "fall of log-probability, nats" in texts
    assert re.search(r"source token hidden", texts)


def test_every_hypothesis_draws_itself():
    found = align(load(find(TRANSLATOR)), TEXT)
    html = found.to_html(locale="zh")
    assert html.count("<figure") == len(found.hypotheses) == 4
    assert all(each.text in html.replace("&#x27;", "'") for each in found.hypotheses)


def test_only_a_translator_aligns(cutaway: Run):
    assert "expected encoder-decoder" in refused(cutaway, POET, "床前明月光", "--show", "align")


def test_heads_are_labelled_as_the_mean_is(cutaway: Run) -> None:
    html, _ = drawn(cutaway, View.ALIGN, TRANSLATOR, "好久不见。", lang="zh")
    assert "→ 原文" in html and "→ 键" not in html


def test_gold_links_give_error_rates(cutaway: Run, tmp_path: Path):
    text = (TRANSLATOR, "我爱你。", "--target", "I love you.", "--gold", "0-0 1-1 2-2")
    found = result(cutaway, View.ALIGN, *text)["gold"]
    run = prepare(load(find(TRANSLATOR)), "我爱你。", target="I love you.")
    expected = compare_with_gold(run, read_pharaoh("0-0 1-1 2-2"))
    assert found["effect"]["in_sure"] == expected.effect.in_sure > 0
    assert found["gold"]["sure"] == [[0, 0], [1, 1], [2, 2]]
    saved = tmp_path / "gold.safetensors"
    assert cutaway("inspect", *text, "--show", "align", "--save", saved).code == 0
    assert int(load_file(saved)["gold.effect.in_sure"]) == expected.effect.in_sure
    out = shown(cutaway, View.ALIGN, *text)
    assert (
        f"what it depends on   {expected.effect.aer:.2f} " in out
        and "Against the links that people drew" in out
    )
    assert "--gold is empty" in refused(cutaway, *text[:-1], "", "--show", "align")
