"""A text at a glance, checked against the model's own logits and the sweep; where to go on from there."""

import shlex
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
import torch
from tests import command
from tests.command import Case, page_of, refused, result, shown

from cutaway import find, load
from cutaway.inspection.question import find_question
from cutaway.inspection.questions.overview import overview
from cutaway.inspection.questions.sweep import sweep
from cutaway.inspection.runs import Run, run
from cutaway.page.numbers import nats, share
from cutaway.text.display import width
from cutaway.zoo import MASKED, POET, TRANSLATOR

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("masked", "今天[MASK]好。", {"top": 2}),
    ("poet", "lens", {}),
]

TEXT, VERSE, GAP = "好久不见。", "床前明月光", "The cat sat on the [MASK]."


@pytest.mark.parametrize("structure", ["post-norm pair", "Llama", "experts", "BERT"])
def test_log_probabilities_are_the_models_own(run_of: Callable[..., Run], structure: str) -> None:
    looked = run_of(structure)
    found = overview(looked, top=3)
    logits, _ = looked.forward()
    scores = logits.double().log_softmax(dim=-1)
    expected = scores[range(len(found.outcome)), found.outcome.ids]
    torch.testing.assert_close(found.log_probs.double(), expected, atol=1e-5, rtol=0)
    assert found.heads == sweep(looked).ranking[:3] and found.vector is None
    for each in found.expected:
        order = scores[each.position].argsort(descending=True)[: len(each.tokens)].tolist()
        assert each.tokens.ids == order
        assert float(each.log_probs[0]) == pytest.approx(float(scores[each.position].max()), abs=1e-5)


@pytest.mark.parametrize("structure", ["post-norm pair", "Llama", "BERT", "no head"])
def test_one_pass_for_all_of_it(
    structure: str, run_of: Callable[..., Run], passes: Callable[[], int]
) -> None:
    overview(run_of(structure))
    assert passes() == 1


def test_where_it_tells_what_else_could_have_been() -> None:
    translated = overview(run(load(find(TRANSLATOR)), TEXT), top=1)
    assert translated.text == "It's been a long time."
    assert [each.position for each in translated.expected] == [int(translated.log_probs.argmin())]
    verse = overview(run(load(find(POET)), VERSE), top=1)
    assert [each.position for each in verse.expected] == [5] and verse.text == ""
    gaps = overview(run(load(find(MASKED)), "A [MASK] and a [MASK]."), top=1)
    assert [each.position for each in gaps.expected] == [2, 5]
    assert gaps.outcome.ids[2] == gaps.expected[0].tokens.ids[0]
    assert overview(run(load(find(MASKED)), "no gap"), top=1).expected == ()


def commands(out: str) -> list[list[str]]:
    """The commands of a screen, as a shell reads them, without the last, which is about all questions."""
    lines = out.replace(" \\\n", " ").replace("two\nlines", "two\vlines").split("\n")
    read = [shlex.split(line) for line in lines if line.startswith("cutaway ")]
    found = [[word.replace("\v", "\n") for word in words] for words in read]
    last = found.index(["cutaway", "inspect", "--help"])
    return found[:last]


def test_a_text_alone_shows_the_overview(cutaway: command.Run) -> None:
    this = run(load(find(TRANSLATOR)), TEXT)
    assert this.source is not None
    out = shown(cutaway, TEXT)
    assert out == shown(cutaway, "overview", TEXT)
    lines = [line.split() for line in out.splitlines()]
    assert ["source", *this.source.pieces] in lines and ["writes", *this.outcome.pieces] in lines
    best = sweep(this).ranking[0]
    assert any(line[1:3] == [f"{best.layer}.{best.head}", nats(best.effect)] for line in lines)
    logits, _ = this.forward()
    given = logits.softmax(dim=-1)[range(len(this.outcome)), this.outcome.ids].tolist()
    least = given.index(min(given))
    assert f"\nleast sure   {this.outcome.pieces[least]} {share(given[least])} " in out


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (TRANSLATOR, TEXT),
        pytest.param(POET, VERSE, marks=pytest.mark.slow),
        pytest.param(MASKED, GAP, marks=pytest.mark.slow),
    ],
)
def test_what_it_suggests_can_be_asked_as_it_stands(cutaway: command.Run, model: str, text: str) -> None:
    found = commands(shown(cutaway, text, "-m", model))
    asked = [each.question for each in overview(run(load(find(model)), text)).suggestions()]
    assert [words[2] for words in found] == asked
    assert asked == [
        *(["align"] if model == TRANSLATOR else []),
        "cover", "word", "candidates", "flow", "attention", "lens", "gradients", "diff", "explain",
    ]  # fmt: skip
    for words in found:
        assert words[3] == text and words[words.index("-m") + 1] == model
        told = cutaway(*words[1:])
        assert (told.code, told.err) == (0, ""), words
        # which has lines to copy, and these stay whole
        if words[2] != "explain":
            assert max(map(width, told.out.splitlines())) <= 80


