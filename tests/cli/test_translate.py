import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cutaway import Limits, Translator, load, save
from cutaway.cli.terminal import one_line

SENTENCES = [
    "我爱机器学习。",
    "好久不见。",
    "新书",
    "I love it.",
    "Long time",
    "no see",
    "fine",
    "He bought a book.",
]
TEXTS = ["好久不见。", "", "I love machine learning.", "   ", "今天天气很好。"]


def test_output_is_what_the_library_translates_line_by_line(cutaway, translator: Path, tmp_path: Path):
    expected = [found.best.text for found in Translator(load(translator)).translate(TEXTS)]
    file = tmp_path / "texts.txt"
    file.write_bytes("\ufeff{}\r\n\r\n{}\n{}\n{}".format(*(TEXTS[i] for i in (0, 2, 3, 4))).encode())
    for result in (
        cutaway("translate", "--model", translator, given="\n".join(TEXTS) + "\n"),
        cutaway("translate", "--model", translator, "--file", file),
    ):
        assert result.code == 0
        assert all(line.startswith("note: line ") for line in result.err.splitlines())
        assert result.out.split("\n") == [*map(one_line, expected), ""]


def test_options_reach_the_search(cutaway, translator: Path):
    def lines(*options: str) -> list[str]:
        result = cutaway("translate", "-m", translator, *options, given="\n".join(SENTENCES))
        assert result.code == 0, result.err
        return result.out.splitlines()

    plain = lines("--max-new-tokens", "8")
    ranked = [line.split("\t") for line in lines("--max-new-tokens", "8", "--n-best", "3")]
    assert [text for _, text in ranked[::3]] == plain
    for start in range(0, len(ranked), 3):
        scores = [float(score) for score, _ in ranked[start : start + 3]]
        assert scores == sorted(scores, reverse=True)
    assert lines("--max-new-tokens", "8", "--to", "zh") != plain
    assert lines("--max-new-tokens", "8", "--beam", "1") != plain
    assert lines("--max-new-tokens", "3") != plain
    assert lines("--max-new-tokens", "8", "--min-new-tokens", "7") != plain
    assert lines("--max-new-tokens", "8", "--length-penalty", "5") != plain
    assert lines("--max-new-tokens", "8", "--repetition-penalty", "5") != plain


def test_json_holds_everything(cutaway, translator: Path):
    result = cutaway("translate", "-m", translator, "--json", "--n-best", "2", given="好久不见。\n\n")
    full, blank = (json.loads(line) for line in result.out.splitlines())
    assert full["source_pieces"][0] == ">>eng<<"
    assert full["to"] == "en"
    assert len(full["translations"]) == 2
    for found in full["translations"]:
        length = len(found["ids"])
        assert length == len(found["pieces"]) == len(found["log_probs"]) == len(found["alternatives"])
        assert [len(row) for row in found["alignment"]] == [len(full["source_ids"])] * length
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in found["alignment"])
    assert blank["translations"][0]["text"] == ""


def test_json_has_the_sentences_with_their_places(cutaway, translator: Path):
    text = "好久不见。 OK. 新书"
    found = json.loads(cutaway("translate", text, "-m", translator, "--json", "--n-best", "2").out)
    sentences = found["sentences"]
    assert [text[each["start"] : each["end"]] for each in sentences] == ["好久不见。", "OK.", "新书"]
    assert sum(each["source_pieces"] for each in sentences) == len(found["source_pieces"])
    assert len(found["source_offsets"]) == len(found["source_ids"])
    for rank, whole in enumerate(found["translations"]):
        own = [each["translations"][: rank + 1][-1] for each in sentences]
        assert sum(each["pieces"] for each in own) == len(whole["pieces"])
        assert whole["score"] == pytest.approx(sum(each["score"] for each in own))
    one = json.loads(cutaway("translate", text, "-m", translator, "--json", "--no-split").out)
    assert [(each["start"], each["end"]) for each in one["sentences"]] == [(0, len(text))]
    shown = cutaway("translate", text, "-m", translator, "--show", "alignment").out
    assert shown.count("target down, source across") == 2


