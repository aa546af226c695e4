"""`--show logit`: what wrote a logit, component by component."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import attribute_logit, run
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

VERSE = "床前明月光"
PAIR = (TRANSLATOR, "好久不见。", "--target", "Long time no see.")


def test_components_are_listed_by_size_and_add_up(cutaway: Run) -> None:
    out = shown(cutaway, View.LOGIT, POET, VERSE)
    read = run(load(find(POET)), VERSE, max_new_tokens=1)
    found = attribute_logit(read)
    assert out.startswith(f"What wrote the logit of '{found.token}' at token 5, '光'\n")
    assert (
        f"sum          {found.total:.4f} of {len(found.components)} shares; logit {found.logit:.4f}," in out
    )
    assert f"{found.logit:.4f}" == f"{float(read.forward()[0][-1].max()):.4f}"
    largest = max(found.components, key=lambda each: abs(each.share))
    assert out.splitlines()[4].startswith(f"{largest.share:+.3f} ")
    listed = [line.split()[0] for line in out.splitlines()[4:15]]
    assert sum(map(float, listed)) == pytest.approx(found.total, abs=0.01)
    assert "the 11 others together" in out
    head = next(each for each in found.components if (each.kind, each.layer, each.number) == ("head", 2, 0))
    row = next(line.split() for line in out.splitlines() if line.startswith("2   "))
    assert row[1] == f"{head.share:+.2f}"


def test_chinese_and_a_second_token(cutaway: Run) -> None:
    english = shown(cutaway, View.LOGIT, *PAIR, "--name", "▁No", "--against", "▁It's")
    assert english.startswith("What wrote the logit of '▁No' minus that of '▁It's' at token 0, '<s>'\n")
    assert "By layer (s self-attention, c cross-attention, ff feed-forward, b biases)" in english
    out = shown_in_chinese(cutaway, View.LOGIT, *PAIR, "--name", "▁No", "--against", "▁It's")
    assert out.startswith("第 0 个词块“<s>”处，“▁No”与“▁It's”的 logit 之差由谁写成\n")
    read = run(load(find(TRANSLATOR)), "好久不见。", target="Long time no see.")
    found = attribute_logit(read, 0, "▁No", against="▁It's")
    assert f"项份额共 {found.total:.4f}；logit 为 {found.logit:.4f}，" in out
    assert "cross_attn 的第" in out and "s 自注意力的头，c 交叉注意力的头" in out


def test_a_masked_model_is_asked_about_its_gap(cutaway: Run) -> None:
    out = shown(cutaway, View.LOGIT, MASKED, "The cat sat on the [MASK].", "--top", "3")
    assert " at token 6, '[MASK]'\n" in out
    assert "To keep in mind: post-norm: the sum is exact" in out
    assert "请注意：post-norm（先相加后归一化）：总和是精确的" in shown_in_chinese(
        cutaway, View.LOGIT, MASKED, "The cat sat on the [MASK]."
    ).replace("\n", "")


def test_drawings(cutaway: Run) -> None:
    html, texts = drawn(cutaway, View.LOGIT, *PAIR)
    components = result(cutaway, View.LOGIT, *PAIR)["components"]
    ff = next(each["share"] for each in components if each["kind"] == "feed-forward" and each["layer"] == 2)
    assert f'<td class="right">{ff:.3f}</td>' in html
    assert "\nc3\n" in texts and "\nff\n" in texts


def test_arrays_are_saved(cutaway: Run, tmp_path: Path) -> None:
    saved = tmp_path / "logit.safetensors"
    assert cutaway("inspect", POET, VERSE, "--show", "logit", "--save", saved).code == 0
    arrays = load_file(saved)
    assert float(arrays["components.share"].sum()) == pytest.approx(float(arrays["total"]))


def test_what_is_refused(cutaway: Run) -> None:
    assert "position 99 is not in the text" in refused(
        cutaway, POET, VERSE, "--show", "logit", "--index", "99"
    )
    assert "--layer has no effect on --show logit" in refused(
        cutaway, POET, VERSE, "--show", "logit", "--layer", "1"
    )


def test_a_model_without_words_is_refused(cutaway: Run, headless: Path) -> None:
    found = refused(cutaway, str(headless), "今天天气很好。", "--show", "logit")
    assert "no output head: it gives vectors and not words" in found
