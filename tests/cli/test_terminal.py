"""What a terminal, a pipe and a stranger's folder get to see and to run."""

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.limits import takes_less_than

from cutaway.page.blocks import Column, Table
from cutaway.page.console import Terminal


def on_a_terminal(*arguments: str | Path) -> bytes:
    """What `cutaway ARGUMENTS` writes to a terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "cutaway", *map(str, arguments)]
    with subprocess.Popen(command, stdout=follower, stderr=follower, stdin=subprocess.DEVNULL) as running:
        os.close(follower)
        parts: list[bytes] = []
        while True:
            try:
                part = os.read(leader, 65_536)
            # the other end is closed
            except OSError:
                break
            parts.append(part)
        running.wait()
    os.close(leader)
    return b"".join(parts)


def test_what_is_written_does_not_steer_a_terminal_and_a_pipe_gets_it_as_it_is(
    cutaway, translator: Path
) -> None:
    # a text without words, which is left as it is
    asked = ("translate", "7\x1b[31;1 \x9b2", "-m", translator)
    assert cutaway(*asked).out == "7\x1b[31;1 \x9b2\n"
    shown = on_a_terminal(*asked).decode()
    assert "7⟨U+001B⟩[31;1 ⟨U+009B⟩2" in shown and "\x1b" not in shown and "\x9b" not in shown


def test_names_of_files_do_not_steer_a_terminal(cutaway, tmp_path: Path) -> None:
    for name in ("\x1b[2Jx", "a\x07b", "c\x9bd"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{", encoding="utf-8")
        result = cutaway("translate", "好", "-m", folder)
        assert result.code == 2
        assert not [
            each for each in result.err if ord(each) in (*range(10), *range(11, 32), *range(127, 160))
        ]
        assert f"⟨U+{ord(next(each for each in name if not each.isprintable())):04X}⟩" in result.err


def test_a_strangers_folder_decides_nothing_that_is_run(tmp_path: Path) -> None:
    for name in ("tokenizers", "torch", "lazy_loader", "typer", "gettext", "json", "inspect"):
        (tmp_path / f"{name}.py").write_text("print('taken')\nraise SystemExit(7)\n", encoding="utf-8")
    command = [sys.executable, "-m", "cutaway", "tokenize", "好"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "taken" not in found.stdout and "好" in found.stdout


def test_an_interrupt_while_modules_are_loaded_ends_as_quietly_as_later() -> None:
    program = (
        "import signal\n"
        "from cutaway.__main__ import run\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.005)\n"
        "run()\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (130, b"")


def test_a_long_table_takes_no_longer_than_its_rows() -> None:
    rows = [("①", "①", str(number), f"1 at {number}", "E2 91 A0") for number in range(5_000)]
    columns = [Column("text"), Column("piece"), Column("id", "right"), Column("one-hot"), Column("bytes")]
    with takes_less_than(4):
        lines = Terminal(80, True).text(Table(columns, rows)).splitlines()
    assert len(lines) == 2 + len(rows)
    assert lines[2].split() == ["①", "①", "0", "1", "at", "0", "E2", "91", "A0"]