def test_every_line_gives_as_many_rows_whatever_is_in_it(cutaway, translator: Path, tmp_path: Path):
    file = tmp_path / "texts.txt"
    lines = ["好久不见。", "", "\u200b", "123", "新书。\x0b新书。", "a\u2028b", "好" * 50, "fine"]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for n in (1, 2):
        result = cutaway("translate", "-f", file, "-m", translator, "--n-best", n, "--max-new-tokens", "4")
        rows = result.out.split("\n")[:-1]
        assert len(rows) == n * len(lines)
        assert not any(len(row.splitlines()) > 1 for row in rows)
        texts = [row.split("\t")[-1] for row in rows[::n]]
        assert [bool(text) for text in texts] == [True, False, False, True, True, True, False, True]
        # the one that is too long is named, and the exit code tells
        assert result.code == 2
        assert "note: line 7 has 50 tokens" in result.err
        assert "stayed empty: 7 (1 in all)" in result.err and "--truncate" in result.err
    cut = cutaway("translate", "-f", file, "-m", translator, "--truncate")
    assert cut.code == 0 and all(cut.out.split("\n")[i] for i in (0, 6, 7))


def test_a_line_break_of_the_models_own_does_not_break_the_lines(cutaway, translator: Path, tmp_path: Path):
    model = tmp_path / "model"
    loaded = load(translator)
    line_break = loaded.require_tokenizer().encode("\n").ids[-1]
    with torch.no_grad():
        loaded.model.get_parameter("head.unembed.bias")[line_break] = 30.0
    save(model, loaded.model, loaded.tokenizer)
    file = tmp_path / "texts.txt"
    file.write_text("好久不见。\n新书\n", encoding="utf-8")
    options = ("-m", model, "--no-split", "--max-new-tokens", "3")
    [found] = Translator(load(model)).write([Translator(load(model)).prepare("新书")], limits=Limits(3))
    assert "\n" in found[0].text
    assert cutaway("translate", "-f", file, *options).out.count("\n") == 2
    cutaway("evaluate", file, file, "--to", "en", "-m", model, "--out", tmp_path / "out.txt", "--beam", "1")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").count("\n") == 2


def test_what_is_to_be_said_of_a_translation_is_a_note(cutaway, translator: Path):
    result = cutaway("translate", "今天天气很好。", "-m", translator, "--max-new-tokens", "2", "--json")
    assert result.err == "note: the translation was cut at the limit of 2 tokens\n"
    assert json.loads(result.out)["notes"] == ["the translation was cut at the limit of 2 tokens"]
    assert "in English already" in cutaway("translate", "hello", "--to", "en", "-m", translator).err


def test_shows_what_is_asked_for(cutaway, translator: Path):
    plain = cutaway("translate", "好久不见。", "-m", translator).out
    everything = cutaway(
        "translate",
        "好久不见。",
        "-m",
        translator,
        "--show",
        "alignment",
        "--show",
        "tokens",
        "--show",
        "scores",
    ).out
    assert everything.startswith(plain)
    parts = (
        "target down, source across",
        "source piece",
        "translation piece",
        "probability",
        "log-probability",
    )
    assert all(part in everything and part not in plain for part in parts)
    [found] = Translator(load(translator)).translate(["好久不见。"])
    assert all(str(id) in everything for id in found.source.ids)


def test_traditional_characters_are_converted_with_a_note(cutaway, translator: Path):
    converted = cutaway("translate", "我愛機器學習。", "-m", translator)
    assert "traditional" in converted.err
    assert converted.out == cutaway("translate", "我爱机器学习。", "-m", translator).out


def test_ascii_where_the_terminal_is_dumb(process, translator: Path):
    command = ("translate", "好久不见。", "-m", translator, "--show", "alignment")
    result = process(*command, TERM="dumb", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()
    assert b"weight at least  . 0.10  : 0.25" in result.stdout


def test_a_reader_that_goes_away_is_no_error(process, translator: Path):
    result = process("translate", "-m", translator, given="好久不见。\n".encode() * 100, pipe="| head -n 1")
    assert result.stdout.count(b"\n") == 1
    assert all(line.startswith(b"note: line ") for line in result.stderr.splitlines())


def test_an_interrupt_ends_quietly_with_130(translator: Path):
    command = [sys.executable, "-m", "cutaway", "translate", "-m", str(translator)]

    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        # more than a pipe holds: when this is done, it is reading
        running.stdin.write(b"x" * 300_000)
        while (
            running.poll() is None
            # a signal that comes right before a blocking read waits for the next one
        ):
            running.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(timeout=5)
        assert running.returncode == 130
        assert running.stderr is not None
        assert running.stderr.read() == b""
