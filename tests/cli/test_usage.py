"""What is wrong with a command as it was typed: one line, with the nearest choice and where to read on."""

from pathlib import Path

import pytest
from tests.command import Run


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("translat",),
            "cutaway has no command 'translat' (did you mean 'translate'?), expected one of demo, ",
        ),
        (("lens", "好"), "cutaway has no command 'lens'"),
        (
            ("translate", "好", "--beem", "3"),
            "cutaway translate has no option --beem (did you mean '--beam'?); see",
        ),
        (("translate", "好", "--zzz"), "cutaway translate has no option --zzz; see cutaway translate --help"),
        (
            ("inspect", "lens", "好", "--tpo", "3"),
            "cutaway inspect lens has no option --tpo (did you mean '--to",
        ),
        (
            ("evaluate", "a", "b"),
            "a translator is measured on SOURCE and REFERENCE --to LANGUAGE, word vectors with",
        ),
        (("inspect", "similarity", "好"), "cutaway inspect similarity needs other; see cutaway inspect"),
        (("translate", "好", "--beam"), "--beam needs a value; see cutaway translate --help"),
        (("translate", "好", "--json=1"), "--json takes no value; see cutaway translate --help"),
        (("translate", "好", "--beam", "four"), "--beam is four, expected a whole number; see"),
        (("generate", "好", "--temperature", "warm"), "--temperature is warm, expected a number; see"),
        (
            ("inspect", "lens", "好", "--top", "0"),
            "--top is 0, expected at least 1; see cutaway inspect lens --help",
        ),
        (("inspect", "rollout", "好", "--residual", "1.5"), "--residual is 1.5, expected at most 1; see"),
        (
            ("inspect", "word", "好", "--side", "corss"),
            "--side is corss (did you mean 'cross'?), expected encoder, decoder or cross;",
        ),
        (
            ("translate", "good", "morning"),
            "cutaway translate does not take 'morning' as well (a text of several",
        ),
        (("inspect", "anatomy", "好"), "cutaway inspect anatomy does not take '好' as well"),
    ],
)
def test_a_mistake_is_told_in_one_line(cutaway: Run, arguments: tuple[str, ...], told: str) -> None:
    found = cutaway(*arguments)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(f"error: {told}"), found.err
    assert found.err.count("\n") == 1 and "--help\n" in found.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("translat",),
            "错误：cutaway 没有命令 'translat'（是不是 'translate'？），可用的有 demo、translate、",
        ),
        (
            ("translate", "好", "--beem", "3"),
            "错误：cutaway translate 没有选项 --beem（是不是 '--beam'？）；见 ",
        ),
        (
            ("inspect", "lens", "好", "--top", "0"),
            "错误：--top 为 0，应为至少 1；见 cutaway inspect lens --help",
        ),
        (("inspect", "drift", "好", "--word", "好"), "错误：cutaway inspect drift 需要 --other；见 "),
    ],
)
def test_in_chinese_too(
    cutaway: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    found = cutaway(*arguments)
    assert (found.code, found.out) == (2, "") and found.err.startswith(told), found.err


def test_no_arguments_is_a_request_for_help(cutaway: Run, tmp_path: Path) -> None:
    for arguments in ((), ("tokenizer",)):
        found = cutaway(*arguments)
        assert found.code == 2 and "Usage: cutaway" in found.out + found.err


def test_a_text_on_standard_input_is_looked_into_though_no_question_is_named(cutaway: Run) -> None:
    piped, named = cutaway("inspect", given="好久不见。"), cutaway("inspect", "overview", "好久不见。")
    assert piped == named and piped.code == 0
