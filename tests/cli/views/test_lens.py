"""`--show lens`: the readings of all layers, and those at one token."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import lens
from cutaway.inspection import run as prepare
from cutaway.page.numbers import share
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

VERSE, GAP = "床前明月光", "The cat sat on the [MASK]."


def test_the_grid_ends_in_what_the_model_writes(cutaway: Run) -> None:
    lines = shown(cutaway, View.LENS, POET, VERSE).splitlines()
    assert lines[0] == "What each layer of the decoder would say, were it the last"
    pieces = result(cutaway, View.LENS, POET, VERSE)["pieces"]
    last = lines[3 + len(VERSE)].split()
    assert last == [VERSE[-1], *(layer[-1][0] for layer in pieces), pieces[-1][-1][0]]


def test_one_token_and_one_layer(cutaway: Run) -> None:
    pieces = result(cutaway, View.LENS, POET, VERSE)["pieces"]
    column = shown(cutaway, View.LENS, POET, VERSE, "--index", "-1", "--top", "2")
    assert column.startswith(f"Token {len(VERSE)}, '{VERSE[-1]}': ")
    assert f"   {pieces[-1][-1][0]} " in column.splitlines()[7]
    one = shown(cutaway, View.LENS, POET, VERSE, "--layer", "1").splitlines()
    assert one[1].split() == ["reads", "layer", "1", "writes"]
    assert one[3 + len(VERSE)].split()[1] == pieces[2][-1][0]


def test_many_readings_of_a_token_stay_within_the_width(cutaway: Run) -> None:
    lines = shown(cutaway, View.LENS, TRANSLATOR, "好久不见。", "--index", "0", "--top", "9").splitlines()
    assert sum(line.split()[:1] == ["after"] for line in lines) == 3  # blocks of columns


def test_a_gap_is_read_by_what_the_model_puts_there(cutaway: Run) -> None:
    run = prepare(load(find(MASKED)), GAP)
    logits, _ = run.forward()
    filled = run.loaded.require_tokenizer().readable(int(logits[6].argmax()))
    out = shown(cutaway, View.LENS, MASKED, GAP, "--index", "6")
    assert out.splitlines()[1].split()[:4] == ["after", "rank", "of", filled]
    assert out.splitlines()[7].split()[2:4] == ["1", share(float(logits[6].softmax(dim=-1).max()))]
    assert "\nApproximate: post-norm" in out


def test_in_chinese(cutaway: Run) -> None:
    out = shown_in_chinese(cutaway, View.LENS, POET, VERSE)
    assert out.startswith("假如解码器在某一层结束，它会说什么\n") and "第 3 层   写出" in out
    assert shown_in_chinese(cutaway, View.LENS, POET, VERSE, "--index", "2").startswith("第 2 个词块“前”处：")
    found = cutaway("inspect", MASKED, GAP, "--show", "lens", "--json", "--lang", "zh").out
    assert "后置归一化" in found and "post-norm" not in found


def test_a_drawing_shades_every_reading_by_its_probability(cutaway: Run) -> None:
    found = lens(prepare(load(find(POET)), VERSE, max_new_tokens=1))
    html, texts = drawn(cutaway, View.LENS, POET, VERSE)
    assert html.count("background:rgba(26,112,224,") >= found.ids.shape[0] * found.ids.shape[1]
    best = f"{found.pieces[-1][-1][0]} {share(float(found.log_probs[-1, -1, 0].exp()))}"
    assert f'title="{best}  ' in html
    assert "read after" in texts and all(piece in texts for piece in VERSE)


def test_saved(cutaway: Run, tmp_path: Path) -> None:
    path = tmp_path / "lens.safetensors"
    assert cutaway("inspect", POET, VERSE, "--show", "lens", "--save", path).code == 0
    assert load_file(path)["outcome_ranks"].shape == (5, len(VERSE) + 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--index", "1,x"), "expected whole numbers with commas"),
        (("--index", "1,2"), "expected one number: a token's place"),
        (("--index", "9"), "position 9 is not in the text"),
        (("--top", "0"), "--top is 0, expected at least 1"),
        (("--layer", "4"), "the decoder has no layer 4: expected 0 to 3"),
    ],
)
def test_what_is_refused(cutaway: Run, options: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, POET, "好", "--show", "lens", *options)
