"""`cutaway chat` with lines from a pipe, and at a terminal."""

import codecs
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway import Conversation, Limits, Sampling, Search, load

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' and m.content == 'no' %}{{ raise_exception('No!') }}{% endif %}"
    "{{ m.content + eos_token }}{% endfor %}"
)


@pytest.fixture
def chatty(poet: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "chatty"
    shutil.copytree(poet, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


def test_every_line_of_a_pipe_is_a_message(cutaway, chatty: Path):
    options = (
        "--max-new-tokens",
        "6",
        "--seed",
        "3",
        "--temperature",
        "0.9",
        "--top-p",
        "0.8",
        "--system",
        "我",
    )
    result = cutaway("chat", chatty, *options, given="\ufeff今天\r\n\n  \n我爱\n天")
    sampling = Sampling(temperature=0.9, top_p=0.8, seed=3)
    conversation = Conversation(load(chatty), system="我", limits=Limits(6), search=Search(sampling=sampling))
    expected = ""
    for line in ("今天", "我爱", "天"):
        expected += "".join(token.text for token in conversation.say(line).tokens) + "\n"
    assert (result.code, result.out) == (0, expected)
    assert result.err.count("the answer was cut") >= 1
    assert ">" not in result.out
    assert cutaway("chat", chatty, given="").out == ""


def test_every_option_changes_the_answers(cutaway, chatty: Path):
    def out(*options: str) -> str:
        return cutaway("chat", chatty, "--max-new-tokens", "12", *options, given="今天\n").out

    plain = out()
    assert out() == plain
    assert out("--seed", "1") != plain
    assert out("--temperature", "3") != plain
    assert out("--temperature", "0") == out("--top-p", "0.001") != plain
    assert out("--system", "我") != plain
    assert len(out("--max-new-tokens", "2")) < len(plain)


def test_a_chat_that_grows_says_what_it_leaves_out(cutaway, chatty: Path):
    result = cutaway("chat", chatty, "--max-new-tokens", "8", given="今天天气很好。\n" * 4)
    assert result.code == 0
    assert "outgrown this model's 32 positions; oldest turns" in result.err
    assert result.out.count("\n") == 4


def test_mistakes_are_told(cutaway, chatty: Path, poet: Path, translator: Path):
    result = cutaway("chat", poet, given="今天\n")
    assert (result.code, result.out) == (2, "")
    assert f"{poet} has no chat template" in result.err
    assert "use it with `cutaway generate`" in result.err
    assert "use it with `cutaway translate`" in cutaway("chat", translator, given="我\n").err
    assert "max_new_tokens is -1" in cutaway("chat", chatty, "--max-new-tokens", "-1", given="我\n").err
    assert "refuses these messages: No!" in cutaway("chat", chatty, "--system", "no", given="我\n").err
    wrong = cutaway("chat", chatty, "--max-new-tokens", "2", given="我\n".encode() + b"caf\xe9\n")
    assert wrong.code == 2
    assert wrong.out.count("\n") == 1
    assert "standard input:2: a byte that is not UTF-8 at byte 4 of the line" in wrong.err
    long = cutaway("chat", chatty, given="好" * 50 + "\n我\n")
    assert (long.code, long.out) == (2, "")
    assert "this model's limit is 32 positions" in long.err


def test_answers_come_before_the_next_line_is_there(chatty: Path):
    command = [sys.executable, "-W", "error", "-m", "cutaway", "chat", str(chatty), "--max-new-tokens", "3"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        for _ in range(2):
            run.stdin.write("今天\n".encode())
            run.stdin.flush()
            assert run.stdout.readline().endswith(b"\n")
        run.stdin.close()
        assert run.wait(60) == 0


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, *arguments: str | Path) -> None:
        self._ours, theirs = pty.openpty()
        self.shown = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self.program = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "cutaway", *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=os.environ | {"TERM": "dumb", "PYTHONUTF8": "1"},
        )
        os.close(theirs)

    def wait_for(self, pattern: str) -> str:
        """What was shown before what matches; both are then done with."""
        latest = time.monotonic() + 120
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < latest, f"no {pattern!r} in {self.shown!r}"
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    self.shown += self._decode(os.read(self._ours, 4096))
                # the program has ended
                except OSError as error:
                    raise AssertionError(f"no {pattern!r} in {self.shown!r}") from error
        before, self.shown = self.shown[: found.start()], self.shown[found.end() :]
        return before

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """As Ctrl-C does, to every process there."""
        os.killpg(self.program.pid, signal.SIGINT)

    def close(self) -> None:
        if self.program.poll() is None:
            self.program.kill()
        self.program.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(chatty: Path) -> Iterator[Terminal]:
    config = json.loads((chatty / "config.json").read_text(encoding="utf-8"))
    longest = {"max_position_embeddings": 100_000, "eos_token_id": None}  # it would write for minutes
    (chatty / "config.json").write_text(json.dumps(config | longest), encoding="utf-8")
    (chatty / "generation_config.json").unlink()
    (chatty / "chat_template.jinja").write_text(
        TEMPLATE.replace("m.role == 'system' and ", "").replace(" + eos_token", ""), encoding="utf-8"
    )
    opened = Terminal("chat", chatty, "--max-new-tokens", "90000", "--temperature", "0")
    yield opened
    opened.close()


def test_at_a_terminal_ctrl_c_stops_the_answer_and_ctrl_d_the_chat(terminal: Terminal):
    assert "Ctrl-C stops an answer, Ctrl-D ends the chat" in terminal.wait_for("> ")
    terminal.type("今天\n")
    # what was typed
    terminal.wait_for("今天\r\n")
    # some of the answer
    terminal.wait_for(".{20}")
    terminal.interrupt()
    assert "cut" not in terminal.wait_for("> ")
    time.sleep(
        1
        # a signal between the prompt and the reading of the line after it would wait for the next key
    )
    # at the prompt there is nothing to stop
    terminal.interrupt()
    terminal.wait_for("> ")
    # which the template refuses
    terminal.type("no\n")
    assert "refuses these messages: No!" in terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.program.wait(60) == 0
