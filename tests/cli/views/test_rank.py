"""`--show rank`: what a run loses with a matrix of lower rank."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import low_rank, parameter_matrix, run
from cutaway.zoo import POET, TRANSLATOR, find

NAME = "decoder.layers.3.mlp.down.weight"
ASKED = (POET, "床前明月光", "--name", NAME, "--ranks", "0,8")


def test_several_ranks_of_a_parameter(cutaway: Run) -> None:
    out = shown(cutaway, View.RANK, *ASKED)
    assert out.startswith(f"{NAME} at lower ranks, full rank 192\n")
    loaded = load(find(POET))
    read = run(loaded, "床前明月光", max_new_tokens=1)
    found = low_rank(read, parameter_matrix(loaded.model, NAME), (0, 8))
    rows = out.splitlines()[3:5]
    for line, each in zip(rows, found, strict=True):
        expected = [str(each.rank), f"{each.matrix_error:.3f}", f"{each.mean_kl:.4f}", str(len(each.changed))]
        assert line.split()[:4] == expected
    change = found.results[0].changed[0]
    assert f"{change.position}: {change.before_piece} → {change.after_piece}" in rows[0]
    chinese = shown_in_chinese(cutaway, View.RANK, *ASKED)
    assert chinese.startswith(f"{NAME}，降秩之后（满秩 192）\n")


def test_a_head_has_two_matrices_and_ranks_of_its_own(cutaway: Run) -> None:
    head = (TRANSLATOR, "好", "--target", "Good.", "--side", "cross", "--layer", "1", "--head", "2")
    out = shown(cutaway, View.RANK, *head)
    assert out.startswith("W_QK of decoder.layers.1.cross_attn, head 2 at lower ranks, full rank 64\n")
    assert "\nW_OV of decoder.layers.1.cross_attn, head 2 at lower ranks, full rank 64\n" in out
    assert [line.split()[0] for line in out.splitlines()[3:9]] == ["0", "2", "4", "8", "16", "32"]
    assert out.count("not purpose") == 1


def test_drawings_show_where_the_output_moves(cutaway: Run) -> None:
    html, texts = drawn(cutaway, View.RANK, *ASKED)
    kl = result(cutaway, View.RANK, *ASKED)[0]["results"][0]["kl"]
    assert f"{kl[2]:.3f}</td>" in html  # among the heat map's numbers
    assert "KL divergence, nats" in texts and "\n月\n" in texts


def test_arrays_are_saved(cutaway: Run, tmp_path: Path) -> None:
    saved = tmp_path / "rank.safetensors"
    assert cutaway("inspect", *ASKED, "--show", "rank", "--save", saved).code == 0
    assert load_file(saved)["results.kl"].shape[-2:] == (2, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--show rank needs a matrix: --name"),
        (
            ("--name", NAME, "--ranks", "1,x"),
            "--ranks is '1,x', expected whole numbers with commas between them",
        ),
        (
            ("--name", NAME, "--ranks", "400"),
            "--ranks is 400, expected numbers from 0 to 192, the full rank of",
        ),
        (("--name", NAME, "--layer", "1"), "give one of the two"),
        (("--name", "decoder.layers.3.mlp.dwn.weight"), f"(did you mean '{NAME}'?)"),
    ],
)
def test_what_is_refused(cutaway: Run, options: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, POET, "床前明月光", "--show", "rank", *options)


def test_a_model_without_words_is_refused(cutaway: Run, headless: Path) -> None:
    found = refused(cutaway, str(headless), "今天天气很好。", "--show", "rank", "--layer", "0", "--head", "1")
    assert "no output head: it gives vectors and not words" in found
