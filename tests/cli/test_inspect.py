"""`cutaway inspect`: every question is a command, and what all of these have in common."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.command import Run, page_of, refused, result, shown

from cutaway import find, load
from cutaway.inspection import lens, overview, run
from cutaway.inspection.question import GROUPS, RUN_OPTIONS, all_questions, names
from cutaway.zoo import POET


def test_help_lists_every_question_under_its_group(cutaway: Run) -> None:
    found = cutaway("inspect", "--help")
    assert (found.code, found.err) == (0, "")
    assert "Without a question's name: overview." in " ".join(found.out.split())
    at = 0
    for group, title in GROUPS.items():
        listed = [each for each in all_questions() if each.group == group]
        at = found.out.index(f"\n{title}\n", at)
        for each in listed:
            at = found.out.index(f"\n  {each.name} ", at)
            words = " ".join(found.out[at:].split())
            assert words.startswith(f"{each.name} {each.about}")


@pytest.mark.parametrize("name", names())
def test_help_of_a_question_is_its_declaration(cutaway: Run, name: str) -> None:
    (question,) = (each for each in all_questions() if each.name == name)
    out = cutaway("inspect", name, "--help").out
    words = " ".join(out.split())
    assert words.startswith(f"Usage: cutaway inspect {name} [options]") and str(question.about) in words
    of_run = RUN_OPTIONS if question.subject == "text" else ()
    for parameter in (*question.parameters, *of_run):
        spelled = getattr(parameter.option, "each", "") or parameter.name.replace("_", "-")
        assert (parameter.name if parameter.option.positional else f"--{spelled}") in words
        about = str(parameter.option.about)
        assert about[:60] in words, (parameter.name, about)
        if parameter.kind is int and parameter.default is not None and not parameter.required:
            assert f"[default {parameter.default}" in words
    for shared in ("--model", "--json", "--python", "--save", "--svg", "--html", "--lang"):
        assert f" {shared}" in words
    assert ("[text]" in words) == (question.subject == "text")


def test_a_text_alone_is_looked_at_as_a_whole(cutaway: Run, poet: Path) -> None:
    bare, named = (
        cutaway("inspect", *start, "今天天气", "-m", poet, "--json") for start in ((), ("overview",))
    )
    assert bare == named and bare.code == 0
    given = json.loads(bare.out)
    assert (given["question"], given["model"], given["text"]) == ("overview", str(poet), "今天天气")
    expected = overview(run(load(poet), "今天天气"))
    assert given["result"]["log_probs"] == pytest.approx(expected.log_probs.tolist(), abs=1e-5)
    assert cutaway("inspect", "-m", poet, "--top", "2", "今天天气").out.startswith(
        "What poet0 makes of this text\n"
    )


def test_a_text_may_come_on_standard_input(cutaway: Run, poet: Path) -> None:
    asked = cutaway("inspect", "lens", "-m", poet, "--json", given="今天天气\n")
    assert json.loads(asked.out)["text"] == "今天天气"
    assert asked == cutaway("inspect", "lens", "今天天气", "-m", poet, "--json")
    lines = cutaway("inspect", "lens", "-m", poet, "--json", given="\ufeff今天\r\n天气\n")
    assert json.loads(lines.out)["text"] == "今天\n天气"
    for given, message in (
        ("", "the text is empty"),
        (b"\xff\n", "standard input:1: a byte that is not UTF-8"),
    ):
        found = cutaway("inspect", "rollout", "-m", "bert-tiny", given=given)
        assert found.code == 2 and message in found.err and "Traceback" not in found.err


def test_a_misspelled_question_is_told_the_nearest(cutaway: Run) -> None:
    assert "there is no question 'leens' (did you mean 'lens'?), expected one of align," in refused(
        cutaway, "leens", "好久不见"
    )
    assert "does not take 'morning' as well (a text of several words stands in quotes)" in refused(
        cutaway, "good", "morning"
    )


def test_json_is_everything_and_plain(cutaway: Run, poet: Path) -> None:
    found = cutaway("inspect", "lens", "今天天气", "-m", poet, "--at", "-1", "--pinned", "好,#20", "--json")
    assert (found.code, found.err, found.out.count("\n")) == (0, "", 1)
    given = json.loads(found.out)
    assert " ".join(given) == "question model text options output notes command python result"
    assert given["options"] == {"at": -1, "pinned": ["好", 20]}
    expected = lens(run(load(poet), "今天天气"), at=-1, pinned=("好", 20))
    assert given["result"]["pinned"]["ids"] == expected.pinned.ids
    assert given["result"]["outcome_ranks"] == expected.outcome_ranks.tolist()
    default = cutaway("inspect", "lens", "今天天气", "-m", poet, "--top", "5", "--json")
    # what is the default anyway is not told again
    assert json.loads(default.out)["options"] == {}


def test_python_is_lines_that_run(cutaway: Run, poet: Path) -> None:
    found = cutaway("inspect", "lens", "今天天气", "-m", poet, "--top", "2", "--python")
    assert (found.code, found.err) == (0, "")
    space: dict[str, object] = {}
    exec(found.out, space)
    again = result(cutaway, "lens", "今天天气", "-m", poet, "--top", "2")
    assert getattr(space["result"], "ids").tolist() == again["ids"]


def test_one_answer_goes_to_several_files_at_once(cutaway: Run, poet: Path) -> None:
    found = cutaway(
        "inspect", "values", "今天", "-m", poet, "--save", "v.npz", "--svg", "v.svg", "--html", "v.html",
        "--layer", "0", "--head", "1", "--json",
    )  # fmt: skip
    assert found.code == 0
    assert json.loads(found.out)["question"] == "values"
    notes = found.err.splitlines()
    assert [note.split(":")[1].strip() for note in notes] == ["v.npz", "v.svg", "v.html"]
    assert Path("v.svg").read_text(encoding="utf-8").startswith("<svg ")


def test_every_figure_is_a_file(cutaway: Run, poet: Path) -> None:
    found = cutaway(
        "inspect", "attention", "今天天气", "-m", poet, "--svg", "a.svg", "--layer", "0", "--head", "1"
    )
    assert found.code == 0
    written = [line.removeprefix("note: ").split(":")[0] for line in found.err.splitlines()]
    assert written and all(Path(name).is_file() for name in written)
    assert "query" in Path(written[0]).read_text(encoding="utf-8") or "reads" in Path(written[0]).read_text(
        "utf-8"
    )
    assert "has no figure" not in found.err


def test_a_page_carries_its_caption_and_its_python(cutaway: Run, poet: Path) -> None:
    page = page_of(cutaway, "lens", "今天天气", "-m", poet, "--top", "2")
    assert f'>cutaway inspect lens "今天天气" -m {poet} --top 2<' in unescape(page)
    assert "result = lens(run(loaded, " in page
    last = shown(cutaway, "lens", "今天天气", "-m", poet).splitlines()[-3:]
    assert re.fullmatch(r".*poet0 · \d{4}-\d\d-\d\d", last[0])
    assert last[1] == "今天天气" and last[2].startswith('cutaway inspect lens "今天天气" -m /')


def test_the_language_may_be_asked_for(cutaway: Run, masked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    english = shown(cutaway, "rollout", "今天", "-m", masked)
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    chinese = cutaway("inspect", "rollout", "今天", "-m", masked).out
    assert chinese.startswith("编码器自注意力的逐层展开")
    assert cutaway("inspect", "rollout", "今天", "-m", masked, "--lang", "en").out == english


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lens", "好", "--save", "x.pt"), "--save x.pt: ends in '.pt'"),
        (("lens", "好", "--save", "no/x.npz"), "--save no/x.npz: there is no folder no"),
        (
            ("lens", "好", "--svg", "x.png"),
            "--svg x.png: ends in '.png' (did you mean '.svg'?), expected .svg",
        ),
        (("lens", "好", "--html", "no/x.html"), "--html no/x.html: there is no folder no"),
        (("lens", "好", "-m", "bert-tinny"), "did you mean 'bert-tiny'?"),
        (("lens", ""), "the text is empty"),
        (("rollout", "好", "--heads", "a"), "heads is 'a', expected whole numbers with commas"),
        (("attention", "好", "-m", POET, "--layer", "9"), "there is no layer 9, expected 0 to 3"),
        (("lens", "床前明月光", "-m", POET, "--to", "en"), "a decoder-only model has no target text"),
        (
            ("align", "床前明月光", "-m", POET),
            "poet-zh is decoder-only; align needs an encoder-decoder model",
        ),
        (("experts", "好", "-m", POET), "poet-zh is decoder-only; experts needs a mixture of experts"),
        (("diff", "好", "--change", "{"), "change '{': not valid JSON: Expecting property name"),
    ],
)
def test_bad_input_is_told_in_a_line(cutaway: Run, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, *arguments)


def test_files_are_refused_before_anything_is_read(cutaway: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutaway.inspection.answers.Session", lambda model: pytest.fail("a model was opened"))
    assert "ends in '.pt'" in refused(cutaway, "lens", "好", "--save", "x.pt")


def test_saved_arrays_are_those_of_the_run(cutaway: Run, poet: Path) -> None:
    assert cutaway("inspect", "今天天气", "-m", poet, "--save", "all.safetensors").code == 0
    expected = overview(run(load(poet), "今天天气"))
    assert load_file("all.safetensors")["log_probs"].tolist() == pytest.approx(
        expected.log_probs.tolist(), abs=1e-5
    )
    assert find(POET).name == POET
