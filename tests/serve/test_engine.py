"""Work that waits, is given up, or fails: one thread a model, which is free again at once."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import Serving, started

from cutaway.errors import CutawayError
from cutaway.inspection.answers import Session
from cutaway.inspection.question import find_question
from cutaway.serve import engine as engines
from cutaway.serve.engine import Engine, Kept, Report, Request, Stopped
from cutaway.tap import Trace

# A search of many steps over a wide beam: some seconds.
LONG = {"model": "translate-zh-en", "options": {"text": "我们明天去北京，你想喝点什么？" * 8, "beam": 32}}


@pytest.fixture
def blocked(serving: Serving):
    """The thread of `masked0` at work until it is let go."""
    free, busy = threading.Event(), threading.Event()
    model = serving.engine.models["masked0"]

    def make(*_: object) -> bytes:
        busy.set()
        assert free.wait(20)
        return b"{}\n"

    serving.engine.ask(Request(model, f"blocked {time.monotonic()}", make, lambda event: None))
    assert busy.wait(10)
    yield free
    free.set()
    assert serving.idle()


def lines(opened: socket.socket) -> list[dict[str, Any]]:
    """All that comes on a connection, its head and the sizes of chunks apart."""
    with opened, opened.makefile("rb") as file:
        return [json.loads(line) for line in file.read().splitlines() if line.startswith(b"{")]


def test_the_guard_changes_nothing(translator: Path):
    """An answer under the guard is that without it, bit for bit."""
    request = Request(Engine(["bert-tiny"]).model("bert-tiny"), "", lambda *_: b"", lambda event: None)
    for name, text, options in (
        ("lens", "好久不见。", {}), ("align", None, {"text": "好久不见。"}), ("explain", "好久不见。", {}),
        ("diff", "好久不见。", {"changes": [{"op": "head", "side": "cross", "layer": 1, "head": 1}]}),
    ):  # fmt: skip
        plain = Session(str(translator)).ask(find_question(name), text, options).json()
        session = Session(str(translator))
        with Trace(session.loaded.model, edit={"*.resid_pre": request.guard}):
            assert session.ask(find_question(name), text, options, request.report).json() == plain


def test_a_search_stops_at_the_next_block(translator: Path):
    session = Session(str(translator))
    model = session.loaded.model
    request = Request(Engine(["bert-tiny"]).model("bert-tiny"), "", lambda *_: b"", lambda event: None)
    stopped_at = 0.0

    def stop() -> None:
        nonlocal stopped_at
        stopped_at, request.stopped = time.thread_time(), True

    met = 0
    guard = request.guard

    def counted(x: Any) -> Any:
        nonlocal met
        met += 1
        # in the midst of the search: two blocks read, then two for each token
        if met == 13:
            stop()
        return guard(x)

    with pytest.raises(Stopped), Trace(model, edit={"*.resid_pre": counted}):
        session.ask(find_question("align"), None, {"text": "我爱你。", "beam": 8}, request.report)
    assert met == 13
    assert time.thread_time() - stopped_at < 0.1


@pytest.mark.parametrize("how", ["FIN", "RST"])
def test_who_leaves_ends_the_work(serving: Serving, how: str):
    """S23: the thread is free again, whatever it was in the midst of."""
    opened = serving.begin("align", **LONG)
    until(lambda: serving.health()["running"] == 1)
    time.sleep(0.2)
    if how == "RST":
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    opened.close()
    assert serving.idle(2.0)


def test_who_leaves_the_line_is_forgotten(serving: Serving, blocked: threading.Event):
    opened = serving.begin("lens", model="masked0", text="我走了。")
    until(lambda: serving.health()["waiting"] == 1)
    opened.close()
    until(lambda: serving.health()["waiting"] == 0)


def test_others_are_not_held_up(serving: Serving, blocked: threading.Event):
    """S32: while a model works, the rest of the server answers at once."""
    for path in ("/api/v1/health", "/api/v1/models", "/api/v1/vocabulary"):
        begun = time.monotonic()
        assert serving.get(path).status == 200
        assert time.monotonic() - begun < 1.0
    assert serving.ask("lens", "poet0", "我爱你").status == 200
    assert serving.ask("lens", "masked0", "我爱你", options={"tops": 1}).status == 400
    assert serving.post("tokenize", {"model": "masked0", "text": "我爱你"}).status == 200


def test_the_newest_of_a_tab(serving: Serving, blocked: threading.Event):
    """A newer request takes the place of one that waits, of the same tab alone."""
    first = serving.begin("lens", model="masked0", text="一。", tab="a")
    until(lambda: serving.health()["waiting"] == 1)
    other = serving.begin("lens", model="masked0", text="二。", tab="b")
    until(lambda: serving.health()["waiting"] == 2)
    second = serving.begin("lens", model="masked0", text="三。", tab="a")
    [error] = lines(first)[-1:]
    assert error["error"]["kind"] == "busy"
    assert serving.health()["waiting"] == 2
    blocked.set()
    assert [each["answer"]["text"] for each in (*lines(other), *lines(second)) if "answer" in each] == [
        "二。",
        "三。",
    ]


def test_the_newest_of_a_tab_is_not_the_last_to_arrive(serving: Serving, blocked: threading.Event):
    """Requests on their way at the same time may overtake each other."""
    newer = serving.begin("lens", model="masked0", text="三。", tab="a", generation=2)
    until(lambda: serving.health()["waiting"] == 1)
    late = serving.post("answers/lens", {"model": "masked0", "text": "一。", "tab": "a", "generation": 1})
    assert (late.status, late.kind) == (429, "busy")
    assert serving.health()["waiting"] == 1
    blocked.set()
    assert [each["answer"]["text"] for each in lines(newer) if "answer" in each] == ["三。"]


def test_a_full_line_is_refused_at_once(
    serving: Serving, blocked: threading.Event, monkeypatch: pytest.MonkeyPatch
):
    """S25."""
    monkeypatch.setattr(engines, "LINE", 3)
    waiting = [serving.begin("lens", model="masked0", text=f"{n}。") for n in range(3)]
    until(lambda: serving.health()["waiting"] == 3)
    reply = serving.ask("lens", "masked0", "再见。")
    assert (reply.status, reply.kind) == (429, "busy")
    assert int(reply.headers["retry-after"]) > 0
    blocked.set()
    for each in waiting:
        assert "answer" in lines(each)[-1]


def test_who_waits_hears_of_it(serving: Serving, blocked: threading.Event):
    waits = serving.begin("lens", model="masked0", text="还在等。")
    time.sleep(1.3)
    blocked.set()
    first, *_, last = lines(waits)
    assert first["progress"]["what"] == {"en": "waiting in line", "zh": "排队等候"}
    assert "answer" in last


def test_what_waited_too_long_is_given_up(
    serving: Serving, blocked: threading.Event, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engines, "SECONDS", 0.05)
    waits = serving.begin("lens", model="masked0", text="太久了。")
    until(lambda: serving.health()["waiting"] == 1)
    time.sleep(0.1)
    blocked.set()
    assert lines(waits)[-1]["error"]["kind"] == "busy"


def test_an_error_after_progress_is_the_last_line(serving: Serving, monkeypatch: pytest.MonkeyPatch):
    """S31: a fault in the midst of the work, of ours or of memory, is a line like others."""
    for fault, kind in (
        (RuntimeError("a bug"), "failed"),
        (MemoryError(), "out_of_memory"),
        (CutawayError("no"), "bad_request"),
    ):

        def ask(
            self: Session, question: Any, text: Any, given: Any, progress: Any, fault: Exception = fault
        ) -> Any:
            progress("work", 1, 2)
            time.sleep(0.2)
            raise fault

        monkeypatch.setattr(Session, "ask", ask)
        reply = serving.ask("sweep", "masked0", f"错误{kind}。")
        assert reply.status == 200
        assert [[*line] for line in reply.lines] == [["progress"], ["error"]]
        assert reply.kind == kind
    monkeypatch.undo()
    assert serving.ask("lens", "masked0", "又好了。").status == 200


def test_a_fault_before_is_a_status(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    def ask(*_: object) -> Any:
        raise RuntimeError("a bug\nwith \x1b[31mcolours")

    monkeypatch.setattr(Session, "ask", ask)
    reply = serving.ask("lens", "masked0", "出错。")
    assert (reply.status, reply.kind) == (500, "failed")
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "\x1b" not in told
    assert "RuntimeError" in told


def test_an_answer_that_is_too_large(serving: Serving, monkeypatch: pytest.MonkeyPatch):
    from cutaway.serve import wire

    monkeypatch.setattr(wire, "LARGEST", 1000)
    reply = serving.ask("attention", "masked0", "太大了。")
    assert (reply.status, reply.kind) == (413, "too_large")
    reply = serving.ask("lens", "masked0", "太大了。")
    assert (reply.status, reply.kind) == (413, "too_large")


def test_thirty_at_once(serving: Serving):
    """Everyone gets an answer, or hears at once that there is no room."""
    found: list[int] = []

    def ask(n: int) -> None:
        found.append(serving.ask("lens", "masked0", f"第{n}个人。", tab=str(n)).status)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(30)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert found == [200] * 30


def test_answers_that_are_kept_have_a_bound():
    kept = Kept(100)
    for n in range(50):
        kept.put(("m", str(n)), b"x" * 30)
        assert kept.get(("m", str(n))) == b"x" * 30
    assert sum(kept.get(("m", str(n))) is not None for n in range(50)) == 3
    kept.put(("m", "49"), b"y" * 90)
    assert [n for n in range(50) if kept.get(("m", str(n)))] == [49]
    kept.put(("m", "large"), b"z" * 101)
    assert kept.get(("m", "large")) is None


def test_reports_do_not_come_too_often():
    heard: list[Any] = []
    request = Request(Engine(["bert-tiny"]).model("bert-tiny"), "", lambda *_: b"", heard.append)
    for n in range(10_000):
        request.report("work", n, 10_000)
    assert isinstance(heard[0], Report)
    assert len(heard) < 100


def test_a_damaged_model_is_said_to_be(tmp_path: Path, masked: Path):
    (tmp_path / "config.json").write_text((masked / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    serving = started(Engine([str(tmp_path), str(masked)]))
    broken, whole = json.loads(serving.get("/api/v1/models").body)["models"]
    assert (broken["id"], broken["state"], whole["state"]) == (tmp_path.name, "failed", "ready")
    assert set(broken["error"]) == {"en", "zh"}
    reply = serving.ask("lens", tmp_path.name, "a")
    assert (reply.status, reply.kind) == (500, "failed")
    assert serving.ask("lens", masked.name, "one [MASK] two").status == 200
    serving.server.should_exit = True


def test_word_vectors_are_served_too(tmp_path: Path):
    file = tmp_path / "animals.vec"
    file.write_text("4 3\ncat 1 0 0\ndog 0.9 0.1 0\ncow 0.8 0.3 0.1\nsun 0 0 1\n")
    serving = started(Engine([str(file)]))
    [told] = json.loads(serving.get("/api/v1/models").body)["models"]
    assert (told["id"], told["state"], told["vocab_size"], told["d_model"]) == ("animals", "ready", 4, 3)
    assert told["sides"] == []
    assert "neighbours" in told["questions"]
    assert "lens" not in told["questions"]
    answer = serving.ask("neighbours", "animals", options={"token": "cat", "top": 1}, want=["result"]).last[
        "answer"
    ]
    assert "dog" in json.dumps(answer["result"])
    refused = serving.ask("lens", "animals", "cat")
    assert (refused.status, refused.kind) == (400, "bad_request")
    refused = serving.post("tokenize", {"model": "animals", "text": "cat"})
    assert (refused.status, refused.kind) == (400, "bad_request")
    serving.server.should_exit = True


def test_models_of_one_name(poet: Path, tmp_path: Path):
    twin = tmp_path / "poet-zh"
    twin.symlink_to(poet)
    assert [*Engine([str(poet), "poet-zh", str(twin.absolute())]).models] == [
        poet.name,
        "poet-zh",
        f"{poet.name}-2",
    ]
    with pytest.raises(CutawayError, match="no model 'nothing'"):
        Engine(["nothing"])


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    due = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < due, "it did not come about"
        time.sleep(0.01)
