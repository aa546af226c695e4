import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from cutaway.train.progress import Progress, clock
from cutaway.train.validation import Scores


def entry(step: int, loss: float = 2.0) -> dict[str, object]:
    return {"step": step, "tokens": 500, "lr": 0.1, "loss": loss, "gradient_norm": 1.0}


def test_plain_lines_now_and_then_where_there_is_no_terminal(tmp_path: Path) -> None:
    quiet, talking = io.StringIO(), io.StringIO()
    for stream, every in ((quiet, 1000.0), (talking, 0.0)):
        with Progress(tmp_path / "log.jsonl", stream=stream, every=every) as progress:
            progress.step(entry(7), seconds=0.5, done=0.25, elapsed=100.0)
    assert quiet.getvalue() == ""
    assert talking.getvalue() == "step 7 · loss 2.0000 · 1,000 tokens/s · 5:00 left\n"


def test_one_line_kept_up_to_date_in_a_terminal(tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = Progress(tmp_path / "log.jsonl")
    progress.console = Console(file=stream, force_terminal=True, width=100)
    with progress:
        progress.step(entry(7), seconds=0.5, done=0.25, elapsed=100.0)
    assert "step 7 · loss 2.0000 · 1,000 tokens/s · 5:00 left" in stream.getvalue()
    assert "25 %" in stream.getvalue()


def test_the_log_has_every_step_and_validation(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with Progress(log, stream=io.StringIO()) as progress:
        progress.step(entry(1), 0.5, 0.5, 0.5)
        scores = Scores(
            loss=1.5, tokens=9, translation={"bleu zh>en": 20.0}, samples=[("猫", "cat", "a cat")]
        )
        progress.validation(1, scores, better=True)
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert lines[0] == {**entry(1), "tokens_per_second": 1000.0, "seconds": 0.5}
    assert lines[1]["validation"] == {"loss": 1.5, "bleu zh>en": 20.0}
    assert lines[1]["samples"] == [["猫", "cat", "a cat"]]


def test_going_back_forgets_later_steps_and_a_line_cut_short(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        "".join(json.dumps(entry(n)) + "\n" for n in (1, 2, 3)) + '{"step": 4, "lo', encoding="utf-8"
    )
    progress = Progress(log, stream=io.StringIO())
    progress.rewind(2)
    assert [json.loads(line)["step"] for line in log.read_text(encoding="utf-8").splitlines()] == [1, 2]


def test_a_bad_line_costs_only_itself(tmp_path: Path) -> None:
    """R04: bytes, brackets without end, numbers of thousands of digits, other types; and what a sentence may have."""
    log = tmp_path / "log.jsonl"
    good = [
        json.dumps({"step": 1, "samples": [["a\u2028b\u0085c\x0bd", "", ""]]}, ensure_ascii=False).encode(),
        json.dumps(entry(1)).encode(),
        json.dumps(entry(2)).encode(),
    ]
    bad = [
        b"\xff\xfe", b"[" * 100_000, b'{"step": ' + b"9" * 5000 + b"}", b"[1]", b'"step"', b"", b"\0",
        b'{"step": "1"}', b'{"step": 1.0}', b'{"step": true}', b'{"step": null}', b"{}", b'{"step": -1}',
    ]  # fmt: skip
    log.write_bytes(b"\n".join([bad[0], good[0], *bad[1:7], good[1], *bad[7:], good[2]]))
    progress = Progress(log, stream=io.StringIO())
    assert progress.rewind(2)
    assert log.read_bytes() == b"".join(line + b"\n" for line in good)
    assert not progress.rewind(2)
    assert progress.rewind(0) and log.read_bytes() == b"" and not progress.rewind(0)


def test_nothing_is_left_when_the_time_is_over(tmp_path: Path) -> None:
    stream = io.StringIO()
    with Progress(tmp_path / "log.jsonl", stream=stream, every=0.0) as progress:
        progress.step(entry(7), seconds=0.5, done=1.25, elapsed=100.0)
    assert stream.getvalue().endswith("0:00 left\n")


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3725, "1:02:05")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
