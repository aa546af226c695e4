"""`cutaway inspect MODEL TEXT`, the first screen: what a text becomes in each family, and where to go on from there."""

import shlex
from pathlib import Path

import pytest
from tests.cli.views.asking import drawn, refused, result, shown
from tests.command import Run

from cutaway import load
from cutaway.cli.views.request import View
from cutaway.inspection import run as prepare
from cutaway.inspection import sweep
from cutaway.page.numbers import nats, share
from cutaway.text.display import width
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

TEXT, VERSE, GAP = "好久不见。", "床前明月光", "The cat sat on the [MASK]."


def commands(out: str) -> list[list[str]]:
    """The commands of a screen, as a shell reads them, without the last, which is about all views."""
    lines = out[out.index("\n# ") :].replace(" \\\n", " ").replace("two\nlines", "two\vlines").split("\n")
    read = [shlex.split(line) for line in lines if line.startswith("cutaway ")]
    *found, last = [[word.replace("\v", "\n") for word in words] for words in read]
    assert last == ["cutaway", "inspect", "--help"]
    return found


def test_a_text_alone_shows_the_overview(cutaway: Run) -> None:
    run = prepare(load(find(TRANSLATOR)), TEXT)
    assert run.source is not None
    out = cutaway("inspect", TRANSLATOR, TEXT).out
    assert out == shown(cutaway, View.OVERVIEW, TRANSLATOR, TEXT)
    lines = out.splitlines()
    assert lines[0] == f"{TRANSLATOR} reads {TEXT}"
    assert lines[1].split() == ["source", *run.source.pieces]
    assert lines[2].split() == ["writes", *run.outcome.pieces]
    best = sweep(run).ranking[0]
    row = next(place for place, line in enumerate(lines) if line.startswith("attention ")) + 2
    assert lines[row].split()[1:3] == [f"{best.layer}.{best.head}", nats(best.effect)]


def test_what_a_translation_was_least_sure_of(cutaway: Run) -> None:
    run = prepare(load(find(TRANSLATOR)), TEXT)
    logits, _ = run.forward()
    scores = logits.softmax(dim=-1)
    given = [float(scores[t, id]) for t, id in enumerate(run.outcome.ids)]
    least = given.index(min(given))
    out = shown(cutaway, View.OVERVIEW, TRANSLATOR, TEXT)
    assert f"\nleast sure   {run.outcome.pieces[least]} {share(given[least])} " in out


@pytest.mark.parametrize(("model", "text"), [(TRANSLATOR, TEXT), (POET, VERSE), (MASKED, GAP)])
def test_its_commands_can_be_run_as_they_stand(cutaway: Run, model: str, text: str) -> None:
    found = commands(shown(cutaway, View.OVERVIEW, model, text))
    assert len(found) >= 4
    for words in found:
        assert words[:4] == ["cutaway", "inspect", model, text]
        told = cutaway(*words[1:])
        assert (told.code, told.err) == (0, ""), words
        assert max(map(width, told.out.splitlines())) <= 80


def test_what_was_chosen_stays_in_the_commands(cutaway: Run) -> None:
    out = shown(cutaway, View.OVERVIEW, TRANSLATOR, "它's", "--target", "It's", "--to", "en")
    for words in commands(out):
        assert words[3] == "它's" and words[-4:] == ["--target", "It's", "--to", "en"]


@pytest.mark.parametrize("text", ["It's fine.", 'She said "no".', "$HOME `id` !1 \\", "two\nlines"])
def test_any_text_comes_through_a_shell(cutaway: Run, text: str) -> None:
    found = commands(cutaway("inspect", POET, text).out)
    assert found and all(words[3] == text for words in found)


def test_decoder_only_tells_what_comes_next(cutaway: Run) -> None:
    loaded = load(find(POET))
    run = prepare(loaded, VERSE, max_new_tokens=1)
    logits, _ = run.forward()
    expected = loaded.require_tokenizer().readable(int(logits[-1].argmax()))
    out = shown(cutaway, View.OVERVIEW, POET, VERSE)
    assert f"\nnext         {expected} {share(float(logits[-1].softmax(dim=-1).max()))}  " in out
    scores = logits.log_softmax(dim=-1)
    total = sum(float(scores[t, id]) for t, id in enumerate(run.outcome.ids[:-1]))
    assert f"\nprobability  e^{total:.2f}, " in out


def test_every_gap_of_a_masked_model(cutaway: Run) -> None:
    out = shown(cutaway, View.OVERVIEW, MASKED, "The [MASK] sat on the [MASK].")
    assert "\ngap 2 " in out and "\ngap 6 " in out
    assert "probability  " not in out  # it has read the words that it would be asked about


def test_a_model_without_output_head_gives_a_vector(cutaway: Run, headless: Path) -> None:
    out = shown(cutaway, View.OVERVIEW, headless, "I love machine learning.")
    assert "\ngives        a vector of 16 numbers, " in out and "has no output head" in out
    assert "effect: 1 minus the cosine" in out
    assert all("lens" not in words for words in commands(out))
    for words in commands(out):
        assert cutaway(*words[1:]).code == 0
    assert len(result(cutaway, View.OVERVIEW, headless, "Long time no see.")["vector"]["values"]) == 16
    assert "The vector, number by number" in drawn(cutaway, View.OVERVIEW, headless, "Long time")[1]
    chinese = shown(cutaway, View.OVERVIEW, headless, "Long time", lang="zh")
    assert "\n得到         16 维向量 " in chinese and "1 减余弦" in chinese


def test_in_chinese(cutaway: Run) -> None:
    out = cutaway("inspect", POET, VERSE, "--lang", "zh").out
    assert out.startswith(f"{POET} 读入 {VERSE}\n") and "\n接下来可以看\n" in out
    for name in ("词块", "概率", "下一个", "影响"):
        assert f"\n{name}" in out
    prose = "\n".join(line for line in out.splitlines() if not line.startswith(("cutaway", "  --")))
    assert "dependence" not in prose and "head" not in prose and "# 影响最大的头 0.0" in prose
    assert max(map(width, out.splitlines())) <= 80


def test_a_drawing_colours_what_was_written(cutaway: Run) -> None:
    run = prepare(load(find(TRANSLATOR)), TEXT)
    logits, _ = run.forward()
    html, texts = drawn(cutaway, View.OVERVIEW, TRANSLATOR, TEXT)
    first = share(float(logits[0].softmax(dim=-1)[run.outcome.ids[0]]))
    assert f'title="{first}">{run.outcome.pieces[0]}</bdi>'.replace("'", "&#x27;") in html
    assert all(piece in texts for piece in run.outcome.pieces)
    assert "encoder self-attention" in texts and "cross-attention" in texts


def test_json_and_files(cutaway: Run, tmp_path: Path) -> None:
    given = result(cutaway, View.OVERVIEW, POET, VERSE, "--top", "3")
    assert given["top"] == 3 and len(given["log_probs"]) == len(VERSE) + 1
    assert cutaway("inspect", POET, VERSE, "--save", tmp_path / "all.safetensors").code == 0


def test_what_is_refused(cutaway: Run) -> None:
    assert "--top is 0, expected at least 1" in refused(cutaway, POET, VERSE, "--top", "0")
    assert "--head has no effect on --show overview; it goes with" in refused(
        cutaway, POET, VERSE, "--head", "1"
    )
