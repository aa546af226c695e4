"""`--show gradients`: two methods on one number, side by side."""

from pathlib import Path

from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.attribution import TOLERANCE
from cutaway.cli.views.request import View
from cutaway.inspection import gradient_x_input, integrated_gradients, run
from cutaway.page.numbers import nats
from cutaway.zoo import POET, TRANSLATOR, find

PAIR = (TRANSLATOR, "好久不见。", "--target", "Hello.", "--index", "1")
VERSE = (POET, "床前明月光", "--against", "月")


def test_both_methods_stand_side_by_side_and_completeness_is_told(cutaway: Run) -> None:
    out = shown(cutaway, View.GRADIENTS, *PAIR)
    read = run(load(find(TRANSLATOR)), "好久不见。", target="Hello.")
    first, second = gradient_x_input(read, 1), integrated_gradients(read, 1, tolerance=TOLERANCE)
    assert read.source is not None and read.target is not None
    piece = read.target.pieces[1]
    assert out.startswith(f"What the log-probability of '{first.token}' at token 1, '{piece}', depends on\n")
    lines = out.splitlines()
    for place, piece in enumerate(read.source.pieces):
        shares = [nats(float(each.shares["encoder"][place])) for each in (first, second)]
        assert [piece, *shares] in [line.split() for line in lines]
    assert out.count(">>eng<<") == 1  # shaded tokens are for drawings
    assert second.difference is not None and second.baseline_value is not None
    told = " ".join(out.split())
    assert (
        f"sum {nats(second.total)}; value {second.value:.4g} minus {second.baseline_value:.4g} at zeros is"
        in told
    )
    assert f"the sum misses {nats(second.difference)} of it" in told


def test_chinese_from_another_token(cutaway: Run) -> None:
    out = shown_in_chinese(cutaway, View.GRADIENTS, *VERSE)
    assert out.startswith("第 5 个词块“光”处，“，”的对数概率依赖什么\n")
    assert "减去起点（月）的" in out


def test_drawings_shade_the_tokens(cutaway: Run) -> None:
    html, texts = drawn(cutaway, View.GRADIENTS, *VERSE, "--name", "明")
    shares = result(cutaway, View.GRADIENTS, *VERSE, "--name", "明")[1]["shares"]["decoder"]
    assert f'title="{nats(shares[0])}"' in html
    assert html.count('class="token"') == 12  # six tokens by either method
    assert "积分梯度" in drawn(cutaway, View.GRADIENTS, *VERSE, lang="zh")[1] and "integrated" in texts


def test_arrays_are_saved(cutaway: Run, tmp_path: Path) -> None:
    saved = tmp_path / "gradients.safetensors"
    assert cutaway("inspect", *VERSE, "--show", "gradients", "--save", saved).code == 0
    assert load_file(saved)["shares.decoder"].shape == (2, 6)


def test_what_is_refused(cutaway: Run) -> None:
    found = refused(cutaway, POET, "床前明月光", "--show", "gradients", "--index", "1,2")
    assert "--index is '1,2', expected one number" in found


def test_a_model_without_words_is_refused(cutaway: Run, headless: Path) -> None:
    found = refused(cutaway, str(headless), "今天天气很好。", "--show", "gradients")
    assert "no output head: it gives vectors and not words" in found


def test_what_the_mask_hides_is_not_listed(cutaway: Run) -> None:
    """The token at place 1 sees the target's places 0 and 1 only; the shares of the others are 0 by construction."""
    out = shown(cutaway, View.GRADIENTS, *PAIR)
    target = out[out.index("\ntarget, up to token 1\n") :]
    assert [line.split()[0] for line in target.splitlines()[4:6]] == ["<s>", "▁Hello"]
    assert target.splitlines()[6].startswith("grad × input")
    shares = result(cutaway, View.GRADIENTS, *PAIR)[0]["shares"]["decoder"]
    assert len(shares) > 2 and not any(shares[2:])
