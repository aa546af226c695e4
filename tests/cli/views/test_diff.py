"""`--show diff`: the same run under changes and without."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import __version__, load
from cutaway.cli.views.request import View
from cutaway.inspection import compare
from cutaway.inspection import run as prepare
from cutaway.page.numbers import nats
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

TEXT, VERSE = "好久不见。", "床前明月光"
OFF = '{"op": "head", "side": "cross", "layer": "*", "head": "*"}'
SKIPPED = '{"op": "layer", "layer": 2}'


def test_what_is_written_and_how_the_tokens_fare(cutaway: Run) -> None:
    out = shown(cutaway, View.DIFF, TRANSLATOR, TEXT, "--change", OFF)
    found = result(cutaway, View.DIFF, TRANSLATOR, TEXT, "--change", OFF)
    base, changed = found["base"], found["changed"]
    assert base["text"] != changed["text"]
    assert f"\nwithout      {base['text']}\n" in out and f"\nwith         {changed['text']}\n" in out
    assert "encoder      residual stream does not move\n" in out
    assert "decoder      residual stream first moves in layer 0;" in out
    compared = compare(prepare(load(find(TRANSLATOR)), TEXT), [json.loads(OFF)])
    first = next(line.split() for line in out.splitlines() if line.startswith(f"{compared.pieces[0]}  "))
    assert first[3:] == [nats(float(compared.difference[0])), f"{float(compared.divergence[0]):.3f}"]
    shown(cutaway, View.DIFF, POET, VERSE, "--change", SKIPPED)


def test_no_change_changes_nothing(cutaway: Run) -> None:
    assert "the same, token by token" in shown(cutaway, View.DIFF, TRANSLATOR, TEXT, "--change", "[]")


def test_in_chinese(cutaway: Run) -> None:
    out = shown_in_chinese(cutaway, View.DIFF, POET, VERSE, "--change", SKIPPED)
    assert (
        out.startswith("同一段文字：改动前与改动后\n改动         {")
        and "\n解码器       残差流从第 2 层起变化" in out
    )
    gap = shown(cutaway, View.DIFF, MASKED, "a [MASK]", "--change", '{"op": "layer", "layer": 1}', lang="zh")
    assert "概率，以整段文字为条件" in gap


def test_a_drawing_shows_where_the_residual_stream_has_moved(cutaway: Run) -> None:
    html, texts = drawn(cutaway, View.DIFF, POET, VERSE, "--change", SKIPPED)
    assert "How far the residual stream of the decoder has moved" in texts and "token read" in texts
    assert 'class="right" style="background:rgba(' in html


def test_the_vector_of_a_model_without_output_head(cutaway: Run, headless: Path) -> None:
    change = '{"op": "head", "side": "encoder", "layer": 0, "head": 0}'
    out = shown(cutaway, View.DIFF, headless, "Long time no see.", "--change", change)
    found = compare(prepare(load(headless), "Long time no see."), [json.loads(change)])
    assert found.vector is not None
    assert f"\n1 − cosine   {found.vector.distance:.4g}\n" in out
    shown_in_chinese(cutaway, View.DIFF, headless, "好久不见。", "--change", change)


def test_saved(cutaway: Run, tmp_path: Path) -> None:
    path = tmp_path / "diff.safetensors"
    options = ("--show", "diff", "--change", SKIPPED, "--save", path)
    assert cutaway("inspect", POET, VERSE, *options).code == 0
    assert load_file(path)["divergence"].shape == (len(VERSE) + 1,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((), "--show diff needs a change: --change '"),
        (("--change", '{"op"'), "--change '{\"op\"' is no JSON: "),
        (("--change", "3"), "--change: 3, expected an object such as"),
        (("--change", '{"op": "hed"}'), "(did you mean 'head'?)"),
    ],
)
def test_what_is_refused(cutaway: Run, change: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, POET, "好", "--show", "diff", *change)


FROM_OTHER = '{"op": "resid", "side": "encoder", "layer": 1, "token": 2, "from": "other"}'


def test_a_residual_taken_from_another_text(cutaway: Run, tmp_path: Path) -> None:
    """Activation patching, and the list of changes as it was written, in JSON and in a file."""
    options = ("--other", "我恨你。", "--change", FROM_OTHER)
    found = result(cutaway, View.DIFF, TRANSLATOR, "我爱你。", *options)
    assert found["changes"] == [json.loads(FROM_OTHER)]
    loaded = load(find(TRANSLATOR))
    runs = {"other": prepare(loaded, "我恨你。")}
    expected = compare(prepare(loaded, "我爱你。"), [json.loads(FROM_OTHER)], runs=runs)
    assert found["changed"]["text"] == expected.changed.text if expected.changed else False
    assert found["divergence"] == pytest.approx(expected.divergence.tolist(), abs=1e-6)
    assert max(found["divergence"]) > 0.1
    saved = tmp_path / "diff.csv"
    assert cutaway("inspect", TRANSLATOR, "我爱你。", "--show", "diff", *options, "--save", saved).code == 0
    assert "\nchanges.op,0,,resid\n" in saved.read_text(encoding="utf-8").replace(",,,", ",,")
    text = (TRANSLATOR, "我爱你。", "--show", "diff")
    assert "give that text by --other" in refused(cutaway, *text, "--change", FROM_OTHER)
    assert "--other has no effect" in refused(cutaway, *text, "--other", "我恨你。", "--change", OFF)


def test_an_open_mask_is_told_of(cutaway: Run) -> None:
    opened = ("--change", '{"op": "mask", "set": "open"}')
    said = "With the mask open, a token sees itself"
    assert said in shown(cutaway, View.DIFF, TRANSLATOR, TEXT, *opened)
    assert said not in shown(cutaway, View.DIFF, TRANSLATOR, TEXT, "--change", OFF)
    assert "掩码打开后" in shown_in_chinese(cutaway, View.DIFF, POET, VERSE, *opened)


def test_drawings_say_what_they_came_from(cutaway: Run) -> None:
    html, svg = Path("page.html"), Path("page.svg")
    drawn(cutaway, View.DIFF, TRANSLATOR, TEXT, "--change", OFF)
    (told,) = re.findall(r"<metadata>(.*?)</metadata>", svg.read_text(encoding="utf-8"))
    about = json.loads(unescape(told))
    assert (about["model"], about["text"], about["view"], about["cutaway"]) == (
        TRANSLATOR,
        TEXT,
        "diff",
        __version__,
    )
    assert json.loads(about["options"])["change"] == [OFF]
    (told,) = re.findall(r'<meta name="cutaway" content="(.*?)">', html.read_text(encoding="utf-8"))
    assert json.loads(unescape(told)) == about
