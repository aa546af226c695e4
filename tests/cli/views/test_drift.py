"""`--show drift`: one word through the layers, in two sentences."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cli.views.asking import drawn, refused, result, shown, shown_in_chinese
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import context_drift, run
from cutaway.zoo import POET, TRANSLATOR, find

FIRST, SECOND, WORD = "她是一位美女。", "街上的美女很多。", "美女"
DRIFT = (TRANSLATOR, FIRST, "--other", SECOND, "--name", WORD)


def test_drift(cutaway: Run) -> None:
    lines = shown(cutaway, View.DRIFT, *DRIFT).splitlines()
    model = load(find(TRANSLATOR))
    runs = [run(model, text, target="Yes.") for text in (FIRST, SECOND)]
    found = context_drift(runs[0], runs[1], WORD)
    assert runs[1].source is not None
    assert lines[0] == "'美女' in two sentences (encoder)"
    assert lines[2].split() == ["second", *runs[1].source.pieces]
    last = lines[next(place for place, line in enumerate(lines) if line.startswith("final norm"))].split()
    assert last[2] == f"{float(found.cosines[-1]):.3f}"
    near = [*found.first.neighbours[-1][:3], *found.second.neighbours[-1][:3]]
    assert last[3:] == [each.piece for each in near]
    assert sum(line.startswith("layer ") for line in lines) == model.config.encoder_layers
    chinese = shown_in_chinese(cutaway, View.DRIFT, *DRIFT)
    assert chinese.startswith("“美女”在两句话中（编码器）\n第一句       >>eng<< 她 ")


def test_drift_is_drawn_as_two_paths(cutaway: Run, tmp_path: Path) -> None:
    html, texts = drawn(cutaway, View.DRIFT, *DRIFT)
    assert html.count("<polyline") == 2
    assert {"first", "second", "layer 3", "first, start"} <= set(texts.split("\n"))
    saved = tmp_path / "drift.safetensors"
    assert cutaway("inspect", *DRIFT, "--show", "drift", "--save", saved).code == 0
    arrays = load_file(saved)
    row = "".join(f'<td class="right">{value:.3f}</td>' for value in arrays["cosines"].tolist())
    assert row in html


def test_drift_in_a_decoder(cutaway: Run) -> None:
    out = shown(cutaway, View.DRIFT, POET, "明月几时有", "--other", "明日何其多", "--name", "明")
    assert out.startswith("'明' in two sentences (decoder)\n")
    pair = (TRANSLATOR, "我有一本书。", "--other", "他读了那本书。", "--name", "book", "--side", "decoder")
    found = result(cutaway, View.DRIFT, *pair)
    assert (found["side"], found["table"]) == ("decoder", "unembedding")
    assert "▁book" in found["first"]["pieces"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TRANSLATOR, FIRST, "--show", "drift", "--name", WORD), "needs a second text with the same word: --other"),
        ((TRANSLATOR, FIRST, "--show", "drift", "--other", SECOND), "needs the word that both texts have: --name"),
        ((*DRIFT, "--show", "drift", "--side", "cross"), "--side is cross, which is attention"),
        (
            (TRANSLATOR, FIRST, "--show", "drift", "--other", "好。", "--name", WORD),
            "'美女' is not in the text",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(cutaway: Run, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, *arguments)
