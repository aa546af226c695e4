"""`--show sweep`: what the output loses without each head."""

from pathlib import Path

from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import run as prepare
from cutaway.inspection import sweep
from cutaway.page.numbers import nats
from cutaway.zoo import POET, TRANSLATOR, find

VERSE = "床前明月光"


def test_the_grid_and_the_ranking(cutaway: Run) -> None:
    out = shown(cutaway, View.SWEEP, POET, VERSE, "--top", "3")
    assert out.startswith("decoder self-attention: what the output loses without each head (nats)\n")
    found = sweep(prepare(load(find(POET)), VERSE, max_new_tokens=1))
    listed = out[out.index("depends on most") :].splitlines()[3:6]
    assert [line.split()[:3] for line in listed] == [
        ["decoder", f"{each.layer}.{each.head}", nats(each.effect)] for each in found.ranking[:3]
    ]
    row = next(line.split() for line in out.splitlines() if line.startswith("1 "))
    assert row[1:] == [nats(effect) for effect in found.effects["decoder"][1].tolist()]


def test_one_side_of_three(cutaway: Run) -> None:
    out = shown(cutaway, View.SWEEP, TRANSLATOR, "好", "--side", "cross")
    assert "cross-attention: " in out and "encoder" not in out


def test_in_chinese(cutaway: Run) -> None:
    out = shown_in_chinese(cutaway, View.SWEEP, TRANSLATOR, "好")
    for side in ("编码器自注意力", "解码器自注意力", "交叉注意力"):
        assert f"{side}：关掉某个头，输出损失多少（奈特）\n" in out


def test_the_unit_of_a_model_without_output_head(cutaway: Run, headless: Path) -> None:
    out = shown(cutaway, View.SWEEP, headless, "Long time no see.")
    found = sweep(prepare(load(headless), "Long time no see."))
    first = found.ranking[0]
    assert "1 minus the cosine between the text's vector" in out
    listed = out[out.index("depends on most") :].splitlines()[3].split()
    assert listed[:3] == ["encoder", f"{first.layer}.{first.head}", nats(1000 * first.effect)]


def test_a_drawing_is_a_heat_map_a_side(cutaway: Run) -> None:
    html, texts = drawn(cutaway, View.SWEEP, TRANSLATOR, "好", lang="zh")
    found = sweep(prepare(load(find(TRANSLATOR)), "好"))
    assert html.count("<figure data-values") == 3
    assert f"{float(found.effects['cross'].abs().max()):.4g}" in texts


def test_saved(cutaway: Run, tmp_path: Path) -> None:
    path = tmp_path / "sweep.safetensors"
    assert cutaway("inspect", POET, VERSE, "--show", "sweep", "--save", path).code == 0
    assert load_file(path)["effects.decoder"].shape == (4, 4)


def test_what_is_refused(cutaway: Run) -> None:
    told = refused(cutaway, POET, VERSE, "--show", "sweep", "--side", "encoder")
    assert "side is 'encoder' (did you mean 'decoder'?): a decoder-only model attends on decoder only" in told