@pytest.mark.parametrize("structure", ["post-norm pair", "Llama", "experts", "BERT", "no head"])
def test_suggestions_have_options_of_their_questions(structure: str, run_of: Callable[..., Run]) -> None:
    for each in overview(run_of(structure)).suggestions():
        question = find_question(each.question)
        question.options({**({} if question.subject == "text" else {"text": "x"}), **each.options})


def test_what_was_chosen_stays_in_the_commands(cutaway: command.Run) -> None:
    for words in commands(shown(cutaway, "它's", "--target", "It's", "--to", "en")):
        assert words[3] == "它's" and words[-4:] == ["--target", "It's", "--to", "en"]


@pytest.mark.parametrize("text", ["It's fine.", 'She said "no".', "$HOME `id` !1 \\", "two\nlines"])
def test_any_text_comes_through_a_shell(cutaway: command.Run, text: str) -> None:
    found = commands(cutaway("inspect", text, "-m", POET).out)
    assert found and all(words[3] == text for words in found)


def test_decoder_only_tells_what_comes_next(cutaway: command.Run) -> None:
    loaded = load(find(POET))
    this = run(loaded, VERSE)
    logits, _ = this.forward()
    expected = loaded.require_tokenizer().readable(int(logits[-1].argmax()))
    out = shown(cutaway, VERSE, "-m", POET)
    assert f"{expected} {share(float(logits[-1].softmax(dim=-1).max()))}  " in out
    scores = logits.log_softmax(dim=-1)
    total = sum(float(scores[t, id]) for t, id in enumerate(this.outcome.ids[:-1]))
    assert f"\nprobability  e^{total:.2f}, " in out


def test_every_gap_of_a_masked_model(cutaway: command.Run) -> None:
    out = shown(cutaway, "The [MASK] sat on the [MASK].", "-m", MASKED)
    assert "\ngap 2 " in out and "\ngap 6 " in out
    # it has read the words that it would be asked about
    assert "probability  " not in out


def test_a_model_without_output_head_gives_a_vector(cutaway: command.Run, headless: Path) -> None:
    out = shown(cutaway, "I love machine learning.", "-m", headless)
    assert "\ngives        a vector of 16 numbers, " in out and "has no output head" in out
    assert [words[2] for words in commands(out)] == ["flow", "attention", "diff", "explain"]
    for words in commands(out):
        assert cutaway(*words[1:]).code == 0
    assert len(result(cutaway, "Long time no see.", "-m", headless)["vector"]["values"]) == 16
    assert "The vector, number by number" in page_of(cutaway, "Long time", "-m", headless)
    assert "1 减余弦" in shown(cutaway, "Long time", "-m", headless, lang="zh")


def test_in_chinese_and_as_a_page(cutaway: command.Run) -> None:
    out = shown(cutaway, VERSE, "-m", POET, lang="zh")
    prose = "\n".join(line for line in out.splitlines() if not line.startswith(("cutaway", "  ")))
    assert "dependence" not in prose and "head" not in prose and "\n概率" in out
    this = run(load(find(TRANSLATOR)), TEXT)
    logits, _ = this.forward()
    html = page_of(cutaway, TEXT)
    first = share(float(logits[0].softmax(dim=-1)[this.outcome.ids[0]]))
    assert f'title="{first}"' in html and all(piece in unescape(html) for piece in this.outcome.pieces)
    assert "encoder self-attention" in html and "cross-attention" in html


def test_json_files_and_refusals(cutaway: command.Run, tmp_path: Path) -> None:
    given = result(cutaway, VERSE, "-m", POET, "--top", "3")
    assert given["sweep"]["top"] == 3 and len(given["log_probs"]) == len(VERSE) + 1
    assert cutaway("inspect", VERSE, "-m", POET, "--save", tmp_path / "all.safetensors").code == 0
    assert "top is 0, expected at least 1" in refused(cutaway, VERSE, "-m", POET, "--top", "0")
